"""Shares of a hypervisor's cards by vGPU: what the cards offer, whose each share is, making them.

NVIDIA's vGPU manager shows its shares in one of two forms (its user guide, "Creating an NVIDIA
vGPU on a Linux with KVM Hypervisor"): mediated devices below a card or a virtual function of it,
or, under its vendor-specific VFIO framework, a type that is written to a virtual function. Neither
survives a boot, so a unit makes the recorded shares again before libvirt starts a guest.
"""

import contextlib
import os
import re
import uuid
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import pci
from ..host import Host
from ..kernel.settings import HEADER

ROLE = "gpu_passthrough"
RECORD = "/etc/bedplate/vgpu-shares"
MAKER = "/usr/libexec/bedplate/vgpu-shares"
UNIT = "bedplate-vgpu.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
#: The manager's own program: SR-IOV of these cards is switched by nothing else (its user guide).
SRIOV = "/usr/lib/nvidia/sriov-manage"
#: The manager's service that stays; nvidia-vgpud tells the module of profiles and ends.
SERVICE = "nvidia-vgpu-mgr.service"
MEDIATED = "/sys/bus/mdev/devices"
#: A function without a share has this type.
NO_TYPE = "0"
_CREATABLE = re.compile(r"^\s*(\d+)\s*:\s*(\S.*?)\s*$")
_VIRTUAL = re.compile(r"^virtfn(\d+)$")
#: The last number of a profile is its share of the card's memory in GB, MIG-backed ones included;
#: 0 stands for 512 MB (https://docs.nvidia.com/grid/latest/grid-vgpu-user-guide/index.html, types).
_SIZE = re.compile(r"-(\d+)[abcq](?:me|nome|meall|gfx)?$")

SCRIPT = f"""#!/bin/sh
# Managed by Bedplate (role {ROLE}): changes here are lost.
# Makes the shares of GPUs that are listed in {RECORD}, those that are absent.
set -u
devices=/sys/bus/pci/devices
status=0

# The manager shows its files a while after its daemons have started.
await() {{
    left=30
    while [ ! -e "$1" ] && [ $left -gt 0 ]; do
        sleep 1
        left=$((left - 1))
    done
}}

while read -r what function type uuid _; do
    device=$devices/$function
    case $what in
        card)
            [ "$(cat "$device/sriov_totalvfs" 2>/dev/null || echo 0)" -gt 0 ] || continue
            [ "$(cat "$device/sriov_numvfs")" -gt 0 ] ||
                {SRIOV} -e "$function" </dev/null || status=1
            ;;
        share)
            if [ "$uuid" != - ]; then
                await "$device/mdev_supported_types/$type/create"
                [ -e {MEDIATED}/"$uuid" ] ||
                    echo "$uuid" > "$device/mdev_supported_types/$type/create" || status=1
                continue
            fi
            await "$device/nvidia/current_vgpu_type"
            if [ "$(cat "$device/nvidia/current_vgpu_type")" != "$type" ]; then
                echo "$type" > "$device/nvidia/current_vgpu_type" || status=1
            fi
            ;;
    esac
done < {RECORD}
exit $status
"""

UNIT_TEXT = f"""# Managed by Bedplate (role {ROLE}): changes here are lost.
[Unit]
Description=Make shares of GPUs for guests
ConditionPathExists={RECORD}
# Every new share starts it again.
StartLimitIntervalSec=0
After=nvidia-vgpud.service {SERVICE}
Before=libvirtd.service virtqemud.service libvirt-guests.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={MAKER}

[Install]
WantedBy=multi-user.target
"""


class Share(NamedTuple):
    """One share: the guest's ``number``-th. ``identity`` is empty where it is no mediated device.

    ``kind`` is the manager's own name of the profile on this host: ``nvidia-231``, or ``1178``.
    """

    guest: str
    number: int
    profile: str
    card: str
    function: str
    kind: str
    identity: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.guest}/{self.number} {self.profile}"


Wish = Tuple[str, int, str]


def wishes(guests: Mapping[str, Mapping[str, object]]) -> List[Wish]:
    """The guest, the number and the profile of every share that is wished."""
    found: List[Wish] = []
    for name, guest in sorted(guests.items()):
        profiles = guest.get("vgpu") or []
        if isinstance(profiles, (list, tuple)):
            found += [(name, number, str(one)) for number, one in enumerate(profiles)]
    return found


def functions(host: Host, card: str) -> List[str]:
    """A card and its virtual functions, by number."""
    folder = f"{pci.DEVICES}/{card}"
    numbers = sorted(int(m.group(1)) for m in map(_VIRTUAL.match, host.list(folder)) if m)
    found = [os.path.realpath(host.path(f"{folder}/virtfn{number}")) for number in numbers]
    return [card, *(os.path.basename(path) for path in found)]


def without_functions(host: Host, card: str) -> bool:
    """Whether a card makes its shares on virtual functions, and has none yet."""
    folder = f"{pci.DEVICES}/{card}"
    most = (host.read(folder + "/sriov_totalvfs") or "0").strip()
    now = (host.read(folder + "/sriov_numvfs") or "0").strip()
    return most not in ("", "0") and now in ("", "0")


def profile_of(name: str) -> str:
    """A profile as sites and vSphere write it, of the name that the manager shows.

    >>> profile_of("NVIDIA L40S-12Q")
    'nvidia_l40s-12q'
    """
    return "_".join(name.lower().split())


def memory_gib(profile: str) -> Optional[float]:
    """The memory that a share of that profile has; None where its name does not tell.

    >>> memory_gib("nvidia_l40s-12q"), memory_gib("grid_a100-1-5cme"), memory_gib("grid_m10-0q")
    (12.0, 5.0, 0.5)
    """
    found = _SIZE.search(profile.lower())
    return (float(found.group(1)) or 0.5) if found else None


