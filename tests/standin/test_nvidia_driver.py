"""Role nvidia_driver with the vendor's repository: installed, exchanged and held by apt and by dnf.

Systems and packages are stand-ins: the kernel module and the GPUs are not looked at here.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.standin import playing
from tests.substrate.standin import driver_packages, system
from tests.substrate.standin.packages import ORIGIN, StandIn, format_of, pins
from tests.substrate.standin.signing import PUBLIC

if TYPE_CHECKING:
    from pathlib import Path

FIRST = ("580.178.04", "open")
#: Another version, branch (whose packages have other names on Ubuntu) and flavour, and back.
STEPS = [("580.126.20", "open"), ("595.91.07", "open"), ("595.91.07", "proprietary"), FIRST]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module", params=playing.SYSTEMS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host: a stand-in system with the vendor's repository on it."""
    os_name, work = request.param, tmp_path_factory.mktemp("role")
    versions = {FIRST[0], *(version for version, _ in STEPS)}
    repository = playing.unpacked(os_name, work, driver_packages(os_name, versions))
    return playing.planned(os_name, work, {"nvidia_driver_repository": repository})


def play(site: Path, *arguments: str, **variables: object) -> tuple[int, str]:
    """Install the driver: how many tasks changed something (-1: failed), and what was said."""
    return playing.play(site, "nvidia_driver", "install", *arguments, **variables)


def driver(version: str, flavour: str, os_name: str) -> dict[str, object]:
    """Variables that wish for another driver than the lock's."""
    packages = pins(os_name, version, flavour)
    return {
        "nvidia_driver_version": version,
        "nvidia_driver_flavour": flavour,
        "nvidia_driver_packages": packages,
    }


def installed(site: Path) -> dict[str, str]:
    """Versions of all the driver's packages that are installed."""
    found = playing.installed(site)
    return {name: found[name] for name in found if re.match(r"(lib|kmod-)?nvidia", name)}


def test_check_mode_changes_nothing_and_says_what_would(site: Path) -> None:
    changed, said = play(site, "--check", "--diff")
    assert changed > 0, said
    assert installed(site) == {}
    assert "bedplate-nvidia" in said


def test_a_key_that_nobody_trusts_changes_nothing(site: Path) -> None:
    folder = f"file:///{playing.REPOSITORY}/"
    wrong = {"url": folder, "key": folder + PUBLIC, "origin": ORIGIN, "fingerprint": "0" * 40}
    _, said = play(site, nvidia_driver_repository=wrong)
    assert "the repository's key is another one" in " ".join(said.split())
    assert installed(site) == {}


def test_the_locks_driver_is_installed_once(site: Path) -> None:
    rpm = format_of(playing.system_of(site)) == "rpm"
    # What draws in each new kernel is there; a driver is built for those too.
    others = [StandIn("linux-image-generic", "1-1"), StandIn("linux-headers-generic", "1-1")]
    here = [playing.devel(), StandIn("dkms", "3.2.1-1")] if rpm else [playing.headers(), *others]
    if rpm:  # EPEL has dkms there, which not every host is offered
        playing.distribution(site, here[:1])
        _, said = play(site)
        assert "no repository has dkms, which builds the driver's module" in " ".join(said.split())
        assert installed(site) == {}
    playing.distribution(site, here)
    if not rpm:
        host = system.host(site.parent / "host")
        assert host.run(["apt-get", "update"], 120).code == 0
        assert host.run(["apt-get", "install", "--yes", "linux-image-generic"], 120).code == 0
    changed, said = play(site)
    assert changed > 0, said
    assert installed(site) == pins(playing.system_of(site), *FIRST)
    brought = {"dkms", here[0].name} if rpm else {here[0].name, "linux-headers-generic"}
    assert brought <= set(playing.installed(site))
    changed, said = play(site)
    assert changed == 0, said


def test_branch_and_flavour_change_and_nothing_is_left(
    site: Path, figures: dict[str, dict[str, float]]
) -> None:
    os_name = playing.system_of(site)
    for version, flavour in STEPS:
        changed, said = play(site, **driver(version, flavour, os_name))
        assert changed > 0, said
        assert installed(site) == pins(os_name, version, flavour)
        upgrade = ["apt-get", "--simulate", "dist-upgrade"]
        argv = upgrade if format_of(os_name) == "deb" else ["dnf", "--assumeno", "upgrade"]
        plan = system.host(site.parent / "host").run(argv, 120)
        assert "nvidia" not in plan.out.split("following packages have been kept back", 1)[0]
    figures[f"changes of the driver on stand-ins of {os_name}"] = {"steps": len(STEPS)}
