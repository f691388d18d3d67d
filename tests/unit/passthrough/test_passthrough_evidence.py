"""Evidence of a hypervisor: each fault is planted, and said in the whole message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence.area import Wishes
from bedplate.portable.host import Host, Result
from bedplate.portable.passthrough import functions as passthrough
from bedplate.portable.passthrough import kernel as passthrough_kernel
from bedplate.portable.passthrough import libvirt_guests
from bedplate.portable.passthrough import pages as pages_of_nodes
from tests.substrate.gpu import topologies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CARD = ["0000:25:00.0", "0000:25:00.1"]
GUEST = {"devices": CARD, "cpus": 1, "memory_gib": 4, "disk": "/srv/vm1", "network": "br0"}
PAGES = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
AGAIN = "Run bedplate.gpu.site for this host again."
REBOOT = "Reboot the host, or set gpu_passthrough_reboot_allowed and run the play again."


#: As update-grub writes it: the arguments of other systems' entries are nobody's business.
MENU = """\
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' {{
	linux	/boot/vmlinuz-6.1.0 root=/dev/sda1 ro {0} quiet
	initrd	/boot/initrd.img-6.1.0
}}
menuentry 'Debian GNU/Linux (recovery mode)' {{
	linux	/boot/vmlinuz-6.1.0 root=/dev/sda1 ro single {0}
}}
### END /etc/grub.d/10_linux ###

### BEGIN /etc/grub.d/30_os-prober ###
menuentry 'Another system' {{
	linux	/boot/vmlinuz root=/dev/sdb1
}}
### END /etc/grub.d/30_os-prober ###
"""


class Machine:
    """A sound hypervisor below a folder, with one guest."""

    def __init__(self, root: Path) -> None:
        topologies.write("server-rtx3090", root)
        self.root, self.unit, self.domains = root, "enabled", {}
        self.host = Host(str(root), self._run)
        for address in CARD:
            topologies.bind(root, address, "vfio-pci")
        arguments = passthrough_kernel.arguments(self.host, "1G", 4)
        self.host.write("/proc/cmdline", " ".join(arguments))
        self.host.write(passthrough_kernel.GRUB_MENU, MENU.format(" ".join(arguments)))
        self.host.write(PAGES, "4\n")
        binding = passthrough.binding(passthrough.functions(self.host), CARD)
        for path, (text, mode) in passthrough_kernel.files(binding).items():
            self.host.write(path, text, mode)
        settings = libvirt_guests.Settings("hv1", "qemu:///system", "kvm", "1G", CARD)
        wanted = libvirt_guests.guest(self.host, "vm1", GUEST, settings)
        self.domains["vm1"] = libvirt_guests.domain.xml(wanted, "of-vm1")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        if argv[:2] == ["systemctl", "is-enabled"]:
            return Result(0, self.unit + "\n", "")
        if argv[0] == "virsh" and self.domains is None:
            return Result(1, "", "error: failed to connect to the hypervisor\n")
        if "list" in argv:
            return Result(0, "\n".join(self.domains) + "\n", "")
        return Result(0, self.domains[argv[-1]], "")

    def checks(self, **changes: Any) -> list[dict[str, Any]]:
        wish: dict[str, Any] = {
            "devices": CARD,
            "iommu_groups": [CARD],
            "binding": "auto",
            "page_size": "1G",
            "pages": 4,
            "boot_loader": "auto",
            "guests": {"vm1": GUEST},
            "connection": "qemu:///system",
            "kind": "kvm",
        }
        wishes = Wishes(passthrough=wish | changes if changes != {"devices": []} else {})
        return host_evidence.collect(self.host, wishes, ["passthrough"])["checks"]

    def failures(self) -> list[str]:
        return evidence.failures(self.checks(), "hv1")


def test_a_sound_hypervisor(tmp_path: Path) -> None:
    checks = {check["id"]: check["result"] for check in Machine(tmp_path).checks()}
    names = ["arguments", "boot", "iommu", "groups", "bound"]
    names += ["configuration", "unit", "pages", "guests"]
    assert checks == {f"passthrough.{name}": "pass" for name in names}


def test_what_is_not_wished_is_skipped_with_a_reason(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    wished = machine.checks(guests={}, page_size="", boot_loader="none")
    machine.host.remove(passthrough_kernel.ADDRESSES)
    skipped = {
        check["id"]: check["reason"]
        for check in [*wished, *machine.checks(devices=[])]
        if check["result"] == "skipped"
    }
    assert skipped == {
        "passthrough": "the site gives no devices of this host to guests",
        "passthrough.boot": "the boot loader is not managed by Bedplate",
        "passthrough.guests": "the site asks for no guests here",
        "passthrough.pages": "the guests use small pages",
    }


def _rebind(machine: Machine) -> None:
    topologies.bind(machine.root, CARD[0], "nouveau")


def _forget_line(machine: Machine) -> None:
    machine.host.write("/proc/cmdline", "quiet hugepagesz=1G default_hugepagesz=1G hugepages=4")


def _forget_entry(machine: Machine) -> None:
    text = machine.host.read(passthrough_kernel.GRUB_MENU) or ""
    # The recovery entry alone: the sound one comes first.
    machine.host.write(
        passthrough_kernel.GRUB_MENU, text.replace("single iommu=pt", "single iommu=off")
    )


def _free(machine: Machine) -> None:
    topologies.bind(machine.root, CARD[0], None)


def _ask_for_less(machine: Machine) -> None:
    machine.host.write("/proc/cmdline", "iommu=pt hugepagesz=1G default_hugepagesz=1G hugepages=3")
    _lose_pages(machine)


def _switch_off(machine: Machine) -> None:
    (machine.root / "sys/kernel/iommu_groups").rename(machine.root / "gone")


def _edit(machine: Machine) -> None:
    machine.host.write(passthrough_kernel.MODPROBE, "options vfio-pci ids=10de:2204\n")


def _disable(machine: Machine) -> None:
    machine.unit = "disabled"


def _lose_pages(machine: Machine) -> None:
    machine.host.write(PAGES, "3\n")


def _two_nodes(machine: Machine, *pages: int) -> None:
    """Show NUMA nodes with so many huge pages each; the guest's card is on the first."""
    machine.host.write("/sys/devices/system/node/has_memory", "0-1\n")
    for node, count in enumerate(pages):
        name = PAGES.replace("kernel/mm", f"devices/system/node/node{node}")
        machine.host.write(name, f"{count}\n")
    binding = passthrough.binding(passthrough.functions(machine.host), CARD)
    wish = passthrough_kernel.Wish(binding, "1G", 4, ((0, 4), (1, 0)))
    for path, (text, mode) in pages_of_nodes.files(machine.host, wish).items():
        machine.host.write(path, text, mode)


