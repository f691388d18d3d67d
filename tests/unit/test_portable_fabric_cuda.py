"""Fabric Manager and CUDA toolkits on hosts made of folders and canned answers."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import cuda, fabric
from bedplate.portable.evidence import cuda as cuda_evidence
from bedplate.portable.evidence import fabric as fabric_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLE = Path(__file__).parents[2] / "roles/nvidia_fabric/vars/main.yml"
VERSION = "535.309.01"
FAMILIES = ["nvidia-fabricmanager", "libnvidia-nscq"]
SERVICE = "nvidia-fabricmanager.service"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'
PACKAGES = {"nvidia-fabricmanager": f"{VERSION}-1", "libnvidia-nscq": f"{VERSION}-1"}


class Machine:
    """A host whose packages, units, cards and loader say what a test lets them say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root), self.run)
        self.packages = dict(PACKAGES)
        self.held = set(PACKAGES)
        self.unit = {
            "ActiveState": "active",
            "UnitFileState": "enabled",
            "MainPID": "9",
            "ExecMainStartTimestampMonotonic": str(int(time.monotonic() * 1e6)),
        }
        self.cards = "0, state  Completed, status Success\n1, state  Completed, status Success\n"
        self.loader = "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        self.chosen: list[str] = []
        self.installed_at = 0
        self.write("/proc/driver/nvidia/version", f"NVRM version: x Kernel Module  {VERSION}  x\n")
        self.write("/etc/os-release", 'ID="debian"\nVERSION_ID="12"\n')

    def write(self, name: str, text: str) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, argv: Sequence[str], *_: object) -> Result:
        words = list(argv)
        if words[0] == "systemctl":
            return Result(0, self.unit[words[3].split("=")[1]] + "\n", "")
        if words[0] == "nvidia-smi":
            return Result(0, self.cards, "")
        if words[0] == "ldconfig":
            return Result(0, self.loader, "")
        if words[0] == "update-alternatives":
            self.chosen.append(words[1])
            return Result(0, "", "")
        if words[0] == "rpm" and "INSTALLTIME" in " ".join(words):
            return Result(1, f"{self.installed_at}\npackage libnvidia-nscq is not installed\n", "")
        if words[0] == "rpm":
            return Result(0, self.rpm(words), "")
        if words[0] == "dpkg-query" and "debian" in self.host.read("/etc/os-release"):
            return Result(0, self.dpkg(words[2]), "")
        return Result(127, "", f"{words[0]}: command not found")

    def red_hat(self) -> None:
        """Become a host without dpkg, with a lock on each held package."""
        self.write("/etc/os-release", ROCKY)
        locks = [f"{name}-0:{self.packages[name]}.x86_64\n" for name in self.held]
        self.write("/etc/dnf/plugins/versionlock.list", "".join(locks))

    def rpm(self, words: list[str]) -> str:
        """One form is for every package, the other for those that are named."""
        if "--all" in words:
            return "".join(f"{n}\t{v}\tNVIDIA\n" for n, v in self.packages.items())
        return "".join(f"{n}\t0:{v}\tx86_64\n" for n, v in self.packages.items() if n in words)

    def dpkg(self, form: str) -> str:
        """Two parts of the code ask in different forms."""
        if "db:Status-Want" in form:
            want = {name: "hold" if name in self.held else "install" for name in self.packages}
            return "".join(f"{n}\t{v}\t{want[n]}\tinstalled\n" for n, v in self.packages.items())
        return "".join(f"{n}\t{v}\tinstalled\tNVIDIA\n" for n, v in self.packages.items())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def registered(machine: Machine, **wish: object) -> dict[str, str]:
    to = Collected([], {}, {})
    given = {
        "version": VERSION,
        "driver_version": VERSION,
        "packages": PACKAGES,
        "families": FAMILIES,
        "services": [SERVICE],
        **wish,
    }
    fabric_evidence.collect(machine.host, Wishes(fabric=given), to)
    return {one["id"]: one["result"] for one in to.checks}


def test_a_healthy_board_passes(machine: Machine) -> None:
    assert set(registered(machine).values()) == {"pass"}


def test_each_fault_of_the_fabric_fails_its_check(machine: Machine) -> None:
    faults: dict[str, tuple[str, object]] = {
        "fabric.packages": ("packages", {**PACKAGES, "libnvidia-nscq": "535.1-1"}),
        "fabric.held": ("held", {"libnvidia-nscq"}),
        "fabric.services": ("unit", {**machine.unit, "ActiveState": "failed"}),
        "fabric.state": ("cards", "0, state  In Progress, status N/A\n"),
    }
    for name, (attribute, broken) in faults.items():
        well = getattr(machine, attribute)
        setattr(machine, attribute, broken)
        assert [n for n, result in registered(machine).items() if result == "fail"] == [name]
        setattr(machine, attribute, well)
    machine.write("/proc/driver/nvidia/version", "NVRM version: x Kernel Module  550.1.1  x\n")
    assert registered(machine)["fabric.version"] == "fail"


