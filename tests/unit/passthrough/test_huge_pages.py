"""Huge pages on hosts with several NUMA nodes: where guests take their memory, now and at boot."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.passthrough import apply as passthrough_apply
from bedplate.portable.passthrough import functions as passthrough
from bedplate.portable.passthrough import kernel as passthrough_kernel
from bedplate.portable.passthrough import pages, vgpu
from tests.substrate.gpu import topologies

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Cards of the topology that are on the first node, and on the second.
FIRST, OTHER_FIRST, SECOND = "0000:25:00.0", "0000:41:00.0", "0000:81:00.0"
#: Somebody's firmware does not tell its node.
NOWHERE = "0000:01:00.0"
ARGUMENTS = "iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=64"


def guest(memory: int, *devices: str, **more: Any) -> dict[str, Any]:
    return {"devices": list(devices), "memory_gib": memory, **more}


class Machine:
    """A hypervisor below a folder, whose kernel has spread 64 huge pages over its nodes."""

    def __init__(self, root: Path, *spread: int) -> None:
        topologies.write("server-rtx3090", root)
        self.root, self.host = root, Host(str(root), self._run)
        self.ran: list[str] = []
        self.enabled: set[str] = set()
        self.host.write(f"/sys/bus/pci/devices/{NOWHERE}/numa_node", "-1\n")
        self.host.write("/proc/cmdline", ARGUMENTS)
        for path in ("/usr/sbin/update-grub", "/etc/default/grub"):
            self.host.write(path, "")
        self.host.write(self._file(None), f"{sum(spread)}\n")
        self.show(*spread)

    def _file(self, node: int | None) -> str:
        of = "/sys/kernel/mm" if node is None else f"/sys/devices/system/node/node{node}"
        return f"{of}/hugepages/hugepages-1048576kB/nr_hugepages"

    def show(self, *spread: int) -> None:
        """Have nodes with so many pages each."""
        last = len(spread) - 1
        self.host.write("/sys/devices/system/node/has_memory", f"0-{last}\n" if last else "0\n")
        for node, count in enumerate(spread):
            self.host.write(self._file(node), f"{count}\n")

    def has(self, node: int | None) -> int:
        return int(self.host.read(self._file(node)) or "")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        if argv[:2] == ["systemctl", "is-enabled"]:
            return Result(0, "enabled\n" if argv[2] in self.enabled else "disabled\n", "")
        if argv[:2] == ["systemctl", "enable"]:
            self.enabled |= set(argv[2:])
        self.ran.append(" ".join(argv))
        return Result(0, "", "")

    def go(
        self, guests: dict[str, Any], *, check: bool = False, size: str = "1G", number: int = 64
    ) -> passthrough_apply.Outcome:
        self.ran.clear()
        binding = passthrough.Binding([], [])
        placed = pages.places(self.host, size, number, pages.Guests(guests))
        wish = passthrough_kernel.Wish(binding, size, number, placed)
        work = passthrough_apply.Work(self.host, wish, "hv1", check)
        return work.run(keep_boot_loader=True)

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Do what the unit does."""
        script = pages.SCRIPT
        for path in (pages.PLACES, pages.NODES):
            script = script.replace(path, self.host.path(path))
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("guests", "number", "placed"),
    [
        # What the kernel spreads evenly, the guest cannot have: it needs all of it on one node.
        ({"vm1": guest(64, FIRST)}, 64, {0: 64, 1: 0}),
        ({"vm1": guest(48, FIRST), "vm2": guest(16, SECOND)}, 64, {0: 48, 1: 16}),
        ({"vm1": guest(48, FIRST), "vm2": guest(15, FIRST, SECOND)}, 63, {0: 56, 1: 7}),
        # Of a guest without a node, of one whose card is not there, and of nobody.
        ({"vm1": guest(32, NOWHERE)}, 32, {0: 16, 1: 16}),
        ({"vm1": guest(32, "0000:99:00.0")}, 32, {0: 16, 1: 16}),
        ({}, 5, {0: 3, 1: 2}),
        # A wished number that is more than they need, and one that is less.
        ({"vm1": guest(32, FIRST)}, 64, {0: 48, 1: 16}),
        ({"vm1": guest(64, FIRST), "vm2": guest(32, SECOND)}, 64, {0: 43, 1: 21}),
        ({"vm1": guest(64, FIRST)}, 0, {}),
    ],
)
def test_pages_are_where_guests_take_their_memory(
    guests: dict[str, Any], number: int, placed: dict[int, int], tmp_path: Path
) -> None:
    host = Machine(tmp_path, 32, 32).host
    assert dict(pages.places(host, "1G", number, pages.Guests(guests))) == placed
    assert sum(placed.values()) == number


def test_small_huge_pages_are_counted_as_such(tmp_path: Path) -> None:
    of = pages.Guests({"vm1": guest(2, SECOND)})
    assert pages.places(Machine(tmp_path, 0, 0).host, "2M", 1024, of) == ((0, 0), (1, 1024))


