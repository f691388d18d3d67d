"""The module that keeps the kernel's settings: what it changes, refuses and leaves alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.modules import kernel_settings

from bedplate.portable.host import Host, Result
from bedplate.portable.packages import holds
from tests.unit.module_answers import answer

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIGURE = Path(__file__).parents[2] / "roles/host_baseline/tasks/configure.yml"
IMAGE = "linux-image-6.1.0-50-amd64"


class Machine:
    """A host of Debian with packages that are held, and the commands that it was asked."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self.run)
        self.host.write("/etc/os-release", "ID=debian\n")
        self.held: set[str] = set()
        self.asked: list[list[str]] = []

    def run(self, argv: Sequence[str], *_: object) -> Result:
        self.asked.append(list(argv))
        if argv[0] == "dpkg-query":
            rows = [f"{name}\t1\thold\tinstalled\n" for name in argv[3:] if name in self.held]
            return Result(0, "".join(rows), "")
        if argv[:2] == ["apt-mark", "unhold"]:
            self.held -= set(argv[2:])
        if argv[0] == "rmmod":
            return self.unload(argv[1].replace("-", "_"))
        return Result(0, "", "")

    def load(self, name: str, uses: int = 0, holders: Sequence[str] = ()) -> None:
        """Have a module loaded, used by ``holders`` and beyond them ``uses`` times."""
        self.host.write(f"/sys/module/{name}/refcnt", f"{uses + len(holders)}\n")
        for holder in holders:
            self.host.write(f"/sys/module/{name}/holders/{holder}", "")

    def unload(self, name: str) -> Result:
        """What rmmod does."""
        folder = Path(self.host.path("/sys/module"))
        if not (folder / name / "refcnt").exists():
            return Result(1, "", f"rmmod: ERROR: Module {name} is builtin.")
        if int((folder / name / "refcnt").read_text()):
            return Result(1, "", f"rmmod: ERROR: Module {name} is in use")
        shutil.rmtree(folder / name)
        for other in folder.glob(f"*/holders/{name}"):
            count = other.parents[1] / "refcnt"
            count.write_text(f"{int(count.read_text()) - 1}\n")
            other.unlink()
        return Result(0, "", "")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def keep(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, check: bool = False, **wish: object
) -> dict[str, Any]:
    """Keep the settings, and what the module answers."""
    params: dict[str, object] = {"name": "host", "modules": [], "blacklist": [], "unpinned": False}
    params |= {"options": {}, "sysctls": {}, "hugepages": {}}
    return answer(monkeypatch, kernel_settings, machine.host, check, **params | wish)


