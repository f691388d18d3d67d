"""Role nvidia_container_toolkit with NVIDIA's repository: exact versions, held.

Systems and packages are stand-ins: no runtime is started, and no GPU is described here.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from tests.standin import playing
from tests.substrate.images import deb
from tests.substrate.standin.packages import StandIn, format_of

if TYPE_CHECKING:
    from pathlib import Path

VERSION, NEWER = "1.20.1", "1.21.0"
NAMES = (
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-toolkit-base",
    "nvidia-container-toolkit",
)
PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook")
HOOK = "nvidia-container-runtime-hook"
UNPACKED = "srv/files"
JOINED = "etc/kubernetes/kubelet.conf"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


def packages() -> list[StandIn]:
    """Two versions of NVIDIA's four packages, each tied to the others of its version."""
    found = []
    for version in (f"{VERSION}-1", f"{NEWER}-1"):
        libraries, tools, base, hook = NAMES
        found += [
            StandIn(libraries, version),
            StandIn(tools, version, {libraries: version}),
            StandIn(base, version, files={"/usr/bin/nvidia-ctk": "#!/bin/false\n"}),
            StandIn(hook, version, {base: version, tools: version}),
        ]
    return found


@pytest.fixture(scope="module", params=playing.SYSTEMS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one host that takes the toolkit from a repository with a newer version too."""
    os_name, work = request.param, tmp_path_factory.mktemp("toolkit")
    repository = playing.unpacked(os_name, work, packages())
    settings = {
        "nvidia_container_toolkit_source": "vendor-repo",
        # The stand-in's packages are signed, and its dnf index is not.
        "nvidia_container_toolkit_repository": repository | {"signed_index": False},
    }
    return playing.written(os_name, work, settings)


def play(
    site: Path, *arguments: str, version: str = VERSION, entry: str = "install", **others: object
) -> tuple[int, str]:
    """Install the toolkit: how many tasks changed something (-1: failed), and what was said."""
    known: dict[str, object] = {
        "nvidia_container_toolkit_version": version,
        "nvidia_container_toolkit_engine": "containerd",
        "nvidia_container_toolkit_gpus": [],
        "nvidia_container_toolkit_probe_image": "",
        "nvidia_container_toolkit_base_archive": {},
        "nvidia_container_toolkit_archive": {},
    }
    known |= others
    return playing.play(site, "nvidia_container_toolkit", entry, *arguments, **known)


def unpacked(site: Path) -> dict[str, object]:
    """Settings that take the programs out of two Debian packages, which lie on the host."""
    place = site.parent / "host" / UNPACKED
    place.mkdir(parents=True, exist_ok=True)
    program = site.parent / "program"
    program.write_text("#!/bin/false\n")
    archives = {"base_archive": NAMES[2], "archive": NAMES[3]}
    programs = {NAMES[2]: (*PROGRAMS, "nvidia-container-runtime"), NAMES[3]: (HOOK,)}
    found: dict[str, object] = {"nvidia_container_toolkit_source": "archive"}
    for variable, name in archives.items():
        file = place / f"{name}_{VERSION}-1_amd64.deb"
        deb.pack(
            file, name, f"{VERSION}-1", [(f"usr/bin/{one}", program) for one in programs[name]]
        )
        found[f"nvidia_container_toolkit_{variable}"] = {
            "version": VERSION,
            "url": f"file:///{UNPACKED}/{file.name}",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
    return found


def test_programs_are_unpacked_on_every_system(site: Path) -> None:
    """Out of Debian packages, on Red Hat's family too; the package manager knows nothing of it."""
    wanted = unpacked(site)
    changed, said = play(site, entry="validate", **wanted)
    assert changed == 0, said
    changed, said = play(site, entry="validate", version=NEWER, **wanted)
    assert changed == -1, said
    told = " ".join(said.split())
    assert f"got {VERSION} / allowed {NEWER} — Name both packages of that version" in told
    changed, said = play(site, **wanted)
    assert changed > 0, said
    host = site.parent / "host"
    for name in PROGRAMS:
        link = (host / "usr/local/bin" / name).readlink()
        assert link.as_posix() == f"/opt/bedplate/{NAMES[2]}/{VERSION}/usr/bin/{name}"
        assert (host / link.relative_to("/")).stat().st_mode & 0o777 == 0o755
    assert (host / "usr/local/bin" / HOOK).readlink().parts[3] == NAMES[3]
    assert versions(site) == set()
    changed, said = play(site, **wanted)
    assert changed == 0, said


def versions(site: Path) -> set[str]:
    """The versions of the toolkit's packages that are there, without an epoch."""
    found = playing.installed(site)
    return {found[name].removeprefix("0:") for name in NAMES if name in found}


def test_the_version_that_is_set_is_installed_once_and_held(site: Path) -> None:
    changed, said = play(site, "--check")
    assert changed > 0, said
    assert versions(site) == set()
    changed, said = play(site)
    assert changed > 0, said
    assert versions(site) == {f"{VERSION}-1"}
    assert all(playing.held(site, name) for name in NAMES)
    host = site.parent / "host"
    folder = "apt/sources.list.d" if format_of(playing.system_of(site)) == "deb" else "yum.repos.d"
    assert list((host / "etc" / folder).glob("bedplate-nvidia-container-toolkit*"))
    changed, said = play(site)
    assert changed == 0, said


def test_a_cluster_node_keeps_its_version_until_the_upgrade(site: Path) -> None:
    conf = site.parent / "host" / JOINED
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("joined\n")
    changed, said = play(site, version=NEWER)
    assert changed == 0, said
    told = " ".join(said.split())
    assert "deferred until the node is drained" in told
    assert f"nvidia-container-toolkit-base {NEWER}-1" in told.replace("0:", "")
    assert versions(site) == {f"{VERSION}-1"}
    conf.unlink()
    changed, said = play(site, version=NEWER)
    assert changed > 0, said
    assert versions(site) == {f"{NEWER}-1"}
