"""What a host is told whose driver's module does not load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import driver
from bedplate.portable.host import Host

if TYPE_CHECKING:
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
    assert driver.family(Host(str(tmp_path))) == expected
