"""NVIDIA's installer, by a stand-in that leaves what the real one does and notes its calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver import runfile as driver_runfile
from bedplate.portable.driver.record import Driver, Record
from bedplate.portable.host import Host

ROLE = Path(__file__).parents[2] / "roles" / "nvidia_driver" / "vars" / "main.yml"
KNOWN = yaml.safe_load(ROLE.read_text())["__nvidia_driver_runfile_flavours"]
FOLDER = "/var/lib/bedplate/driver"
#: {root} is the host's root; what it does beside that is what the real one documents.
STAND_IN = """\
echo "$@" >> {root}/calls
mkdir -p {root}/usr/bin {root}/usr/lib/x86_64-linux-gnu {root}/var/log
[ ! -e {root}/broken ] || {{ echo 'ERROR: Unable to build the module' > {root}{log}; exit 1; }}
ln -sf libnvidia-ml.so.{version} {root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
touch {root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}
printf '#!/bin/sh\\necho uninstall "$@" >> {root}/calls\\nrm %s %s\\n' \\
  '{root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*' {root}/usr/bin/nvidia-uninstall \\
  > {root}/usr/bin/nvidia-uninstall
chmod 755 {root}/usr/bin/nvidia-uninstall
"""


def installer(root: Path, version: str) -> str:
    """Put a stand-in for a version on the host; its path there."""
    name = f"{FOLDER}/{version}.run"
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(STAND_IN.format(root=root, version=version, log=driver_runfile.LOG))
    return name


def test_installed_once_and_taken_away_before_another(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    path = installer(tmp_path, "580.95.05")
    assert driver_runfile.wanted(host, "580.95.05")
    options = driver_runfile.arguments("580.95.05", "open", "6.1", KNOWN)
    assert options[-2:] == ["--kernel-name=6.1", "--kernel-module-type=open"]
    assert driver_runfile.install(host, path, "580.95.05", options) is None
    assert driver_runfile.installed(host) == "580.95.05"
    assert not driver_runfile.wanted(host, "580.95.05")
    assert driver_runfile.wanted(host, "570.1")
    assert driver_runfile.uninstall(host) is None
    assert driver_runfile.installed(host) == ""
    assert (tmp_path / "calls").read_text().splitlines() == [
        " ".join(options),
        "uninstall --silent",
    ]


def test_a_run_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    driver_runfile.install(host, installer(tmp_path, "580.1"), "580.1", [])
    wished = Driver("580.1", "open", "runfile", "6.1", {})
    host.write(driver_record.PATH, driver_record.render(driver_record.begun(Record(), wished)))
    assert driver_runfile.wanted(host, "580.1")


def test_a_failed_installer_is_told_by_its_log(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "broken").touch()
    assert driver_runfile.install(host, installer(tmp_path, "580.1"), "580.1", []) == (
        "ERROR: Unable to build the module (/var/log/nvidia-installer.log)"
    )


def test_an_installer_that_brings_another_version_has_failed(tmp_path: Path) -> None:
    said = driver_runfile.install(
        Host(str(tmp_path)), installer(tmp_path, "580.1"), "580.2", ["--silent"]
    )
    assert said == "it ended well, and 580.1 is installed"


@pytest.mark.parametrize(
    ("version", "flavour", "expected"),
    [
        ("470.256.02", "proprietary", []),
        ("535.309.01", "open", ["--kernel-module-build-directory=kernel-open"]),
        ("559.1", "proprietary", ["--kernel-module-build-directory=kernel"]),
        ("560.35.05", "proprietary", ["--kernel-module-type=proprietary"]),
        ("1000.1", "open", ["--kernel-module-type=open"]),
    ],
)
def test_flavours_are_asked_for_as_the_version_knows_it(
    version: str, flavour: str, expected: list[str]
) -> None:
    assert driver_runfile.arguments(version, flavour, "", KNOWN)[4:] == expected


@pytest.mark.parametrize(("version", "flavour"), [("470.256.02", "open"), ("304.1", "proprietary")])
def test_a_flavour_that_a_version_lacks_is_refused(version: str, flavour: str) -> None:
    with pytest.raises(ValueError, match=f"the installer of {version} has no {flavour}"):
        driver_runfile.arguments(version, flavour, "", KNOWN)


def test_what_may_go(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    installer(tmp_path, "580.1")
    installer(tmp_path, "570.1")
    assert driver_runfile.superfluous(host, FOLDER, ["580.1"]) == [f"{FOLDER}/570.1.run"]
