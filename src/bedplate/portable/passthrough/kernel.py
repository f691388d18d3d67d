"""What a hypervisor's kernel is told: command line, vfio-pci's ids and addresses, huge pages."""

import contextlib
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..host import Host
from ..kernel.settings import HEADER
from ..message import problem
from . import functions as passthrough

ROLE = "gpu_passthrough"
GRUB = "/etc/default/grub"
GRUB_DROP_IN = "/etc/default/grub.d/90-bedplate-passthrough.cfg"
#: What update-grub writes, and GRUB reads at boot.
GRUB_MENU = "/boot/grub/grub.cfg"
#: The part of it that is about the system's own kernels, ZFS's variant of it included.
_OWN_ENTRIES = re.compile(
    r"^### BEGIN /etc/grub\.d/10_linux\S* ###$(.*?)^### END ", re.DOTALL | re.MULTILINE
)
_KERNEL = re.compile(r"^\s*linux\S*\s+(.*)$", re.MULTILINE)
#: What was added by grubby, so that what is no longer wished can be taken away again.
ADDED = "/var/lib/bedplate/passthrough-arguments"
MODPROBE = "/etc/modprobe.d/bedplate-vfio.conf"
LOAD = "/etc/modules-load.d/bedplate-vfio.conf"
INITRAMFS_MODULES = "/etc/initramfs-tools/modules"
DRACUT = "/etc/dracut.conf.d/90-bedplate-vfio.conf"
ADDRESSES = "/etc/bedplate/vfio-devices"
#: What was taken out of that since the boot: vfio-pci has it until the next one, and so long this
#: file is there. What others gave to vfio-pci is in neither, and theirs.
RELEASED = "/run/bedplate/vfio-released"
BINDER = "/usr/libexec/bedplate/vfio-bind"
UNIT = "bedplate-vfio.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
#: vfio_virqfd was a module of its own before Linux 6.2: it is loaded as a dependency there.
MODULES = ("vfio", "vfio_iommu_type1", "vfio_pci")
#: How they stand in a file that is the user's.
MODULE_LINES = tuple(f"{name} # Bedplate, {ROLE}" for name in MODULES)
#: What could claim a card before vfio-pci has it, where nothing of NVIDIA's runs on the host.
BEFORE = ("nouveau", "nvidia", "nvidiafb", "snd_hda_intel", "nvidia_drm", "amdgpu", "radeon")
#: The kernel's huge page sizes on x86-64 and arm64, by the name that its command line takes.
PAGE_SIZES = {"2M": 2048, "1G": 1048576}

SCRIPT = f"""#!/bin/sh
# Managed by Bedplate (role gpu_passthrough): changes here are lost.
# Gives the functions listed in {ADDRESSES} to vfio-pci,
# before udev lets any other driver have them.
set -u
modprobe vfio-pci || exit 1
status=0
while read -r address; do
    case $address in ''|'#'*) continue ;; esac
    device=/sys/bus/pci/devices/$address
    if [ ! -e "$device" ]; then
        echo "no such PCI function: $address" >&2
        status=1
        continue
    fi
    echo vfio-pci > "$device/driver_override"
    if [ -e "$device/driver" ]; then
        [ "$(basename "$(readlink "$device/driver")")" = vfio-pci ] && continue
        echo "$address" > "$device/driver/unbind"
    fi
    echo "$address" > /sys/bus/pci/drivers_probe || status=1
done < {ADDRESSES}
exit $status
"""

SERVICE = f"""# Managed by Bedplate (role {ROLE}): changes here are lost.
[Unit]
Description=Give PCI functions to vfio-pci by address
DefaultDependencies=no
ConditionPathExists={ADDRESSES}
# Before anything loads a driver that could claim the GPUs.
Before=systemd-modules-load.service systemd-udev-trigger.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={BINDER}

[Install]
WantedBy=sysinit.target
"""


#: Huge pages by NUMA node.
Places = Tuple[Tuple[int, int], ...]


class Wish(NamedTuple):
    """What the kernel is to be told; ``pages`` of ``page_size``, none where that is empty.

    ``places`` says where they are to be, and is empty on a host with one node.
    """

    binding: passthrough.Binding
    page_size: str
    pages: int
    places: Places = ()


def arguments(host: Host, page_size: str, pages: int) -> List[str]:
    """The command line's additions.

    AMD's IOMMU is on by default; Intel's is not on every distribution's kernel. ``iommu=pt`` lets
    the host's own devices go past it. Huge pages of 1 GiB can hardly be had after boot.
    """
    cpu = re.search(r"^vendor_id\s*:\s*(\S+)", host.read("/proc/cpuinfo") or "", re.MULTILINE)
    intel = bool(cpu) and cpu is not None and cpu.group(1) == "GenuineIntel"
    found = ["intel_iommu=on"] if intel else []
    found.append("iommu=pt")
    if page_size and pages:
        found += [f"default_hugepagesz={page_size}", f"hugepagesz={page_size}"]
        found.append(f"hugepages={pages}")
    return found


