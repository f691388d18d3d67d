"""What a host is told whose module does not load, and what a change of modules stops."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import (
    nvidia_driver_module,
    nvidia_driver_record,
    nvidia_driver_state,
)

from bedplate.portable import holders, nvidia, os_release
from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver import state as driver
from bedplate.portable.host import Host, Result
from tests.unit.module_answers import answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

RELEASE = "6.1.0-37-amd64"
ALL = {"nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced"}
LOADED = nvidia.LoadedModule("535.1", "proprietary", simulated=False)
#: Options of the module that has the driver's kernel module loaded.
WISH = {"version": "535.1", "flavour": "proprietary", "source": "distro", "packages": {}}
WISH |= {"kernel": "", "gpus": 0, "options": {}, "archives": "", "change_joined": False}
WISH |= {"packages_wait": False}
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Release Build\n"


def test_missing_headers_are_the_way_out(tmp_path: Path) -> None:
    assert driver.way_out(Host(str(tmp_path)), RELEASE).startswith(
        "Install linux-headers-6.1.0-37-amd64, "
    )


def test_with_headers_the_build_or_the_signature_is_to_blame(tmp_path: Path) -> None:
    (tmp_path / f"lib/modules/{RELEASE}/build").mkdir(parents=True)
    assert driver.way_out(Host(str(tmp_path)), RELEASE).startswith("See 'dkms status'")


def test_a_module_that_comes_built_wants_its_own_kernel_and_no_headers(tmp_path: Path) -> None:
    on = Host(str(tmp_path))
    assert driver.way_out(on, RELEASE, "precompiled", "6.1.0-50-amd64") == (
        "The module comes built for kernel 6.1.0-50-amd64, and 6.1.0-37-amd64 runs: boot the host"
        " into that kernel (a node: run bedplate.gpu.upgrade with -e "
        "upgrade_reboot_allowed=true), and run"
        " the playbook again."
    )
    for kernel in ("", RELEASE):
        assert driver.way_out(on, RELEASE, "precompiled", kernel) == (
            "See the kernel's log on the host: the module comes built for one kernel, which has to"
            " be the running one, and Secure Boot may refuse its signature."
        )


def test_a_card_that_nouveau_holds_waits_for_a_reboot(tmp_path: Path) -> None:
    ran = []

    def run(argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        ran.append(list(argv))
        return Result(1, "", "modprobe: ERROR: could not insert 'nvidia': No such device")

    host, bound = Host(str(tmp_path), run), tmp_path / "sys/bus/pci/drivers/nouveau"
    bound.mkdir(parents=True)
    (bound / "uevent").touch()
    assert driver.exchange(host, None, "535.1", "proprietary").failed.startswith("modprobe nvidia")
    (bound / "0000:3b:00.0").mkdir()
    ran.clear()
    done = driver.exchange(host, None, "535.1", "proprietary")
    assert (done.now, done.failed, ran) == (None, "", [])
    assert done.in_use.startswith("nouveau holds the GPUs")


@pytest.mark.parametrize(("joined", "pending"), [(False, 0), (True, 1)])
def test_a_node_whose_cards_nouveau_holds_is_not_rebooted_as_it_is(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, joined: bool, pending: int
) -> None:
    for name in ("bus/pci/drivers/nouveau/0000:3b:00.0/uevent", "module/nouveau/refcnt"):
        machine.host.write(f"/sys/{name}", "")
    if joined:
        machine.host.write("/etc/kubernetes/kubelet.conf", "")
    monkeypatch.setattr(nvidia_driver_module, "build", lambda *_: [])
    monkeypatch.setattr(nvidia_driver_module.nvidia, "loaded_module", lambda _: None)
    answers = answer(monkeypatch, nvidia_driver_module, machine.host, **WISH)
    assert len(answers["pending"]) == pending
    assert answers["reboot_required"] == (not joined)
    assert answers["boot_needed"]


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


class Killed(BaseException):
    """The run was killed."""


class Machine:
    """A host's modules and services: modprobe brings driver ``version``, and none starts without.

    A command that ``refused`` names fails; ``killed_at`` is one that is not survived.
    """

    def __init__(self, root: Path, *services: str) -> None:
        self.host = Host(str(root), self.run)
        self.services = set(services)
        self.version = "550.1"
        self.refused: set[str] = set()
        self.killed_at = ""
        self.said: list[str] = []
        self.load("nvidia", "535.1")

    def load(self, name: str, version: str) -> None:
        if not self.host.exists(f"/sys/module/{name}"):
            self.host.write(f"/sys/module/{name}/version", version)
        if name == "nvidia":
            self.host.write(nvidia.PROC_VERSION, NVRM.format(version))

    def unload(self, name: str) -> None:
        shutil.rmtree(self.host.path(f"/sys/module/{name}"))
        if name == "nvidia":
            self.host.remove(nvidia.PROC_VERSION)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        line, name = " ".join(argv), argv[-1]
        if line == self.killed_at:
            raise Killed
        if "is-active" in argv:
            return Result(0 if name in self.services else 3, "", "")
        self.said.append(line)
        no_module = argv[1] == "start" and not self.host.exists("/sys/module/nvidia")
        if line in self.refused or no_module:
            return Result(1, "", f"{argv[0]}: refused")
        if argv[0] == "rmmod":
            self.unload(name)
        elif argv[0] == "modprobe":
            self.load(name, self.version)
        elif argv[1] == "start":
            self.services.add(name)
        else:
            self.services.discard(name)
        return Result(0, "", "")

    def change(self, version: str) -> driver.Exchange:
        """What the module does for a wish."""
        before = nvidia.loaded_module(self.host)
        if not driver.differs(before, version, "proprietary"):
            driver.resume(self.host)
            return driver.Exchange(before, "", "")
        self.version = version
        return driver.exchange(self.host, before, version, "proprietary")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, *ALL)


def test_what_holds_the_gpus_is_stopped_for_a_change_and_started_again(machine: Machine) -> None:
    machine.services -= {"nvidia-dcgm"}
    machine.refused.add("rmmod nvidia")
    assert machine.change("550.1").in_use == "rmmod nvidia: rmmod: refused"
    assert machine.said == [
        "systemctl stop nvidia-fabricmanager",
        "systemctl stop nvidia-persistenced",
        "rmmod nvidia",
        "systemctl start nvidia-persistenced",
        "systemctl start nvidia-fabricmanager",
    ]
    assert not machine.host.exists(holders.RECORD)


def test_where_unloading_ends_half_way_what_was_unloaded_is_loaded_again(machine: Machine) -> None:
    for name in ("nvidia_modeset", "nvidia_drm", "nvidia_uvm"):
        machine.load(name, "535.1")
    machine.refused.add("rmmod nvidia")
    machine.version = "535.1"
    before = nvidia.loaded_module(machine.host)
    # Other options of the same driver: what stays loaded is to work as before.
    done = driver.exchange(machine.host, before, "535.1", "proprietary")
    assert (done.now, done.in_use) == (before, "rmmod nvidia: rmmod: refused")
    assert [line for line in machine.said if "mod" in line.split()[0]] == [
        "rmmod nvidia_uvm",
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia",
        "modprobe nvidia_modeset",
        "modprobe nvidia_drm",
        "modprobe nvidia_uvm",
    ]
    assert machine.services == ALL


def test_what_was_stopped_waits_for_the_next_module_that_loads(machine: Machine) -> None:
    machine.refused.add("modprobe nvidia")
    assert machine.change("550.1").failed == "modprobe nvidia: modprobe: refused"
    assert not any("start" in line for line in machine.said)
    assert driver.resume(machine.host) == []
    machine.refused.clear()
    assert machine.change("535.1").failed == ""
    assert machine.services == ALL
    assert not machine.host.exists(holders.RECORD)


def test_what_does_not_fit_the_new_driver_starts_with_the_old_one(machine: Machine) -> None:
    machine.refused.add("systemctl start nvidia-fabricmanager")
    assert machine.change("550.1") == (LOADED._replace(version="550.1"), "", "")
    assert machine.services == ALL - {"nvidia-fabricmanager"}
    machine.refused.clear()
    assert machine.change("535.1") == (LOADED, "", "")
    assert machine.services == ALL


def test_what_its_own_role_has_started_meanwhile_is_no_change(machine: Machine) -> None:
    machine.refused.add("systemctl start nvidia-fabricmanager")
    machine.change("550.1")
    machine.services.add("nvidia-fabricmanager")
    assert driver.resume(machine.host) == []
    assert not machine.host.exists(holders.RECORD)


@pytest.mark.parametrize("wished", ["535.1", "550.1"])
@pytest.mark.parametrize(
    "killed_at",
    [
        "systemctl stop nvidia-fabricmanager",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "systemctl start nvidia-persistenced",
        "systemctl start nvidia-dcgm",
    ],
)
def test_what_a_killed_change_had_stopped_the_next_run_starts(
    killed_at: str, wished: str, machine: Machine
) -> None:
    machine.killed_at = killed_at
    with pytest.raises(Killed):
        machine.change("550.1")
    assert machine.services != ALL
    machine.killed_at = ""
    assert machine.change(wished) == (LOADED._replace(version=wished), "", "")
    assert machine.services == ALL
    assert not machine.host.exists(holders.RECORD)


def test_the_module_starts_what_a_killed_run_had_stopped(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(check: bool) -> bool:
        said = answer(monkeypatch, nvidia_driver_module, machine.host, check, **WISH)
        return bool(said["changed"])

    monkeypatch.setattr(nvidia_driver_module.driver, "health", lambda *_: "")
    assert run(check=False)  # it records the driver
    assert not run(check=False)
    machine.killed_at = "systemctl stop nvidia-fabricmanager"
    with pytest.raises(Killed):
        machine.change("550.1")
    machine.killed_at = ""
    assert run(check=True)
    assert machine.services != ALL
    assert run(check=False)
    assert machine.services == ALL
    assert not run(check=False)


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (nvidia_driver_module, {}),
        (nvidia_driver_record, {"state": "rollback", "driver": {}}),
        (nvidia_driver_state, {"unheld": False}),
    ],
)
def test_a_damaged_record_is_refused_with_its_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, module: ModuleType, more: dict[str, object]
) -> None:
    machine.host.write(driver_record.PATH, "{")
    said = answer(monkeypatch, module, machine.host, **{**WISH, **more})["msg"]
    assert said.startswith("the record of the drivers that worked cannot be read — ")
    assert f"got {driver_record.PATH} cannot be read: " in said
    assert said.endswith(" — Fix it, or remove it: then there is nothing to roll back to.")