def test_on_red_hats_family_a_missing_lock_fails_too(machine: Machine) -> None:
    machine.red_hat()
    assert set(registered(machine).values()) == {"pass"}
    machine.held = {"libnvidia-nscq"}
    machine.red_hat()
    assert [n for n, result in registered(machine).items() if result == "fail"] == ["fabric.held"]


def test_cards_that_do_not_register_are_skipped(machine: Machine) -> None:
    machine.cards = "0, [N/A], [N/A]\n"
    assert registered(machine)["fabric.state"] == "skipped"


def test_a_board_without_it_has_nothing_of_another_version(machine: Machine) -> None:
    def state(driver: str) -> list[str]:
        return fabric.state(machine.host, FAMILIES, {}, driver).foreign

    assert state(VERSION) == []
    machine.packages["nvidia-fabricmanager-550"] = "550.1.1-1"
    machine.packages["nvidia-smi"] = "550.1.1-1"
    assert state(VERSION) == ["nvidia-fabricmanager-550 550.1.1-1"]
    assert registered(machine, packages={}) == {
        "fabric.foreign": "fail",
        "fabric.packages": "skipped",
    }


def process(machine: Machine, pid: int, program: str, began: int) -> None:
    """Have a process in /proc as the kernel writes it: the start is field 22 (proc(5))."""
    rest = " ".join(["S", "1", *["0"] * 17, str(began), *["0"] * 30])
    machine.write(f"/proc/{pid}/stat", f"{pid} ({program[:15]}) {rest}\n")


def test_the_subnet_manager_has_to_run_before_fabric_manager(machine: Machine) -> None:
    def found() -> tuple[str, bool]:
        result = registered(machine, subnet_manager="nvlsm")["fabric.subnet_manager"]
        again = fabric.outdated(machine.host, SERVICE, list(PACKAGES), "nvlsm")
        return result, again

    process(machine, 7, "sh (nvlsm) x", 1)
    process(machine, 9, "nv-fabricmanager", 500)
    assert found() == ("fail", True)
    assert fabric.first(machine.host, "nvlsm") == "not running"
    process(machine, 12, "nvlsm", 501)
    assert found() == ("fail", True)
    assert fabric.first(machine.host, "nvlsm") == "running, began after Fabric Manager"
    process(machine, 12, "nvlsm", 499)
    assert found() == ("pass", False)
    assert "fabric.subnet_manager" not in registered(machine)


def test_a_subnet_manager_that_nobody_asked_for_is_left_alone(machine: Machine) -> None:
    """It has versions of its own: whoever installs it by hand breaks no driver."""
    machine.packages["nvlsm"] = "2025.10.11-1"
    families = yaml.safe_load(ROLE.read_text())["__nvidia_fabric_families"]
    for wish in ({}, PACKAGES):
        assert fabric.state(machine.host, families, wish, VERSION).foreign == []
    asked = {**PACKAGES, "nvlsm": "2025.10.12-1"}
    assert fabric.state(machine.host, families, asked, VERSION).differing == ["nvlsm"]
    machine.packages["nvidia-imex"] = "550.1.1-1"
    assert fabric.state(machine.host, families, {}, VERSION).foreign == ["nvidia-imex 550.1.1-1"]


def test_what_another_branch_has_left_goes_and_is_not_foreign(machine: Machine) -> None:
    old = {"nvidia-fabricmanager-550": "550.1.1-1"}
    machine.packages |= old
    wish = {"nvidia-fabricmanager-580": f"{VERSION}-1"}
    now = fabric.state(machine.host, FAMILIES, wish, VERSION)
    assert now.foreign == []
    assert now.superseded == ["nvidia-fabricmanager", *old]
    assert registered(machine, packages=wish)["fabric.foreign"] == "fail"


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("580.95.05-1", "580.95.05"), ("3:580.95.05-1.el9", "580.95.05"), ("535.1~deb12", "535.1")],
)
def test_the_drivers_version_in_a_packages(version: str, upstream: str) -> None:
    assert fabric.upstream(version) == upstream


def test_a_service_older_than_its_package_is_outdated(machine: Machine) -> None:
    began = time.time()
    listed = machine.write("/var/lib/dpkg/info/nvidia-fabricmanager.list", "")
    os.utime(listed, (began - 60, began - 60))
    assert not fabric.outdated(machine.host, SERVICE, list(PACKAGES))
    os.utime(listed, (began + 60, began + 60))
    assert fabric.outdated(machine.host, SERVICE, list(PACKAGES))
    machine.unit["MainPID"] = "0"
    assert not fabric.outdated(machine.host, SERVICE, list(PACKAGES))