def test_shares_are_where_their_card_is_and_before_they_are_made_where_cards_are(
    tmp_path: Path,
) -> None:
    host = Machine(tmp_path, 32, 32).host
    guests = {"vm1": guest(8, vgpu=["grid_t4-16c"])}

    def placed(*cards: str) -> dict[int, int]:
        return dict(pages.places(host, "1G", 8, pages.Guests(guests, cards)))

    assert placed() == {0: 4, 1: 4}
    assert placed(SECOND) == {0: 0, 1: 8}
    assert placed(FIRST, SECOND) == {0: 4, 1: 4}
    share = vgpu.Share("vm1", 0, "grid_t4-16c", SECOND, "0000:81:00.4", "nvidia-231", "")
    host.write(vgpu.RECORD, vgpu.text([FIRST, SECOND], [share]))
    assert placed(FIRST, SECOND) == {0: 0, 1: 8}


def test_a_node_that_is_short_gets_pages_now_and_a_unit_places_them_at_boot(
    tmp_path: Path,
) -> None:
    machine, guests = Machine(tmp_path, 32, 32), {"vm1": guest(64, FIRST)}
    would = machine.go(guests, check=True)
    assert (machine.has(0), machine.ran) == (32, [])
    outcome = machine.go(guests)
    assert (outcome.problems, outcome.reasons) == ([], [])
    assert outcome.diff == would.diff
    assert outcome.diff[-1] == {
        "before": "32 huge pages of 1G on node 0\n",
        "after": "64 huge pages of 1G on node 0\n",
    }
    # What the other has too many is nobody's harm until the next boot.
    assert [machine.has(node) for node in (0, 1, None)] == [64, 32, 64]
    assert (machine.host.read(pages.PLACES) or "").splitlines()[1:] == [
        "0 1048576 64",
        "1 1048576 0",
    ]
    assert machine.ran == [
        "systemctl daemon-reload",
        "systemctl enable bedplate-vfio.service bedplate-huge-pages.service",
    ]
    assert machine.go(guests).diff == []
    assert machine.ran == []

    # The kernel spreads them again.
    machine.show(32, 32)
    done = machine.boot()
    assert (done.returncode, done.stderr) == (0, "")
    assert [machine.has(node) for node in (0, 1)] == [64, 0]
    assert machine.go(guests).diff == []


def test_a_node_that_has_no_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, guests = Machine(tmp_path, 32, 32), {"vm1": guest(64, FIRST)}
    monkeypatch.setattr(passthrough_kernel, "reserve", lambda *_: machine.show(40, 32))
    assert machine.go(guests).problems == [
        (
            "memory for huge pages is short — hv1 — got 40 of 1G on node 0 / allowed 64 on node 0 "
            "— Reboot the host; if it has no more then, give the guests less memory."
        )
    ]


def test_the_unit_fails_where_a_node_stays_short(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 32, 32)
    machine.go({"vm1": guest(64, SECOND)})
    # A module of memory was taken out: the node is gone.
    (tmp_path / machine._file(1)[1:]).unlink()
    (tmp_path / machine._file(1)[1:]).parent.rmdir()
    done = machine.boot()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == ("node 1 has 0 huge pages of 1048576 KiB instead of 64")
    assert machine.has(0) == 0


@pytest.mark.parametrize("told", ["0\n", None])
def test_a_host_with_one_node_has_no_such_unit(told: str | None, tmp_path: Path) -> None:
    machine, guests = Machine(tmp_path, 40), {"vm1": guest(64, FIRST)}
    if told is None:
        machine.host.remove("/sys/devices/system/node/has_memory")
    outcome = machine.go(guests)
    assert [machine.host.exists(p) for p in (pages.PLACES, pages.PLACER, pages.UNIT_FILE)] == [
        False
    ] * 3
    assert machine.enabled == {"bedplate-vfio.service"}
    assert outcome.diff[-1] == {"before": "40 huge pages of 1G\n", "after": "64 huge pages of 1G\n"}
    assert machine.has(None) == 64


def test_a_host_whose_firmware_makes_one_node_of_two_has_all_pages_there(tmp_path: Path) -> None:
    machine, guests = Machine(tmp_path, 32, 32), {"vm1": guest(64, FIRST)}
    machine.go(guests)
    machine.show(64)
    assert machine.go(guests).problems == []
    assert (machine.host.read(pages.PLACES) or "").splitlines()[1:] == ["0 1048576 64"]


def test_pages_that_are_wished_no_more_are_placed_no_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 32, 32)
    machine.go({"vm1": guest(64, FIRST)})
    machine.go({"vm1": guest(64, FIRST)}, size="", number=0)
    assert len((machine.host.read(pages.PLACES) or "").splitlines()) == 1
    machine.show(0, 0)
    assert machine.boot().returncode == 0
    assert [machine.has(node) for node in (0, 1)] == [0, 0]
