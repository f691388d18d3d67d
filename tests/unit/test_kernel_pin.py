"""The module that installs and holds a kernel: what it runs on a host, and what it leaves alone."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import kernel_pin

from bedplate.portable.evidence import baseline
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import KUBELET_CONFIG, Host, Result
from bedplate.portable.packages import holds
from tests.unit.module_answers import answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OLD, NEW = "6.1.0-50-amd64", "6.1.0-51-amd64"
FOLLOWER = "linux-image-amd64"


class Debian:
    """A host that runs kernel OLD; ``packages`` are installed, those in ``held`` held."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self.run)
        self.host.write("/etc/os-release", "ID=debian\n")
        self.packages = {f"linux-image-{OLD}", FOLLOWER}
        self.held: set[str] = set()

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[0] == "dpkg-query":
            if "Status-Abbrev" in argv[2]:
                asked = argv[3:] or ["*"]
                known = [
                    n for n in sorted(self.packages) if any(fnmatch.fnmatch(n, a) for a in asked)
                ]
                return Result(0, "".join(f"{n} ii \n" for n in known), "")
            rows = [
                f"{name}\t1\t{'hold' if name in self.held else 'install'}\tinstalled\n"
                for name in argv[3:]
                if name in self.packages
            ]
            return Result(0, "".join(rows), "")
        if argv[0] == "apt-get" and "install" in argv:
            self.packages |= set(argv[argv.index("install") + 1 :])
        if argv[:2] == ["apt-mark", "hold"]:
            self.held |= set(argv[2:])
        if argv[:2] == ["apt-mark", "unhold"]:
            self.held -= set(argv[2:])
        return Result(0, "", "")


def pin(
    machine: Any,
    monkeypatch: pytest.MonkeyPatch,
    check: bool = False,
    runs: str = OLD,
    **wish: object,
) -> dict[str, Any]:
    """Pin kernel NEW, and what the module answers."""
    params: dict[str, object] = {"release": NEW, "packages": [f"linux-image-{NEW}"]}
    params |= {"followers": [FOLLOWER], "change_joined": False, "node": False, "lock_timeout": 1}
    monkeypatch.setattr(kernel_pin.kernel_pin, "running", lambda: runs)
    return answer(monkeypatch, kernel_pin, machine.host, check, **params | wish)


@pytest.fixture
def machine(tmp_path: Path) -> Debian:
    return Debian(tmp_path)


