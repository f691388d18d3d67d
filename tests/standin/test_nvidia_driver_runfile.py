"""Role nvidia_driver with NVIDIA's installer: brought, run, exchanged for packages and back.

The installer is a stand-in that leaves what the real one does, and notes how it was called. The
kernel module and the GPUs are not looked at here.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver.record import Driver
from tests.standin import playing
from tests.substrate import proxy
from tests.substrate.standin import StandIn, driver_packages, system
from tests.substrate.standin.packages import pins

if TYPE_CHECKING:
    from pathlib import Path

OS = "ubuntu-24.04"
VERSION, NEWER, PACKAGED = "580.178.04", "595.91.07", "580.126.20"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
INSTALLER = """#!/bin/sh
echo "install {version} $*" >> /var/log/calls
if [ -e /broken ]; then
    echo 'ERROR: Unable to build the module' > /var/log/nvidia-installer.log
    exit 1
fi
touch {libraries}/libnvidia-ml.so.{version}
ln -sf libnvidia-ml.so.{version} {libraries}/libnvidia-ml.so.1
cat > /usr/bin/nvidia-uninstall << END
#!/bin/sh
echo "uninstall {version} \\$*" >> /var/log/calls
rm {libraries}/libnvidia-ml.so.{version} {libraries}/libnvidia-ml.so.1 /usr/bin/nvidia-uninstall
END
chmod 755 /usr/bin/nvidia-uninstall
"""

#: Two minutes: run them with `make prove AREA=standin`.
pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host, to which the vendor's packages are offered as well."""
    work = tmp_path_factory.mktemp("runfile")
    packages = driver_packages(OS, [PACKAGED])
    repository = playing.unpacked(OS, work, packages)
    place = playing.planned(OS, work, {"nvidia_driver_repository": repository})
    playing.distribution(place, [playing.headers(), StandIn("dkms", "3.0-1")])
    return place


def installer(site: Path, version: str) -> dict[str, object]:
    """Write a stand-in installer on the control side; the variables that wish for it."""
    file = site.parent / f"NVIDIA-Linux-x86_64-{version}.run"
    file.write_text(INSTALLER.format(version=version, libraries=LIBRARIES), encoding="utf-8")
    return {
        "nvidia_driver_source": "runfile",
        "nvidia_driver_version": version,
        "nvidia_driver_flavour": "open",
        "nvidia_driver_packages": {},
        "nvidia_driver_runfile_src": str(file),
        "nvidia_driver_runfile_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def by_address(site: Path, version: str) -> dict[str, object]:
    """The same installer, at an address that is reached through a proxy alone."""
    wish = installer(site, version)
    name = str(wish["nvidia_driver_runfile_src"]).rpartition("/")[2]
    return wish | {"nvidia_driver_runfile_src": f"{proxy.BEHIND}/{name}"}


def play(site: Path, *arguments: str, **variables: object) -> tuple[int, str]:
    changed, said = playing.play(site, "nvidia_driver", "install", *arguments, **variables)
    return changed, " ".join(said.split())


def calls(site: Path) -> list[str]:
    """What the installers were called with since the last time that this was asked."""
    log = site.parent / "host/var/log/calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def seen_to_work(site: Path, version: str, source: str, packages: dict[str, str]) -> None:
    """Have it recorded, as the role does once the module is loaded and the GPUs answer."""
    host = system.host(site.parent / "host")
    driver = Driver(version, "open", source, os.uname().release, packages)
    works = driver_record.works(driver_record.read(host), driver)
    host.write(driver_record.PATH, driver_record.render(works))


def test_check_mode_brings_nothing(site: Path) -> None:
    changed, said = play(site, "--check", **installer(site, VERSION))
    assert changed > 0, said
    assert calls(site) == []
    assert not (site.parent / "host/var/lib/bedplate").exists()


def test_another_file_than_the_digests_is_never_run(site: Path) -> None:
    wish = installer(site, VERSION) | {"nvidia_driver_runfile_sha256": "0" * 64}
    changed, said = play(site, **wish)
    assert changed == -1
    assert "is not the expected one" in said
    assert calls(site) == []


def test_the_installer_runs_once_with_what_it_compiles_with(site: Path) -> None:
    wish, host = by_address(site, VERSION), system.host(site.parent / "host")
    kept = site.parent / f"host/var/lib/bedplate/driver/{VERSION}.run"
    kept.unlink()  # brought before another digest was asked for
    changed, said = play(site, "--check", **wish)
    assert changed > 0, said
    changed, said = play(site, **wish)
    assert (changed, calls(site)) == (-1, []), said
    assert f"the download failed — {wish['nvidia_driver_runfile_src']} — got " in said
    with proxy.proxy(site.parent) as variables:
        host.write("/etc/bedplate/proxy.env", proxy.written(variables), 0o600)
        changed, said = play(site, **wish)
    host.remove("/etc/bedplate/proxy.env")
    assert changed > 0, said
    assert kept.stat().st_mode & 0o7777 == 0o600
    (call,) = calls(site)
    assert call.startswith(f"install {VERSION} --silent --dkms ")
    assert call.endswith("--kernel-module-type=open")
    assert {"dkms", f"linux-headers-{os.uname().release}"} <= set(playing.installed(site))
    seen_to_work(site, VERSION, "runfile", {})
    changed, said = play(site, **wish)
    assert (changed, calls(site)) == (0, []), said


def test_packages_take_the_place_of_the_installers_driver_and_back(site: Path) -> None:
    packages = pins(OS, PACKAGED, "open")
    packaged = {
        "nvidia_driver_version": PACKAGED,
        "nvidia_driver_flavour": "open",
        "nvidia_driver_packages": packages,
    }
    changed, said = play(site, **packaged)
    assert changed > 0, said
    assert calls(site) == [f"uninstall {VERSION} --silent"]
    assert packages.items() <= playing.installed(site).items()
    seen_to_work(site, PACKAGED, "vendor-repo", packages)
    changed, said = play(site, **installer(site, NEWER))
    assert changed > 0, said
    assert [call.split()[:2] for call in calls(site)] == [["install", NEWER]]
    assert not set(packages) & set(playing.installed(site))
    seen_to_work(site, NEWER, "runfile", {})


def test_an_installer_that_fails_is_told_by_its_log(site: Path) -> None:
    broken = site.parent / "host/broken"
    broken.touch()
    changed, said = play(site, **installer(site, VERSION))
    broken.unlink()
    assert changed == -1
    assert "NVIDIA's installer failed" in said
    assert "ERROR: Unable to build the module" in said
