"""Role cuda_toolkit with the vendor's repository, beside the distribution's driver and by dnf.

Systems and packages are stand-ins: no toolkit is in them, and the loader is not asked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import owned
from tests.standin import playing
from tests.substrate.standin import deb, system
from tests.substrate.standin.companions import cuda
from tests.substrate.standin.packages import StandIn, format_of

if TYPE_CHECKING:
    from pathlib import Path

#: Two releases side by side; of the first the repository has an older and a newer build.
TOOLKITS = ("12.9.1", "12.6.3")
OTHERS = ("12.9.0", "13.0.2")
LIBRARY = {"deb": "libnccl2", "rpm": "libnccl"}
NCCL = "2.27.3-1+cuda12.9"
#: Ubuntu has drivers of its own; on Red Hat's family nobody but the vendor has any.
SOURCE = {"deb": "distro", "rpm": "vendor-repo"}
#: A part as the older build brought it, and how one goes back to it by hand.
PART, OLDER = "cuda-nvcc-12-9", "12.9.40-1"
BACK = {
    "deb": ["apt-get", "install", "--yes", "--allow-downgrades", f"{PART}={OLDER}"],
    "rpm": ["dnf", "downgrade", "--assumeyes", f"{PART}-{OLDER}"],
}
#: A driver's package as the distribution has it, and as the vendor's repository has it too.
DRIVER, DISTRIBUTION, VENDOR = "libnvidia-ml", "580.178.04-0ubuntu1", "595.91.07-1"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module", params=playing.ONE_BY_DEFAULT)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host whose driver is there, and whose toolkits are not."""
    os_name, work = request.param, tmp_path_factory.mktemp("cuda")
    kind, none = format_of(os_name), work / "empty"
    none.touch()
    offered = [package for version in (*TOOLKITS, *OTHERS) for package in cuda(version, none)]
    offered += [StandIn(LIBRARY[kind], NCCL), StandIn(DRIVER, VENDOR)]
    repository = playing.unpacked(os_name, work, offered)
    if kind == "deb":
        built = deb.build(StandIn(DRIVER, DISTRIBUTION), work / "host/srv")
        answer = system.host(work / "host").run(["dpkg", "--install", f"/srv/{built.name}"])
        assert answer.code == 0, answer.said
    wishes = {
        "bedplate_driver": {"branch": "580", "flavour": "open", "source": SOURCE[kind]},
        "bedplate_cuda": list(TOOLKITS),
        "nvidia_driver_repository": repository,
        "cuda_toolkit_libraries": {LIBRARY[kind]: NCCL},
    }
    place = playing.planned(os_name, work, wishes)
    pool = yaml.safe_load((place / ".bedplate.lock.yml").read_text())["pools"]["pool_one"]
    assert sorted(pool["cuda_toolkit"]) == sorted(TOOLKITS)
    assert not [part for part in pool.get("not_yet", []) if part.startswith("cuda-on")]
    return place


def play(site: Path, *arguments: str, **variables: object) -> tuple[int, str]:
    """Install the toolkits: how many tasks changed something (-1: failed), and what was said."""
    if format_of(playing.system_of(site)) == "rpm":
        # The driver's role is not played here, and would have offered it.
        variables["cuda_toolkit_offer_repository"] = True
    return playing.play(site, "cuda_toolkit", "install", *arguments, **variables)


def toolkits(site: Path) -> dict[str, str]:
    """Versions of the toolkits' packages that are installed, without epochs."""
    found = playing.installed(site)
    return {n: v.removeprefix("0:") for n, v in found.items() if n.startswith("cuda-toolkit-")}


def test_check_mode_changes_nothing_and_says_what_would(site: Path) -> None:
    changed, said = play(site, "--check", "--diff")
    assert changed > 0, said
    assert "bedplate-nvidia" in said
    assert "cuda-toolkit-12-9" in said
    assert toolkits(site) == {}


def test_the_locks_toolkits_are_installed_once_and_held(site: Path) -> None:
    changed, said = play(site)
    assert changed > 0, said
    assert toolkits(site) == {"cuda-toolkit-12-9": "12.9.1-1", "cuda-toolkit-12-6": "12.6.3-1"}
    library = LIBRARY[format_of(playing.system_of(site))]
    assert playing.installed(site)[library].removeprefix("0:") == NCCL
    for name in (*toolkits(site), library):
        assert playing.held(site, name), name
    changed, said = play(site)
    assert changed == 0, said


def test_the_repository_is_recorded_for_a_reset(site: Path) -> None:
    record = owned.load(system.host(site.parent / "host"))
    mine = {path for path, entry in record.items() if "bedplate-nvidia" in path}
    assert len(mine) >= 2
    assert {record[path]["role"] for path in mine} == {"nvidia_driver"}


def test_the_driver_stays_the_distributions(site: Path) -> None:
    """The vendor's repository has a newer one, which an upgrade must not take."""
    host = system.host(site.parent / "host")
    if format_of(playing.system_of(site)) == "deb":
        assert playing.installed(site)[DRIVER] == DISTRIBUTION
        answer = host.run(["apt-get", "--simulate", "dist-upgrade"])
        assert answer.code == 0, answer.said
        assert DRIVER not in answer.out
    else:
        # Of the vendor's streams, were there any here, none is chosen.
        answer = host.run(["dnf", "--quiet", "module", "list"])
        assert "[e]" not in answer.out.partition("Hint")[0]


def test_another_build_of_a_release_takes_its_place_with_its_parts(site: Path) -> None:
    """The parts count their own versions, and their repository stands behind what is there."""
    changed, said = play(site, cuda_toolkit_versions=["12.9.0", "12.6.3"])
    assert changed > 0, said
    assert toolkits(site) == {"cuda-toolkit-12-9": "12.9.0-1", "cuda-toolkit-12-6": "12.6.3-1"}
    host = system.host(site.parent / "host")
    answer = host.run(BACK[format_of(playing.system_of(site))])
    assert answer.code == 0, answer.said
    changed, said = play(site)
    assert changed > 0, said
    assert toolkits(site)["cuda-toolkit-12-9"] == "12.9.1-1"
    assert playing.installed(site)[PART].removeprefix("0:") == "12.9.41-1"


def test_a_toolkit_that_nobody_offers_changes_nothing(site: Path) -> None:
    before = playing.installed(site)
    changed, said = play(site, cuda_toolkit_versions=["12.8.1"])
    assert changed == -1
    assert "cuda-toolkit-12-8" in said
    assert playing.installed(site) == before


def test_a_reset_takes_the_repository_away_and_leaves_the_toolkits(site: Path) -> None:
    host, before = system.host(site.parent / "host"), toolkits(site)
    mine = [path for path in owned.load(host) if "bedplate-nvidia" in path]
    changed, said = playing.play(site, "nvidia_driver", "remove")
    assert changed > 0, said
    assert [path for path in mine if host.read(path) is not None] == []
    assert toolkits(site) == before
    changed, said = playing.play(site, "nvidia_driver", "remove")
    assert changed == 0, said
    changed, said = play(site)
    assert changed > 0, said
    assert all(host.read(path) for path in mine)