@pytest.mark.parametrize("node", ["kubernetes", "slurm"])
def test_a_node_gets_no_kernel_that_a_power_cut_would_boot(
    machine: Debian, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """It is held where it is, and told what waits, until its workload has left."""
    wish = {"node": node == "slurm"}
    if node == "kubernetes":
        machine.host.write(KUBELET_CONFIG, "")
    foreseen = pin(machine, monkeypatch, check=True, **wish)
    told = pin(machine, monkeypatch, **wish)
    assert machine.packages == {f"linux-image-{OLD}", FOLLOWER}
    assert (told["pending"], told["installed"]) == ([f"kernel {NEW}"], [])
    assert (told["reboot_required"], told["joined"]) == (True, True)
    assert machine.held == {FOLLOWER}
    assert (foreseen["pending"], foreseen["diff"]) == (told["pending"], told["diff"])
    again = pin(machine, monkeypatch, **wish)
    assert (again["pending"], again["changed"]) == ([f"kernel {NEW}"], False)
    emptied = pin(machine, monkeypatch, **wish, change_joined=True)
    assert (emptied["pending"], emptied["installed"]) == ([], [f"linux-image-{NEW}"])
    assert machine.held == {FOLLOWER, f"linux-image-{NEW}"}


def test_the_kernel_that_a_node_runs_is_completed_and_held(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.host.write(KUBELET_CONFIG, "")
    packages = [f"linux-image-{OLD}", f"linux-headers-{OLD}"]
    told = pin(machine, monkeypatch, release=OLD, packages=packages)
    assert (told["pending"], told["installed"]) == ([], [f"linux-headers-{OLD}"])
    assert machine.held == {*packages, FOLLOWER}


def test_a_host_without_workload_gets_its_kernel_at_once(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = pin(machine, monkeypatch)
    assert (told["pending"], told["installed"]) == ([], [f"linux-image-{NEW}"])
    assert told["reboot_required"]


def test_what_brings_the_next_kernel_of_any_flavour_is_held(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of a cloud or with a newer line of kernels follows those, and evidence asks for it."""
    others = {"linux-base", "linux-firmware", "linux-libc-dev", "linux-tools-generic-hwe-22.04"}
    others |= {"linux-image-unsigned-6.8.0-45-generic", "linux-headers-6.8.0-45-generic"}
    meta = {"linux-generic-hwe-22.04", "linux-image-generic-hwe-22.04"}
    meta |= {"linux-headers-gcp", "linux-image-unsigned-edge"}
    machine.packages = {f"linux-image-{NEW}", *others, *meta}
    foreseen = pin(machine, monkeypatch, check=True)
    told = pin(machine, monkeypatch)
    assert machine.held == {f"linux-image-{NEW}", *meta}
    assert foreseen["diff"] == told["diff"]
    assert not pin(machine, monkeypatch)["changed"]
    machine.held.remove("linux-generic-hwe-22.04")
    to = Collected([], {}, {})
    wished = {"kernel": NEW, "kernel_packages": [f"linux-image-{NEW}"]}
    baseline.collect(machine.host, Wishes(baseline=wished), to)
    (held,) = (one for one in to.checks if one["id"] == "baseline.kernel_held")
    assert held["found"] == ["linux-generic-hwe-22.04 is not held"]


def test_holds_are_written_down_and_those_of_the_user_are_not(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.held.add(FOLLOWER)
    pin(machine, monkeypatch, check=True)
    assert holds.load(machine.host) == {}
    pin(machine, monkeypatch)
    assert holds.load(machine.host) == {f"linux-image-{NEW}": "host_baseline"}


def test_the_kernel_before_is_let_go_once_the_next_one_runs(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the host lives on it; and what the user held is the user's to let go."""
    users, image = "linux-image-5.10.0-1-amd64", f"linux-image-{OLD}"
    machine.packages.add(users)
    machine.held.add(users)
    pin(machine, monkeypatch, release=OLD, packages=[image])
    assert machine.held == {users, image, FOLLOWER}
    assert pin(machine, monkeypatch)["released"] == []
    assert machine.held == {users, image, f"linux-image-{NEW}", FOLLOWER}
    foreseen = pin(machine, monkeypatch, check=True, runs=NEW)
    assert image in machine.held
    told = pin(machine, monkeypatch, runs=NEW)
    assert (told["changed"], told["released"]) == (True, [image])
    assert foreseen == told
    assert machine.held == {users, f"linux-image-{NEW}", FOLLOWER}
    assert image not in holds.load(machine.host)
    assert not pin(machine, monkeypatch, runs=NEW)["changed"]


def test_evidence_names_holds_of_ours_that_nobody_wishes(
    machine: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another kernel's only once the wished one runs, as the module lets them go."""
    image = f"linux-image-{NEW}"
    pin(machine, monkeypatch)
    machine.held.add(f"linux-image-{OLD}")

    def found(runs: str, **wished: object) -> list[str]:
        monkeypatch.setattr(baseline.kernel_pin, "running", lambda: runs)
        to = Collected([], {}, {})
        baseline.collect(machine.host, Wishes(baseline=wished), to)
        (held,) = (one for one in to.checks if one["id"] == "baseline.kernel_held")
        return list(held["found"])

    before = {"kernel": OLD, "kernel_packages": [f"linux-image-{OLD}"]}
    assert found(NEW, **before) == []
    assert found(OLD, **before) == [f"{image} is held for another kernel"]
    assert found(NEW, kernel="") == [
        f"{name} is held although the site names no kernel" for name in (image, FOLLOWER)
    ]


RUNS, NEXT = "5.14.0-611.5.1.el9_7.x86_64", "5.14.0-611.9.1.el9_7.x86_64"
LOCKED = (
    "# Bedplate: kernel-core stays at its version\n"
    "kernel-core-0:5.14.0-611.5.1.el9_7.*\n"
    "bash-0:5.1-1.*\n"
)
EXCLUDED = "Error: Unable to find a match: kernel-core"


class Rocky:
    """A host with kernel-core of RUNS, whose dnf finds no other where a lock shuts it out."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self.run)
        self.host.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
        self.host.write("/etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 1\n")
        self.host.write("/etc/dnf/plugins/versionlock.list", LOCKED)
        self.packages = {f"kernel-core-{RUNS}"}
        self.counted: list[str] = []

    def locks(self, argv: Sequence[str]) -> str:
        """The lock list that a call of dnf goes by: the last one that is configured."""
        folders = ["/etc/dnf/plugins"]
        for word in argv:
            if word.startswith("--setopt=pluginconfpath="):
                folders = word.rpartition("=")[2].split(",")
        found = "/etc/dnf/plugins/versionlock.list"
        for folder in folders:
            for line in (self.host.read(f"{folder}/versionlock.conf") or "").splitlines():
                found = line.partition("=")[2].strip() if line.startswith("locklist") else found
        return self.host.read(found) or ""

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[0] == "rpm":
            rows = [self.row(name) for name in argv[4:] if name in self.packages]
            return Result(0 if rows else 1, "".join(rows), "")
        assert argv[0] == "dnf"
        locks = self.locks(argv)
        self.counted.append(locks)
        shut = "\nkernel-core-0:5.14.0-611.5.1" in locks
        if "install" in argv and shut:
            return Result(1, "", EXCLUDED)
        if "install" in argv:
            self.packages |= set(argv[argv.index("install") + 1 :])
        return Result(0, "" if shut else "offered\n", "")

    @staticmethod
    def row(name: str) -> str:
        what, version, release = name.rsplit("-", 2)
        return f"{what}\t0:{version}-{release.removesuffix('.x86_64')}\tx86_64\n"


def test_the_lock_on_the_kernel_before_does_not_shut_out_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocky = Rocky(tmp_path)
    wish = {"release": NEXT, "packages": [f"kernel-core-{NEXT}"], "followers": []}
    told = pin(rocky, monkeypatch, **wish)
    assert told.get("msg", "") == ""
    assert rocky.packages == {f"kernel-core-{RUNS}", f"kernel-core-{NEXT}"}
    assert (rocky.host.read("/etc/dnf/plugins/versionlock.list") or "").splitlines() == [
        "bash-0:5.1-1.*",
        "# Bedplate: kernel-core stays at its version",
        "kernel-core-0:5.14.0-611.9.1.el9_7.*",
    ]
    # The user's own locks counted all the time, and nothing is left of the list without ours.
    assert all("bash-0:5.1-1.*\n" in locks for locks in rocky.counted)
    assert rocky.host.list("/run/bedplate") == []


def test_locks_on_what_the_pin_no_longer_has_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocky = Rocky(tmp_path)
    mark = "# Bedplate: {} stays at its version\n{}-0:5.14.0-611.5.1.el9_7.*\n"
    devel, other = (mark.format(name, name) for name in ("kernel-devel", "nvidia-driver"))
    rocky.host.write("/etc/dnf/plugins/versionlock.list", devel + other + LOCKED)
    wish = {"release": RUNS, "packages": [f"kernel-core-{RUNS}"], "followers": []}
    told = pin(rocky, monkeypatch, runs=RUNS, **wish)
    assert (told["changed"], told["released"]) == (True, ["kernel-devel"])
    assert rocky.host.read("/etc/dnf/plugins/versionlock.list") == other + LOCKED
    assert not pin(rocky, monkeypatch, runs=RUNS, **wish)["changed"]


def test_the_users_own_lock_on_a_kernel_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocky = Rocky(tmp_path)
    theirs = LOCKED.replace("# Bedplate: kernel-core stays at its version\n", "# mine\n")
    rocky.host.write("/etc/dnf/plugins/versionlock.list", theirs)
    wish = {"release": NEXT, "packages": [f"kernel-core-{NEXT}"], "followers": []}
    told = pin(rocky, monkeypatch, **wish)
    assert f"got {EXCLUDED} / allowed kernel-core-{NEXT}" in told["msg"]
    assert rocky.host.read("/etc/dnf/plugins/versionlock.list") == theirs
    assert rocky.host.list("/run/bedplate") == []