def offers(host: Host, function: str) -> Dict[str, str]:
    """What can be made on a function now: the manager's name of each profile."""
    folder = f"{pci.DEVICES}/{function}"
    current = host.read(folder + "/nvidia/current_vgpu_type")
    if current is not None:
        if current.strip() != NO_TYPE:
            return {}
        listed = (host.read(folder + "/nvidia/creatable_vgpu_types") or "").splitlines()
        return {profile_of(m.group(2)): m.group(1) for m in map(_CREATABLE.match, listed) if m}
    found = {}
    for kind in host.list(folder + "/mdev_supported_types"):
        mine = f"{folder}/mdev_supported_types/{kind}"
        left = (host.read(mine + "/available_instances") or "0").strip()
        if left.isdigit() and int(left):
            found[profile_of(host.read(mine + "/name") or kind)] = kind
    return found


def mediated(host: Host, function: str) -> bool:
    """Whether shares of a function are mediated devices."""
    return host.exists(f"{pci.DEVICES}/{function}/mdev_supported_types")


def there(host: Host, share: Share) -> bool:
    """Whether a share is made."""
    if share.identity:
        return host.exists(f"{MEDIATED}/{share.identity}")
    now = host.read(f"{pci.DEVICES}/{share.function}/nvidia/current_vgpu_type") or ""
    return now.strip() == share.kind


def identity_of(where: str, guest: str, number: int) -> str:
    """The identity of a mediated device: the same whenever it is made again."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{guest}.{where}"))


def place(
    host: Host, cards: Sequence[str], wish: Wish, made: Sequence[Share], where: str
) -> Optional[Share]:
    """Where a share is to be: on a card that has its like before an empty one; None without room.

    Cards hold shares of one size, as a rule: filling those that are begun leaves others for other
    sizes.
    """
    guest, number, profile = wish
    begun = {share.card for share in made if share.profile == profile}
    taken = {share.function for share in made if not share.identity}
    for card in sorted(cards, key=lambda one: (one not in begun, one)):
        for function in functions(host, card):
            kind = offers(host, function).get(profile) if function not in taken else None
            if kind is not None:
                many = mediated(host, function)
                identity = identity_of(where, guest, number) if many else ""
                return Share(guest, number, profile, card, function, kind, identity)
    return None


def text(cards: Sequence[str], shares: Sequence[Share]) -> str:
    """The record: what the unit makes at boot, and whose it is."""
    lines = [f"card {card}" for card in sorted(cards)]
    lines += [
        f"share {s.function} {s.kind} {s.identity or '-'} {s.guest} {s.number} {s.profile} {s.card}"
        for s in sorted(shares)
    ]
    return HEADER.format(ROLE) + "\n".join(lines) + "\n"


def recorded(host: Host) -> List[Share]:
    """The shares that were made for guests of the site."""
    found = []
    for line in (host.read(RECORD) or "").splitlines():
        words = line.split()
        if len(words) == 8 and words[0] == "share" and words[5].isdigit():
            _, function, kind, identity, guest, number, profile, card = words
            own = "" if identity == "-" else identity
            found.append(Share(guest, int(number), profile, card, function, kind, own))
    return found


def of_guests(host: Host) -> Dict[str, List[Share]]:
    """The recorded shares by guest, in the order of the guest's wishes."""
    found: Dict[str, List[Share]] = {}
    for share in sorted(recorded(host)):
        found.setdefault(share.guest, []).append(share)
    return found


def put(host: Host, path: str, value: str) -> Optional[str]:
    """Write into a file of sysfs, which none can replace; the kernel's reason where it refuses."""
    try:
        with open(host.path(path), "w", encoding="ascii") as stream:
            stream.write(value + "\n")
    except OSError as error:
        return error.strerror or str(error)
    return None


def unmake(host: Host, share: Share) -> Optional[str]:
    """Take a share away; the kernel's reason where a guest has it."""
    if not there(host, share):
        return None
    if share.identity:
        return put(host, f"{MEDIATED}/{share.identity}/remove", "1")
    return put(host, f"{pci.DEVICES}/{share.function}/nvidia/current_vgpu_type", NO_TYPE)


def kept(
    host: Host, cards: Sequence[str], wished: Sequence[Wish]
) -> Tuple[List[Share], List[Share]]:
    """The recorded shares that stay, and those that go.

    A share that is not made, and that its function offers under another name or not at all while
    it offers something, is placed anew: another manager was installed. What is not shown yet (the
    functions of a card, or their profiles) moves nothing.
    """
    stay: List[Share] = []
    go: List[Share] = []
    for share in recorded(host):
        same = (share.guest, share.number, share.profile) in wished and share.card in cards
        (stay if same and _stays(host, share) else go).append(share)
    return stay, go


def _stays(host: Host, share: Share) -> bool:
    if not host.exists(f"{pci.DEVICES}/{share.function}"):
        return without_functions(host, share.card)
    offered = offers(host, share.function)
    return there(host, share) or not offered or offered.get(share.profile) == share.kind


def cards(host: Host) -> List[str]:
    """The cards that were shared."""
    lines = (line.split() for line in (host.read(RECORD) or "").splitlines())
    return [words[1] for words in lines if len(words) == 2 and words[0] == "card"]


def room(host: Host, cards: Sequence[str]) -> str:
    """What the cards offer now, for messages."""
    found = set()
    with contextlib.suppress(OSError):
        for card in cards:
            for function in functions(host, card):
                found |= set(offers(host, function))
    return ", ".join(sorted(found)) or "nothing"
