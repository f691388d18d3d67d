"""Guests as libvirt domains: what is defined, what is refused, what is left alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.passthrough import libvirt_domain, libvirt_guests
from tests.substrate.gpu import topologies

if TYPE_CHECKING:
    from collections.abc import Sequence


CARD = ["0000:25:00.0", "0000:25:00.1"]
OTHER = ["0000:81:00.0", "0000:81:00.1"]
#: By how many definitions came before.
MADE = "52:54:00:00:00:0{}"
FOREIGN = """<domain type='kvm'><name>{}</name><uuid>0-0</uuid><devices>
<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x81' slot='0x00'
 function='0x0'/></source></hostdev></devices></domain>"""


class Machine:
    """A hypervisor below a folder whose virsh keeps domains in memory."""

    def __init__(self, root: Path) -> None:
        topologies.write("server-rtx3090", root)
        self.root, self.domains, self.running, self.defined = root, {}, {}, []
        for node, cpus in ((0, "0-7,16-23"), (1, "8-15,24-31")):
            self.put(f"/sys/devices/system/node/node{node}/cpulist", cpus)
        self.put("/srv/vm.qcow2", "")
        self.domains["mail"] = "<domain type='kvm'><name>mail</name></domain>"

    def put(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        assert list(argv[:4]) == ["virsh", "--quiet", "-c", "qemu:///system"]
        verb, *rest = argv[4:]
        if verb == "list":
            return Result(0, "\n".join(self.domains) + "\n\n", "")
        if verb == "dumpxml":
            name = rest[-1]
            live = self.running if "--inactive" not in rest else {}
            return Result(0, live.get(name, self.domains[name]), "")
        if verb == "domstate":
            return Result(0, "running\n" if rest[0] in self.running else "shut off\n", "")
        text = Path(rest[-1]).read_text(encoding="utf-8")
        name = re.search(r"<name>(.*)</name>", text)[1]
        self.domains[name] = text if "<uuid>" in text else text.replace(
            f"<name>{name}</name>", f"<name>{name}</name><uuid>of-{name}</uuid>"
        )  # fmt: skip
        if "<mac " not in text:
            # libvirt makes up another address every time.
            made = f'<interface type="bridge"><mac address="{MADE.format(len(self.defined))}"/>'
            self.domains[name] = re.sub(r"<interface .*?>", made, self.domains[name])
        self.defined.append(name)
        return Result(0, "", "")

    def go(self, *, check: bool = False, **guests: Any) -> libvirt_guests.Outcome:
        settings = libvirt_guests.Settings("hv1", "qemu:///system", "kvm", "1G", [*CARD, *OTHER])
        host = Host(str(self.root), self._run)
        return libvirt_guests.ensure(host, guests, settings, check)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def guest(*devices: str, **changes: Any) -> dict[str, Any]:
    return {
        "devices": list(devices),
        "cpus": 8,
        "memory_gib": 32,
        "disk": "/srv/vm.qcow2",
        "network": "br0",
    } | changes


def test_a_guest_is_placed_where_its_card_is(machine: Machine) -> None:
    assert machine.go(vm1=guest(*OTHER)).problems == []
    essence = libvirt_domain.essence(machine.domains["vm1"])
    assert essence["host_devices"] == OTHER
    assert essence["managed"] == ["yes"]
    assert essence["pinned"] == [(number, "8-15,24-31") for number in range(8)]
    assert essence["memory_nodes"] == "1"
    assert essence["huge_page_bytes"] == 2**30
    assert essence["machine"] == "q35"
    text = machine.domains["vm1"]
    assert text.count('model="pcie-root-port"') == 1
    assert 'bus="0x01" function="0x0" multifunction="on"' in text
    assert 'bus="0x01" function="0x1"' in text


def test_memory_of_one_node_is_strict_and_of_several_evenly_taken(machine: Machine) -> None:
    """As huge pages are reserved for it: otherwise it could take all of them on one node."""

    def memory(*devices: str) -> tuple[str, str]:
        assert machine.go(vm1=guest(*devices)).problems == []
        essence = libvirt_domain.essence(machine.domains["vm1"])
        return essence["memory_mode"], essence["memory_nodes"]

    assert memory(*OTHER) == ("strict", "1")
    assert memory(*CARD, *OTHER) == ("interleave", "0-1")
    # As it was defined before it had a device of the other node.
    machine.domains["vm1"] = machine.domains["vm1"].replace("interleave", "strict")
    (change,) = machine.go(vm1=guest(*CARD, *OTHER)).diff
    assert change["after"] == "memory_mode: strict instead of interleave\n"


def test_a_guest_on_two_nodes_is_known_again_in_the_words_of_libvirt(machine: Machine) -> None:
    """Whatever lists it is given, libvirt writes runs of numbers as such."""
    assert machine.go(vm1=guest(*CARD, *OTHER)).problems == []
    text = machine.domains["vm1"]
    assert 'cpuset="0-7,16-23,8-15,24-31"' in text
    assert 'nodeset="0,1"' in text
    text = text.replace("0-7,16-23,8-15,24-31", "0-31").replace('nodeset="0,1"', 'nodeset="0-1"')
    machine.domains["vm1"] = text
    assert machine.go(vm1=guest(*CARD, *OTHER)).diff == []


def test_only_large_cards_ask_for_more_address_space() -> None:
    def space(size: int) -> int:
        one = libvirt_domain.Guest("vm1", CARD, 1, 1, "/srv/vm", "br0", "", (), size, "")
        return libvirt_domain.essence(libvirt_domain.xml(one))["address_space"]

    assert [space(2**30), space(32 * 2**30), space(64 * 2**30)] == [0, 0, 64 * 2**30]


def test_the_second_run_defines_nothing_and_a_change_keeps_the_identity(machine: Machine) -> None:
    machine.go(vm1=guest(*CARD))
    assert machine.go(vm1=guest(*CARD)).diff == []
    assert machine.defined == ["vm1"]
    changed = machine.go(vm1=guest(*CARD, memory_gib=64))
    assert changed.diff[0]["after"] == (f"memory_bytes: {32 * 2**30} instead of {64 * 2**30}\n")
    assert libvirt_domain.uuid_of(machine.domains["vm1"]) == "of-vm1"
    assert machine.domains["mail"] == "<domain type='kvm'><name>mail</name></domain>"


def test_a_guest_that_is_defined_anew_keeps_its_address(machine: Machine) -> None:
    machine.go(vm1=guest(*CARD))
    assert libvirt_domain.mac_of(machine.domains["vm1"]) == MADE.format(0)
    # Somebody gave it a second interface, which only the first one's place tells apart.
    second = f'</interface><interface type="bridge"><mac address="{MADE.format(9)}"/></interface>'
    machine.domains["vm1"] = machine.domains["vm1"].replace("</interface>", second)
    machine.running["vm1"] = machine.domains["vm1"]
    assert machine.go(vm1=guest(*CARD, memory_gib=64)).problems == []
    assert machine.defined == ["vm1", "vm1"]
    assert libvirt_domain.mac_of(machine.domains["vm1"]) == MADE.format(0)


def test_an_address_that_the_site_names_is_applied(machine: Machine) -> None:
    machine.go(vm1=guest(*CARD))
    machine.running["vm1"] = machine.domains["vm1"]
    named = "52:54:00:AA:00:01"
    outcome = machine.go(vm1=guest(*CARD, mac=named))
    assert outcome.diff[0]["after"] == f"mac: {MADE.format(0)} instead of {named.lower()}\n"
    assert (outcome.problems, outcome.restart) == ([], ["vm1"])
    assert libvirt_domain.mac_of(machine.domains["vm1"]) == named.lower()
    # libvirt writes small letters.
    machine.domains["vm1"] = machine.domains["vm1"].replace(named, named.lower())
    assert machine.go(vm1=guest(*CARD, mac=named)).diff == []
    assert machine.go(vm1=guest(*CARD)).diff == [], "it stays where it is no longer named"


def test_check_mode_defines_nothing(machine: Machine) -> None:
    outcome = machine.go(check=True, vm1=guest(*CARD))
    assert len(outcome.diff) == 1
    assert machine.defined == []
    assert not (machine.root / "var").exists()


def test_a_running_guest_is_told_to_be_started_anew(machine: Machine) -> None:
    machine.go(vm1=guest(*CARD))
    machine.running["vm1"] = machine.domains["vm1"]
    assert machine.go(vm1=guest(*CARD)).restart == []
    outcome = machine.go(vm1=guest(*CARD, memory_gib=64))
    assert (outcome.problems, outcome.restart) == ([], ["vm1"])


def test_somebody_elses_domain_is_never_touched(machine: Machine) -> None:
    machine.domains["vm1"] = FOREIGN.format("vm1")
    assert machine.go(vm1=guest(*CARD)).problems == [
        (
            "domain is not managed by Bedplate — hv1, domain vm1 — got a domain that Bedplate did"
            " not "
            "define / allowed no domain of that name — Rename the guest, or undefine that "
            "domain."
        ),
        (
            "domain has a device of ours — hv1, domain vm1 — got 0000:81:00.0 / allowed "
            "devices that no other domain has — Take it from that domain, or from "
            "bedplate_passthrough."
        ),
    ]
    assert machine.domains["vm1"] == FOREIGN.format("vm1")


@pytest.mark.parametrize(
    ("guests", "said"),
    [
        (
            {"vm1": guest("0000:01:00.0")},
            (
                "device is not given away — hv1, guest vm1 — got 0000:01:00.0 / allowed "
                "0000:25:00.0, 0000:25:00.1, 0000:81:00.0, 0000:81:00.1 — Add it to devices of "
                "bedplate_passthrough, or take it from the guest."
            ),
        ),
        (
            {"vm1": guest(CARD[0]), "vm2": guest(CARD[0])},
            (
                "device is given to two guests — hv1, guest vm2 — got 0000:25:00.0 of guest vm1 / "
                "allowed one guest — Take it from one of them."
            ),
        ),
        (
            {"vm1": guest(*CARD, disk="/srv/none.qcow2")},
            (
                "guest has no disk — hv1, guest vm1 — got /srv/none.qcow2 / allowed a file or "
                "device — Make it, for example from the system's cloud image, or correct disk."
            ),
        ),
        (
            {"vm1": guest(*CARD, cpus=17)},
            (
                "guest has too many processors — hv1, guest vm1 — got 17 / allowed at most 16 "
                "of its devices' NUMA nodes — Give it fewer, or devices of both nodes."
            ),
        ),
        (
            {"vm1": guest(vgpu=["grid_t4-16c"])},
            (
                "guest's shares of GPUs were not made — hv1, guest vm1 — got none / "
                "allowed grid_t4-16c — Write bedplate_vgpu for this "
                "hypervisor and run bedplate.gpu.site, "
                "or write the guest out for vSphere (entry point artefacts)."
            ),
        ),
    ],
)
def test_a_guest_that_cannot_be_is_refused(
    guests: dict[str, Any], said: str, machine: Machine
) -> None:
    assert machine.go(**guests).problems == [said]
    assert machine.defined == []


def test_libvirts_refusal_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(argv: Sequence[str], *_: Any) -> Result:
        if "define" in argv:
            return Result(1, "", "error: XML document failed to validate against schema\n")
        return Result(0, "", "")

    monkeypatch.setattr(machine, "_run", refuses)
    (said,) = machine.go(vm1=guest(*CARD)).problems
    assert said == (
        "libvirt refuses the guest — hv1, guest vm1 — got error: XML document failed to validate "
        "against schema / allowed a valid domain — See /var/lib/bedplate/guests/vm1.xml on the "
        "host, and 'virsh define --validate' of it."
    )


def test_lists_of_processors() -> None:
    assert libvirt_guests.processors("0-3,8\n") == [0, 1, 2, 3, 8]
    assert libvirt_guests.processors("\n") == []
