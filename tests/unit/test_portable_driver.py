"""What a host is told whose module does not load, and what a change of modules stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import nvidia, os_release
from bedplate.portable.driver import state as driver
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RELEASE = "6.1.0-37-amd64"


def test_missing_headers_are_the_way_out(tmp_path: Path) -> None:
    assert driver.way_out(Host(str(tmp_path)), RELEASE).startswith(
        "Install linux-headers-6.1.0-37-amd64, "
    )


def test_with_headers_the_build_or_the_signature_is_to_blame(tmp_path: Path) -> None:
    (tmp_path / f"lib/modules/{RELEASE}/build").mkdir(parents=True)
    assert driver.way_out(Host(str(tmp_path)), RELEASE).startswith("See 'dkms status'")


def test_nouveau_is_to_blame_only_where_it_holds_a_card(tmp_path: Path) -> None:
    bound = tmp_path / "sys/bus/pci/drivers/nouveau"
    bound.mkdir(parents=True)
    (bound / "uevent").touch()
    assert "nouveau" not in driver.way_out(Host(str(tmp_path)), RELEASE)
    (bound / "0000:3b:00.0").mkdir()
    assert driver.way_out(Host(str(tmp_path)), RELEASE).startswith("Reboot the host")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("ID=debian\nVERSION_ID=13\n", "Debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "Debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "RedHat"),
        ("ID=rhel\n", "RedHat"),
        ("ID=opensuse\n", ""),
    ],
)
def test_the_family_says_how_packages_are_installed(
    tmp_path: Path, release: str, expected: str
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release)
    assert os_release.family(Host(str(tmp_path))) == expected


def test_what_holds_the_gpus_is_stopped_for_a_change_and_started_again(tmp_path: Path) -> None:
    said: list[str] = []

    def run(argv: Sequence[str], *_: object) -> Result:
        said.append(" ".join(argv))
        running = {"nvidia-fabricmanager", "nvidia-persistenced"}
        if "is-active" in argv:
            return Result(0 if argv[-1] in running else 3, "", "")
        return Result(1 if argv[0] == "rmmod" else 0, "", "rmmod: in use")

    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    before = nvidia.LoadedModule("535.1", "proprietary", simulated=False)
    done = driver.exchange(Host(str(tmp_path), run), before, "550.1", "open")
    assert done.in_use == "rmmod nvidia: rmmod: in use"
    changes = [line for line in said if "is-active" not in line]
    assert changes == [
        "systemctl stop nvidia-fabricmanager",
        "systemctl stop nvidia-persistenced",
        "rmmod nvidia",
        "systemctl start nvidia-persistenced",
        "systemctl start nvidia-fabricmanager",
    ]