def test_a_kernel_that_the_site_names_no_longer_is_let_go(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own holds stay, and a host that never had a pin is asked nothing."""
    (task,) = yaml.safe_load(CONFIGURE.read_text(encoding="utf-8"))
    asked = task["bedplate.gpu.kernel_settings"]["unpinned"]
    assert asked == "{{ host_baseline_kernel | length == 0 }}"
    assert not keep(machine, monkeypatch, unpinned=True)["changed"]
    assert machine.asked == []
    machine.held = {IMAGE, "his-own", "containerd.io"}
    holds.keep(machine.host, [IMAGE], "host_baseline")
    holds.keep(machine.host, ["containerd.io"], "container_runtime")
    assert not keep(machine, monkeypatch)["changed"]
    foreseen = keep(machine, monkeypatch, check=True, unpinned=True)
    assert IMAGE in machine.held
    told = keep(machine, monkeypatch, unpinned=True)
    assert told == foreseen
    assert told["differences"] == [f"package {IMAGE} is held although no kernel is named"]
    assert machine.held == {"his-own", "containerd.io"}
    assert holds.load(machine.host) == {"containerd.io": "container_runtime"}
    assert not keep(machine, monkeypatch, unpinned=True)["changed"]


@pytest.mark.parametrize("check", [True, False])
def test_a_file_that_would_undo_a_sysctl_at_boot_is_refused_before_anything_changes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    users = "/etc/sysctl.d/zz-cis.conf"
    machine.host.write(users, "fs.a = 0\n")
    machine.host.write("/proc/sys/fs/a", "0\n")
    told = keep(machine, monkeypatch, check=check, sysctls={"fs.a": "1"})
    assert told["msg"].endswith(
        "got /etc/sysctl.d/zz-cis.conf: fs.a = 0 / allowed fs.a = 1 —"
        " Take these lines out of those files and run the play again."
    )
    assert machine.host.read("/proc/sys/fs/a") == "0\n"
    assert machine.host.read(users) == "fs.a = 0\n"
    assert machine.host.list("/etc/sysctl.d") == ["zz-cis.conf"]


def test_sysctls_lie_where_others_have_no_last_word(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run left under another name goes."""
    machine.host.write("/proc/sys/fs/a", "1\n")
    for name in ("60-bedplate-host.conf", "60-gce-network-security.conf", "99-sysctl.conf"):
        machine.host.write(f"/etc/sysctl.d/{name}", "fs.a = 0\n")
    assert keep(machine, monkeypatch, sysctls={"fs.a": "1"})["changed"]
    files = machine.host.list("/etc/sysctl.d")
    assert len(files) == 3
    assert "60-bedplate-host.conf" not in files
    last = machine.host.read(f"/etc/sysctl.d/{max(files)}") or ""
    assert "\nfs.a = 1\n" in last
    assert not keep(machine, monkeypatch, sysctls={"fs.a": "1"})["changed"]


@pytest.mark.parametrize("key", ["vm.nr_hugepages", "vm/nr_hugepages", ""])
def test_fewer_huge_pages_of_the_default_size_than_asked_for_are_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The kernel takes the number, reserves what it can, and says nothing."""
    path = "/proc/sys/vm/nr_hugepages"
    machine.host.write("/proc/meminfo", "Hugepagesize:       2048 kB\n")
    machine.host.write(path, "7\n")
    wish: dict[str, Any] = {"sysctls": {key: "512"}} if key else {"hugepages": {"2M": 512}}
    monkeypatch.setattr(kernel_settings.kernel, "put", lambda *_: None)
    told = keep(machine, monkeypatch, **wish)
    assert told["msg"].startswith("huge pages cannot be reserved — ")
    assert f"got {path} is 7 / allowed 512 — Reserve them at boot" in told["msg"]


def test_a_blacklisted_module_goes_however_its_name_is_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.load("i2c_nvidia_gpu")
    wish = {"blacklist": ["i2c-nvidia-gpu"]}
    told = keep(machine, monkeypatch, **wish)
    assert {"before": "module i2c-nvidia-gpu loaded\n", "after": ""} in told["diff"]
    assert machine.host.list("/sys/module") == []
    machine.load("i2c_nvidia_gpu", uses=1)
    told = keep(machine, monkeypatch, **wish)
    assert (told["changed"], told["blacklisted_loaded"]) == (False, ["i2c-nvidia-gpu"])


def test_check_mode_foresees_which_blacklisted_modules_go(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in use or built in stays; one that only another one uses goes after that."""
    machine.load("busy", uses=2)
    machine.load("low", holders=["high_one"])
    machine.load("high_one")
    machine.load("shared", uses=1, holders=["high_one"])
    machine.host.write("/sys/module/inside/parameters/some", "1\n")
    stays = ["busy", "shared", "inside"]
    wish = {"blacklist": ["busy", "high-one", "low", "shared", "inside", "absent"]}
    foreseen = keep(machine, monkeypatch, check=True, **wish)
    assert len(machine.host.list("/sys/module")) == 5
    told = keep(machine, monkeypatch, **wish)
    assert foreseen == told
    assert told["blacklisted_loaded"] == stays
    assert machine.host.list("/sys/module") == sorted(stays)
    foreseen = keep(machine, monkeypatch, check=True, **wish)
    assert (foreseen["changed"], foreseen["blacklisted_loaded"]) == (False, stays)