def missing_arguments(host: Host, wished: Sequence[str]) -> List[str]:
    """Those that the running kernel was not given."""
    running = (host.read("/proc/cmdline") or "").split()
    return [argument for argument in wished if argument not in running]


def files(binding: passthrough.Binding) -> Dict[str, Tuple[str, int]]:
    """Files by path: text and mode. All of them are ours alone."""
    header = HEADER.format(ROLE)
    options = [f"softdep {name} pre: vfio-pci" for name in BEFORE]
    if binding.ids:
        options.insert(0, "options vfio-pci ids=" + ",".join(binding.ids))
    return {
        MODPROBE: (header + "\n".join(options) + "\n", 0o644),
        LOAD: (header + "\n".join(MODULES) + "\n", 0o644),
        ADDRESSES: (header + "\n".join(binding.addresses) + "\n", 0o644),
        BINDER: (SCRIPT, 0o755),
        UNIT_FILE: (SERVICE, 0o644),
    }


def initramfs(host: Host) -> Optional[Tuple[str, str, List[str]]]:
    """The file that brings vfio into the initramfs, its text, and the program that rebuilds it.

    None on a host without a known one: vfio-pci then claims ids when the root file system is there.
    """
    if host.exists("/usr/sbin/update-initramfs"):
        kept = host.content(INITRAMFS_MODULES) or ""
        have = {line.split("#")[0].strip() for line in kept.splitlines()}
        # A line of the user's stays where it is: it would not come back with a reset.
        more = [line + "\n" for line in MODULE_LINES if line.split("#")[0].strip() not in have]
        gap = "\n" if more and kept and not kept.endswith("\n") else ""
        text = kept + gap + "".join(more)
        return INITRAMFS_MODULES, text, ["/usr/sbin/update-initramfs", "-u", "-k", "all"]
    if host.exists("/usr/bin/dracut"):
        text = HEADER.format(ROLE) + 'force_drivers+=" {} "\n'.format(" ".join(MODULES))
        return DRACUT, text, ["/usr/bin/dracut", "--regenerate-all", "--force"]
    return None


def _grub_text(wished: Sequence[str]) -> str:
    added = " ".join(wished)
    return HEADER.format(ROLE) + f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {added}"\n'


class BootLoader(NamedTuple):
    """How the command line is kept: files to have, and commands that put them in force."""

    files: Dict[str, str]
    commands: List[List[str]]


def boot_loader(host: Host, wished: Sequence[str], where: str) -> Tuple[BootLoader, List[str]]:
    """What has to be done for the next boot's command line; problems where nobody knows how."""
    if host.exists("/usr/sbin/grubby"):
        return _grubby(host, wished, where)
    if host.exists(GRUB) and host.exists("/usr/sbin/update-grub"):
        return BootLoader({GRUB_DROP_IN: _grub_text(wished)}, [["/usr/sbin/update-grub"]]), []
    return BootLoader({}, []), [
        problem(
            "the boot loader is not known",
            where,
            "neither update-grub nor grubby",
            "GRUB, or a boot loader that grubby knows",
            "Add '{}' to the kernel's command line, reboot, and set"
            " gpu_passthrough_boot_loader: none.".format(" ".join(wished)),
        )
    ]


def _grubby_entries(host: Host) -> Tuple[List[List[str]], str]:
    """The arguments of every boot entry that grubby knows, and the reason where it fails."""
    shown = host.run(["/usr/sbin/grubby", "--info=ALL"])
    if shown.code != 0:
        return [], shown.said
    entries = [
        line.partition("=")[2].strip().strip('"').split()
        for line in shown.out.splitlines()
        if line.startswith("args=")
    ]
    return entries, ""


def next_boot(host: Host, wished: Sequence[str]) -> Tuple[Optional[List[str]], str]:
    """Those of ``wished`` that every boot entry has; None and a reason where it cannot be told."""
    if host.exists("/usr/sbin/grubby"):
        entries, reason = _grubby_entries(host)
    else:
        own = "".join(_OWN_ENTRIES.findall(host.read(GRUB_MENU) or ""))
        entries, reason = [line.split() for line in _KERNEL.findall(own)], ""
    if not entries:
        return None, reason or "no boot entry of this system is known"
    return [argument for argument in wished if all(argument in entry for entry in entries)], ""


