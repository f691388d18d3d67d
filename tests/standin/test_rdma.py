"""Role rdma with the maker's repository, by apt and by dnf: systems and packages are stand-ins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import owned, removal
from tests.standin import playing
from tests.substrate.standin import system
from tests.substrate.standin.packages import StandIn, format_of

if TYPE_CHECKING:
    from pathlib import Path

#: A library that the distribution has as well, and that the stack wants of its own build.
LIBRARY = {"deb": "libibverbs1", "rpm": "libibverbs"}
THEIRS, DISTRIBUTION = "2507.0-1", "9000.0-1"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module", params=playing.ONE_BY_DEFAULT)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host that may have the stack from two repositories."""
    os_name, work = request.param, tmp_path_factory.mktemp("rdma")
    library = LIBRARY[format_of(os_name)]
    stack = StandIn("doca-ofed", "3.2.0-1", needs={library: THEIRS})
    repository = playing.unpacked(os_name, work, [stack, StandIn(library, THEIRS)])
    wishes = {"bedplate_rdma": {"stack": "doca"}, "rdma_repository": repository}
    place = playing.planned(os_name, work, wishes)
    playing.distribution(place, [StandIn(library, DISTRIBUTION)])
    return place


def stack(site: Path) -> dict[str, str]:
    """What is installed of the stack, without epochs."""
    wanted = ("doca-ofed", LIBRARY[format_of(playing.system_of(site))])
    found = playing.installed(site)
    return {name: found[name].removeprefix("0:") for name in wanted if name in found}


def ours(site: Path) -> list[str]:
    """The files of the repository that are recorded."""
    record = owned.load(system.host(site.parent / "host"))
    return [path for path, entry in record.items() if entry["role"] == "rdma"]


def test_check_mode_says_what_would_be_offered(site: Path) -> None:
    changed, said = playing.play(site, "rdma", "install", "--check", "--diff")
    assert changed > 0, said
    assert "bedplate-rdma" in said
    assert stack(site) == {}
    assert ours(site) == []


def test_the_stack_comes_with_libraries_of_its_own_once(site: Path) -> None:
    changed, said = playing.play(site, "rdma", "install")
    assert changed > 0, said
    library = LIBRARY[format_of(playing.system_of(site))]
    assert stack(site) == {"doca-ofed": "3.2.0-1", library: THEIRS}
    changed, said = playing.play(site, "rdma", "install")
    assert changed == 0, said


def test_a_repository_that_is_no_longer_wished_goes(site: Path) -> None:
    host, mine = system.host(site.parent / "host"), ours(site)
    assert len(mine) >= 2
    no_more = {"rdma_repository": {}, "rdma_packages": ["doca-ofed"]}
    changed, said = playing.play(site, "rdma", "install", **no_more)
    assert changed == 1, said
    assert [path for path in mine if host.exists(path)] == []
    assert ours(site) == []


def test_a_reset_takes_the_repository_away(site: Path) -> None:
    host = system.host(site.parent / "host")
    changed, said = playing.play(site, "rdma", "install")
    assert changed == 1, said
    mine = ours(site)
    assert len(mine) >= 2
    removal.files(host, [], check=False)
    assert [path for path in mine if host.exists(path)] == []