def test_on_red_hats_family_rpm_tells_when_a_package_came(machine: Machine) -> None:
    machine.red_hat()
    began = int(time.time())
    machine.installed_at = began - 60
    assert not fabric.outdated(machine.host, SERVICE, list(PACKAGES))
    machine.installed_at = began + 60
    assert fabric.outdated(machine.host, SERVICE, list(PACKAGES))


# ---- CUDA


def toolkit(machine: Machine, version: str) -> Path:
    text = json.dumps({"cuda": {"version": version}})
    return machine.write(cuda.folder(version) + "/version.json", text).parent


def link(machine: Machine, target: Path) -> None:
    alternative = machine.root / "etc/alternatives/cuda"
    alternative.parent.mkdir(parents=True)
    alternative.symlink_to(target)
    (machine.root / "usr/local/cuda").symlink_to(alternative)


def test_toolkits_side_by_side_and_the_default(machine: Machine) -> None:
    new = toolkit(machine, "12.9.1")
    toolkit(machine, "12.6.3")
    assert cuda.installed(machine.host) == {"12.9": "12.9.1", "12.6": "12.6.3"}
    assert cuda.default(machine.host) is None
    link(machine, new)
    assert cuda.default(machine.host) == "/usr/local/cuda-12.9"
    assert not cuda.choose(machine.host, "12.9.1")
    assert cuda.choose(machine.host, "12.6.3", check=True)
    assert machine.chosen == []
    assert cuda.choose(machine.host, "12.6.3")
    assert machine.chosen == ["--install", "--set"]


@pytest.mark.parametrize("newer", [*cuda.FOLDERS, ""])
def test_the_loader_is_told_of_what_is_newer_than_what_it_knows(tmp_path: Path, newer: str) -> None:
    asked: list[str] = []

    def run(argv: Sequence[str], *_: object) -> Result:
        asked.append(" ".join(argv))
        return Result(0, "", "")

    host = Host(str(tmp_path), run)
    for path in (*cuda.FOLDERS, cuda.CACHE):
        host.write(path, "")
        age = 60 if path == newer else 600 if path == cuda.CACHE else 3600
        os.utime(tmp_path / path.lstrip("/"), (time.time() - age,) * 2)
    assert cuda.refresh(host, check=True) is bool(newer)
    assert asked == []
    assert cuda.refresh(host) is bool(newer)
    assert asked == (["ldconfig"] if newer else [])


@pytest.mark.parametrize("kind", ["a folder", "a link to /opt/cuda"])
def test_what_is_not_the_systems_is_not_taken_over(machine: Machine, kind: str) -> None:
    place = machine.root / "usr/local/cuda"
    place.parent.mkdir(parents=True)
    if kind == "a folder":
        place.mkdir()
    else:
        place.symlink_to("/opt/cuda")
    with pytest.raises(cuda.CudaError) as caught:
        cuda.choose(machine.host, "12.9.1")
    assert str(caught.value) == (
        "the default CUDA toolkit is not the system's to choose — /usr/local/cuda — "
        f"got {kind} / allowed a link of the alternatives, or nothing — "
        "Take it away, or name no toolkit, and run the play again."
    )


def toolkits(machine: Machine, **wish: object) -> dict[str, str]:
    to = Collected([], {}, {})
    given = {"versions": ["12.9.1"], "default": "12.9.1", "packages": PACKAGES, **wish}
    cuda_evidence.collect(machine.host, Wishes(cuda=given), to)
    return {one["id"]: one["result"] for one in to.checks}


def test_each_fault_of_the_toolkits_fails_its_check(machine: Machine) -> None:
    link(machine, toolkit(machine, "12.9.1"))
    assert set(toolkits(machine).values()) == {"pass"}
    assert toolkits(machine, default="12.6.3")["cuda.default"] == "fail"
    assert toolkits(machine, versions=["12.9.0"])["cuda.versions"] == "fail"
    assert toolkits(machine, versions=["11.8.0"], source="distro")["cuda.release"] == "fail"
    machine.red_hat()
    assert set(toolkits(machine).values()) == {"pass"}
    machine.held = set()
    machine.red_hat()
    assert toolkits(machine)["cuda.held"] == "fail"
    machine.packages = {}
    assert toolkits(machine)["cuda.packages"] == "fail"
    compat = "\tlibcuda.so.1 (libc6,x86-64) => /usr/local/cuda-12.9/compat/libcuda.so.1\n"
    machine.loader = compat + machine.loader
    assert toolkits(machine)["cuda.driver_library"] == "fail"
    assert toolkits(machine, packages={}) == {"cuda": "skipped"}