def _grubby(host: Host, wished: Sequence[str], where: str) -> Tuple[BootLoader, List[str]]:
    entries, reason = _grubby_entries(host)
    if reason:
        fix = "Run 'grubby --info=ALL' on the host, and fix what it says."
        said = problem("grubby does not answer", where, reason, "the boot entries", fix)
        return BootLoader({}, []), [said]
    old = set((host.read(ADDED) or "").split()) - set(wished)
    stale = sorted(a for a in old if any(a in entry for entry in entries))
    absent = [a for a in wished if not entries or any(a not in entry for entry in entries)]
    command = ["/usr/sbin/grubby", "--update-kernel=ALL"]
    if absent:
        command.append("--args=" + " ".join(absent))
    if stale:
        command.append("--remove-args=" + " ".join(stale))
    needed = [command] if absent or stale else []
    # What an owner had there before stays theirs.
    mine = set((host.read(ADDED) or "").split()) | set(absent)
    return BootLoader({ADDED: " ".join(a for a in wished if a in mine) + "\n"}, needed), []


def _pages_file(page_size: str, node: Optional[int]) -> str:
    of = "/sys/kernel/mm" if node is None else f"/sys/devices/system/node/node{node}"
    return f"{of}/hugepages/hugepages-{PAGE_SIZES[page_size]}kB/nr_hugepages"


def pages_now(host: Host, page_size: str, node: Optional[int] = None) -> Optional[int]:
    """How many huge pages of that size the running kernel has; None where it has not the size."""
    text = host.read(_pages_file(page_size, node))
    return int(text) if text and text.strip().isdigit() else None


def dead_iommu(host: Host, wished: Sequence[str], where: str) -> List[str]:
    """The problem of a kernel that was told to use its IOMMU and found none."""
    if passthrough.active(host) or missing_arguments(host, wished):
        return []
    return [
        problem(
            "the IOMMU stays off although the kernel has the parameters for it",
            where,
            "no groups below " + passthrough.GROUPS,
            "IOMMU groups",
            "Switch on VT-d, AMD-Vi or SMMU in the firmware, and reboot.",
        )
    ]


def held(host: Host, wish: Wish) -> List[str]:
    """Functions that another driver has: only a reboot takes them away without disturbing it."""
    present = passthrough.functions(host)
    found = [present[address] for address in wish.binding.addresses if address in present]
    return [
        f"{one} is controlled by {one.driver}"
        for one in found
        if one.driver not in (None, passthrough.DRIVER)
    ]


def _listed(host: Host, path: str) -> Set[str]:
    lines = (line.strip() for line in (host.read(path) or "").splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def _former(host: Host, binding: passthrough.Binding) -> Set[str]:
    """Functions that were given to vfio-pci since the boot, and are no longer to be."""
    return (_listed(host, ADDRESSES) | _listed(host, RELEASED)) - set(binding.addresses)


def release(host: Host, binding: passthrough.Binding) -> None:
    """Remember what the list is about to lose: nothing else tells it from what others gave."""
    former = _former(host, binding)
    if former - _listed(host, RELEASED):
        host.write(RELEASED, "".join(f"{address}\n" for address in sorted(former)))


def released(host: Host, binding: passthrough.Binding) -> List[passthrough.Function]:
    """Functions that are no longer given away, and that vfio-pci has until the next boot."""
    present = passthrough.functions(host)
    found = [present[address] for address in sorted(_former(host, binding)) if address in present]
    return [one for one in found if one.driver == passthrough.DRIVER]


def reserve(host: Host, page_size: str, pages: int, node: Optional[int] = None) -> None:
    """Ask the running kernel for huge pages; it makes as many as free memory has in one piece."""
    path = host.path(_pages_file(page_size, node))
    # The kernel's own file: no other can be put in its place. A kernel that makes none of that size
    # after boot says so by an error; how many there are is counted anyhow.
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as stream:
        stream.write(f"{pages}\n")


def waiting(host: Host, wish: Wish, wished: Sequence[str]) -> List[str]:
    """What only a reboot brings; empty once nothing is left to bring."""
    missing = missing_arguments(host, wished)
    found = ["the running kernel lacks " + " ".join(missing)] if missing else []
    found += held(host, wish)
    left = released(host, wish.binding)
    return found + [f"{one} is no longer given away and still held by {one.driver}" for one in left]


def unbound(host: Host, wish: Wish) -> List[str]:
    """Functions that no driver has, and that vfio-pci can be given now."""
    if not passthrough.active(host):
        return []
    present = passthrough.functions(host)
    return [a for a in wish.binding.addresses if a in present and present[a].driver is None]
