"""NVIDIA's installer, by a stand-in that leaves what the real one does and notes its calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.modules import (
    nvidia_driver_runfile,
    nvidia_driver_state,
)

from bedplate.portable import files, nvidia
from bedplate.portable.driver import foreign as driver_foreign
from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver import runfile as driver_runfile
from bedplate.portable.driver.record import Driver, Record
from bedplate.portable.host import Host, Result
from tests.unit.module_answers import answer

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    assert driver_runfile.wanted(host, "580.95.05", "open")
    options = driver_runfile.arguments("580.95.05", "open", "6.1", KNOWN)
    assert options[-2:] == ["--kernel-name=6.1", "--kernel-module-type=open"]
    assert driver_runfile.install(host, path, "580.95.05", options) is None
    assert driver_runfile.installed(host) == "580.95.05"
    assert not driver_runfile.wanted(host, "580.95.05", "open")
    assert driver_runfile.wanted(host, "570.1", "open")
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
    assert driver_runfile.wanted(host, "580.1", "open")


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        (Result(0, "NVIDIA\n", ""), True),
        (Result(0, "Dual MIT/GPL\n", ""), False),
        # Of another kernel, or none is built yet: nobody knows.
        (Result(1, "", "modinfo: ERROR: Module nvidia not found."), False),
    ],
)
def test_the_other_flavour_of_a_version_is_another_driver(
    tmp_path: Path, said: Result, runs: bool
) -> None:
    driver_runfile.install(Host(str(tmp_path)), installer(tmp_path, "580.1"), "580.1", [])
    host = Host(str(tmp_path), lambda *_: said)
    assert driver_runfile.wanted(host, "580.1", "open") == runs
    assert driver_runfile.other_flavour(host, "580.1", "open") == runs
    assert not driver_runfile.other_flavour(host, "580.2", "open")


def test_the_daemons_unit_goes_with_the_installers_driver(tmp_path: Path) -> None:
    called = []

    def runner(argv: Sequence[str], *_: object) -> Result:
        called.append(" ".join(argv))
        return Result(0, "", "")

    host = Host(str(tmp_path), runner)
    unit = tmp_path / driver_runfile.UNIT.lstrip("/")
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/nvidia-persistenced\n")
    driver_runfile.take_daemon_away(host)
    assert called == []  # somebody's own
    ours = (ROLE.parents[1] / "templates" / "nvidia-persistenced.service.j2").read_text()
    assert not files.ensure_files(host, [files.File(driver_runfile.UNIT, ours)]).problems
    assert unit.read_text() == ours
    driver_runfile.take_daemon_away(host)
    # What was there before comes back.
    assert unit.read_text() == "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n"
    assert called == [
        "systemctl disable --now nvidia-persistenced.service",
        "systemctl daemon-reload",
    ]
    driver_runfile.take_daemon_away(host)
    assert len(called) == 2


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
    ("recorded", "version", "licence", "foreign"),
    [
        ("", "580.1", "", False),
        ("", "580.1", "Dual MIT/GPL", False),
        ("", "580.1", "NVIDIA", True),
        ("", "570.1", "", True),
        ("580.1", "570.1", "", False),
        ("580.1", "580.1", "NVIDIA", False),
    ],
)
def test_a_driver_that_somebody_else_installed_is_not_exchanged_unasked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: str,
    version: str,
    licence: str,
    foreign: bool,
) -> None:
    driver_runfile.install(Host(str(tmp_path)), installer(tmp_path, "580.1"), "580.1", [])

    def runner(argv: Sequence[str], *_: object) -> Result:
        asked = argv[0] == "modinfo" and bool(licence)
        return Result(0, licence + "\n", "") if asked else Result(1, "", "")

    host = Host(str(tmp_path), runner)
    if recorded:
        ours = Driver(recorded, "open", "runfile", "6.1", {})
        record = driver_record.works(driver_record.begun(Record(), ours), ours)
        host.write(driver_record.PATH, driver_record.render(record))
    wish = {"version": version, "flavour": "open", "source": "runfile", "packages": {}}
    wish |= {"marks": [driver_foreign.UNINSTALLER], "module_options": {}, "unheld": False}
    wish |= {"remove_foreign": False, "change_joined": False}
    said = answer(monkeypatch, nvidia_driver_state, host, **wish)["foreign"]
    assert said == (
        "/usr/bin/nvidia-uninstall (of no package: NVIDIA's installer)" if foreign else ""
    )


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("held", ["", "rmmod: ERROR: Module nvidia is in use"])
def test_the_module_goes_before_the_installer_or_all_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, check: bool
) -> None:
    version = tmp_path / nvidia.PROC_VERSION.lstrip("/")
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1  Tue Jun 24\n")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    called: list[str] = []

    def runner(argv: Sequence[str], *_: object) -> Result:
        called.append(" ".join(argv))
        return Result(int(bool(held) and argv[0] == "rmmod"), "", held)

    host = Host(str(tmp_path), runner)
    said = answer(
        monkeypatch,
        nvidia_driver_runfile,
        host,
        state="unloaded",
        version="",
        flavour="open",
        check=check,
    )
    assert said["in_use"] == ("" if check or not held else f"rmmod nvidia: {held}")
    assert said["changed"] == (check or not held)
    assert ("rmmod nvidia" in called) == (not check)
    started = [one for one in called if one.startswith("systemctl stop")]
    assert bool(started) == (not check)


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