def _resize(machine: Machine) -> None:
    machine.domains["vm1"] = machine.domains["vm1"].replace(">4<", ">2<")


def _undefine(machine: Machine) -> None:
    machine.domains = {}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            _rebind,
            (
                "functions for guests are held by vfio-pci — hv1 [passthrough.bound] — got "
                f"0000:25:00.0=nouveau / allowed 0000:25:00.0=vfio-pci — {REBOOT}"
            ),
        ),
        (
            _forget_line,
            (
                "running kernel has parameters of IOMMU and huge pages — hv1"
                " [passthrough.arguments] "
                "— got default_hugepagesz=1G, hugepagesz=1G, hugepages=4 (reboot required) / "
                f"allowed iommu=pt, default_hugepagesz=1G, hugepagesz=1G, hugepages=4 — {REBOOT}"
            ),
        ),
        (
            _forget_entry,
            (
                "next boot's kernel gets parameters of IOMMU and huge pages — hv1"
                " [passthrough.boot] — "
                "got default_hugepagesz=1G, hugepagesz=1G, hugepages=4 / allowed iommu=pt, "
                f"default_hugepagesz=1G, hugepagesz=1G, hugepages=4 — {AGAIN}"
            ),
        ),
        (
            _free,
            (
                "functions for guests are held by vfio-pci — hv1 [passthrough.bound] — got "
                f"0000:25:00.0=no driver / allowed 0000:25:00.0=vfio-pci — {AGAIN}"
            ),
        ),
        (
            _switch_off,
            (
                "IOMMU is in use — hv1 [passthrough.iommu] — got off / allowed on — Switch on "
                "VT-d, AMD-Vi or SMMU in the firmware, and reboot."
            ),
        ),
        (
            _edit,
            (
                "configuration of vfio-pci is ours and unchanged — hv1 "
                "[passthrough.configuration] — got /etc/modprobe.d/bedplate-vfio.conf / "
                f"allowed nothing — {AGAIN}"
            ),
        ),
        (
            _disable,
            (
                "functions are bound by address at every boot — hv1 [passthrough.unit] — got "
                f"disabled / allowed enabled — {AGAIN}"
            ),
        ),
        (
            _lose_pages,
            (
                "huge pages for the guests' memory — hv1 [passthrough.pages] — got 3 / allowed "
                f"4 — {AGAIN}"
            ),
        ),
        (
            _resize,
            (
                "guests are defined as requested — hv1 [passthrough.guests] — got vm1:"
                " memory_bytes: "
                f"2147483648 instead of 4294967296 / allowed nothing — {AGAIN}"
            ),
        ),
        (
            _undefine,
            (
                "guests are defined as requested — hv1 [passthrough.guests] — got vm1 is not "
                f"defined / allowed nothing — {AGAIN}"
            ),
        ),
    ],
)
def test_each_fault_is_told(fault: Callable[[Machine], None], said: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.failures() == []
    fault(machine)
    assert machine.failures() == [said]


def test_a_card_that_is_no_longer_given_away_is_told_until_the_boot(tmp_path: Path) -> None:
    """Whether or not the host gives away anything else."""
    machine = Machine(tmp_path)
    other = ["0000:81:00.0", "0000:81:00.1"]
    machine.host.write(passthrough_kernel.RELEASED, "".join(f"{one}\n" for one in other))
    assert machine.failures() == []
    for address in other:
        topologies.bind(machine.root, address, "vfio-pci")
    said = (
        "functions for guests are held by vfio-pci — hv1 [passthrough.bound] — got "
        "{0}=vfio-pci, {1}=vfio-pci (reboot required) / "
        "allowed {0}=no longer given away, {1}=no longer given away "
        "— Run bedplate.gpu.site for this "
        "host again, and reboot it or set gpu_passthrough_reboot_allowed."
    )
    assert machine.failures() == [said.format(*other)]
    machine.host.remove(passthrough_kernel.RELEASED)
    assert machine.failures() == []
    # Nothing is given away any more, and no play has run since.
    assert evidence.failures(machine.checks(devices=[]), "hv1") == [said.format(*CARD)]


def test_pages_that_the_kernel_was_never_told_of_need_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    _ask_for_less(machine)
    assert [said for said in machine.failures() if "passthrough.pages" in said] == [
        (
            "huge pages for the guests' memory — hv1 [passthrough.pages] — got 3 / allowed "
            f"4 — {REBOOT}"
        )
    ]


def test_pages_on_another_node_than_the_guests_are_none(tmp_path: Path) -> None:
    """As many as are wished in all do not help a guest that takes memory of one node alone."""
    machine = Machine(tmp_path)
    _two_nodes(machine, 2, 2)
    assert machine.failures() == [
        (
            "huge pages for the guests' memory — hv1 [passthrough.pages] — got node 0=2 / allowed "
            f"node 0=4 — {AGAIN}"
        )
    ]
    _two_nodes(machine, 5, 2)
    assert machine.failures() == [], "a node may have more"


def test_what_places_pages_at_boot_is_looked_at(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    _two_nodes(machine, 4, 0)
    assert machine.failures() == []
    machine.unit = "disabled"
    machine.host.write(pages_of_nodes.PLACES, "# Managed by Bedplate\n0 1048576 3\n")
    assert machine.failures() == [
        (
            "configuration of vfio-pci is ours and unchanged — hv1 [passthrough.configuration] — "
            f"got /etc/bedplate/huge-pages / allowed nothing — {AGAIN}"
        ),
        (
            "functions are bound by address at every boot — hv1 [passthrough.unit] — got "
            f"disabled / allowed enabled — {AGAIN}"
        ),
        (
            "huge pages are placed on NUMA nodes at every boot — hv1 [passthrough.pages_unit] — "
            f"got disabled / allowed enabled — {AGAIN}"
        ),
    ]


def test_a_menu_without_entries_is_not_judged(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.host.write(passthrough_kernel.GRUB_MENU, "set timeout=5\n")
    (said,) = [check for check in machine.checks() if check["id"] == "passthrough.boot"]
    assert (said["result"], said["reason"]) == ("skipped", "no boot entry of this system is known")


def test_a_guest_whose_shares_were_not_made_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    shares = {"vgpu": ["grid_t4-16c"], "cpus": 1, "memory_gib": 4, "disk": "/d", "network": "br0"}
    (said,) = evidence.failures(machine.checks(guests={"vm1": shares}), "hv1")
    assert "got vm1: its shares of GPUs were not made / allowed nothing" in said


def test_a_libvirt_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.domains = None
    assert machine.failures() == [
        (
            "guests are defined as requested — hv1 [passthrough.guests] — got error: failed to "
            "connect to the hypervisor / allowed an answer — See 'systemctl status libvirtd' on "
            "the host."
        )
    ]
