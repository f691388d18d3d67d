"""MIG layout and compute mode of a host's GPUs: read, compared with the wish, and changed.

By nvidia-smi's own commands, because they are the same on every driver since MIG exists, and what
they print is what an administrator sees. Nothing is changed that is as wished already: a MIG device
that is destroyed takes its workload and its UUID with it.
"""

import contextlib
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from . import holders
from .host import Host
from .message import problem

#: nvidia-smi's words of the modes that are left to choose; the driver has more, for display cards.
COMPUTE_MODES = {
    "default": "Default",
    "exclusive-process": "Exclusive_Process",
    "prohibited": "Prohibited",
}
#: Exit status of nvidia-smi where there is nothing to list.
NOT_FOUND = 6
#: It keeps the cards initialised and is stopped for a change of mode, so it is no workload.
#: nvidia-smi itself may be another one's glance at the cards.
_NO_WORKLOAD = (holders.DAEMON, "nvidia-persiste", "nvidia-smi")
_QUERY = "index,uuid,mig.mode.current,mig.mode.pending,compute_mode"
_INSTANCE = re.compile(r"^\|\s*(\d+)\s+MIG\s+(\S+)\s+\d+\s+\d+\s+\d+:\d+\s*\|$", re.MULTILINE)
_GPU = re.compile(r"^GPU (\d+): ")
_DEVICE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")
_NODE = re.compile(r"^/dev/nvidia\d+$")
#: Any of them, also one that belongs to no card, keeps the module loaded.
_ANY_NODE = re.compile(r"^/dev/nvidia")
#: The control group of a process whose service is stopped for a change too. Not by the program's
#: name: one that runs in a container, or was started by hand, nobody stops.
_SERVICE = r":/(?:[^/\n]+\.slice/)*(?:{})\.service$"
#: The class of a VGA controller in sysfs.
_VGA = "0x0300"
_SLICES = re.compile(r"^(\d+)g\.(\d+)gb")


class MigError(Exception):
    """The GPUs cannot be read or divided as wished; the text says what to do about it."""


class Wish(NamedTuple):
    """What every GPU is to be: the profiles it is cut into (none: not divided), its compute mode.

    `cards` has the profiles of GPUs that differ from the others, by their numbers. An empty compute
    mode leaves that to the device plugin's MPS daemon, which sets it.
    """

    profiles: Tuple[str, ...]
    compute_mode: str
    cards: Mapping[int, Tuple[str, ...]] = {}

    def of(self, number: int) -> Tuple[str, ...]:
        """The profiles of one GPU."""
        return self.cards.get(number, self.profiles)


class Card(NamedTuple):
    """One GPU. ``mig`` is None where it cannot be divided.

    ``instances`` are the profiles of its GPU instances, ``devices`` those of the MIG devices in
    them: a run that was cut off between the two leaves instances without devices.
    """

    number: int
    uuid: str
    mig: Optional[bool]
    pending: Optional[bool]
    compute_mode: str
    instances: Tuple[str, ...] = ()
    devices: Tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What was done, or would be; ``waiting`` says why cards keep their mode until a reboot."""

    changed: bool
    before: Dict[str, str]
    after: Dict[str, str]
    waiting: str = ""


def wish(
    profiles: Sequence[str], compute_mode: str, layout: Sequence[Mapping[str, Any]] = ()
) -> Wish:
    """A wish from what the lock says: `layout` is of ``{cards: [0], profiles: {1g.10gb: 7}}``.

    With a layout, a GPU that it does not name, or names without profiles, is not divided.
    """
    cards = {
        int(number): tuple(
            name for name, count in part.get("profiles", {}).items() for _ in range(int(count))
        )
        for part in layout
        for number in part["cards"]
    }
    return Wish(() if layout else tuple(profiles), compute_mode, cards)


def _smi(host: Host, *words: str, good: Sequence[int] = (0,)) -> str:
    answer = host.run(["nvidia-smi", *words], timeout=300)
    if answer.code not in good:
        raise MigError(
            problem(
                "nvidia-smi cannot do what is asked of it",
                "nvidia-smi " + " ".join(words),
                answer.said,
                "exit status 0",
                "See nvidia-smi and the kernel's log on the host.",
            )
        )
    return answer.out


def _switch(word: str) -> Optional[bool]:
    return {"Enabled": True, "Disabled": False}.get(word)


def read(host: Host) -> List[Card]:
    """The host's GPUs in the order of their numbers.

    Raises:
        MigError: nvidia-smi does not answer, or not as expected.
    """
    cards = []
    for line in _smi(host, "--query-gpu=" + _QUERY, "--format=csv,noheader").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_QUERY.split(",")) or not fields[0].isdigit():
            raise MigError(
                problem(
                    "nvidia-smi printed an unexpected row",
                    "nvidia-smi --query-gpu=" + _QUERY,
                    line,
                    _QUERY,
                    "See whether nvidia-smi works on the host.",
                )
            )
        index, uuid, now, pending, compute = fields
        cards.append(Card(int(index), uuid, _switch(now), _switch(pending), compute))
    if not any(card.mig for card in cards):
        return cards
    instances: Dict[int, List[str]] = {}
    for index, profile in _INSTANCE.findall(_smi(host, "mig", "-lgi", good=(0, NOT_FOUND))):
        instances.setdefault(int(index), []).append(profile)
    devices = mig_devices(_smi(host, "-L"))
    return [
        card._replace(
            instances=tuple(sorted(instances.get(card.number, ()))),
            devices=tuple(sorted(profile for profile, _ in devices.get(card.number, ()))),
        )
        for card in cards
    ]


def mig_devices(text: str) -> Dict[int, List[Tuple[str, str]]]:
    """Profile and UUID of each MIG device by GPU, from ``nvidia-smi -L``."""
    found: Dict[int, List[Tuple[str, str]]] = {}
    index = -1
    for line in text.splitlines():
        gpu, device = _GPU.match(line), _DEVICE.match(line)
        if gpu:
            index = int(gpu.group(1))
        elif device:
            found.setdefault(index, []).append((device.group(1), device.group(2)))
    return found


def layout_text(profiles: Sequence[str]) -> str:
    """``2 x 3g.40gb, 1 x 1g.10gb``, the largest first."""
    names = sorted(set(profiles), key=_by_size, reverse=True)
    return ", ".join(f"{list(profiles).count(name)} x {name}" for name in names)


def _by_size(profile: str) -> Tuple[int, int, str]:
    found = _SLICES.match(profile)
    slices, memory = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    return (slices, memory, profile)


def described(card: Card) -> str:
    """A card's layout in words."""
    if not card.mig:
        return "not divided"
    if card.instances != card.devices:
        return "half divided: instances {}, devices {}".format(
            layout_text(card.instances) or "none", layout_text(card.devices) or "none"
        )
    return layout_text(card.devices) or "MIG on, not divided"


def wished_text(profiles: Sequence[str]) -> str:
    """A GPU's wished layout in the words of `described`."""
    return layout_text(profiles) if profiles else "not divided"


def wished_layout(wish: Wish) -> str:
    """The wished layout of all GPUs: one text where they are alike, otherwise one of each."""
    if not wish.cards:
        return wished_text(wish.profiles)
    return ", ".join(f"GPU {n}: {wished_text(wish.cards[n])}" for n in sorted(wish.cards))


def absent(cards: Sequence[Card], wish: Wish) -> List[str]:
    """Numbers of GPUs that the wish names and the host does not have."""
    return [str(n) for n in sorted(set(wish.cards) - {card.number for card in cards})]


def _state(cards: Sequence[Card], wish: Wish) -> Dict[str, str]:
    state = {}
    for card in cards:
        state[f"GPU {card.number}"] = described(card)
        if wish.compute_mode:
            state[f"GPU {card.number} compute mode"] = card.compute_mode
    return state


def _divided_otherwise(card: Card, wish: Wish) -> bool:
    wished = tuple(sorted(wish.of(card.number)))
    return bool(card.mig) and (card.instances != wished or card.devices != wished)


def _other_mode(card: Card, wish: Wish) -> bool:
    # A card that cannot be divided differs from every wish to divide it.
    return bool(card.mig) != bool(wish.of(card.number))


def _to_divide(cards: Sequence[Card], wish: Wish) -> bool:
    return any(_other_mode(card, wish) or _divided_otherwise(card, wish) for card in cards)


def _other_compute_mode(card: Card, wish: Wish) -> bool:
    # A divided card's mode is Default, and the driver refuses to set it.
    return (
        bool(wish.compute_mode)
        and not wish.of(card.number)
        and card.compute_mode != COMPUTE_MODES[wish.compute_mode]
    )


def differing(cards: Sequence[Card], wish: Wish) -> List[str]:
    """What is not as wished, a line per card; empty where nothing is to be done."""
    found = [f"GPU {n}: not on this host" for n in absent(cards, wish)]
    for card in cards:
        if _other_mode(card, wish) or _divided_otherwise(card, wish):
            wished = wished_text(wish.of(card.number))
            found.append(f"GPU {card.number}: {described(card)} instead of {wished}")
        if _other_compute_mode(card, wish):
            wished = COMPUTE_MODES[wish.compute_mode]
            found.append(f"GPU {card.number}: compute mode {card.compute_mode} instead of {wished}")
    return found


def users(host: Host) -> List[str]:
    """Processes that hold a GPU open, as ``4711 (python3)``, in containers too.

    From their open files, not from nvidia-smi's list: that names only those with a CUDA context,
    and a monitoring agent keeps a card from changing its mode as well. Those are left out whose
    services are stopped for a change.
    """
    return _holding(host, _NODE, holders.WATCHERS)


def module_users(host: Host) -> List[str]:
    """Processes that keep the kernel module loaded, as `users` has them.

    Those are left out whose services are stopped for an exchange of the module.
    """
    return _holding(host, _ANY_NODE, holders.HOLDERS)


def _holding(host: Host, node: Pattern[str], stopped: Sequence[str]) -> List[str]:
    service = re.compile(_SERVICE.format("|".join(stopped)), re.MULTILINE)
    found = []
    for pid in sorted((name for name in host.list("/proc") if name.isdigit()), key=int):
        name = (host.read(f"/proc/{pid}/comm") or "").strip()
        if name in _NO_WORKLOAD or not any(map(node.match, _open_files(host, pid))):
            continue
        if not service.search(host.read(f"/proc/{pid}/cgroup") or ""):
            found.append(f"{pid} ({name})")
    return found


def _open_files(host: Host, pid: str) -> List[str]:
    folder = f"/proc/{pid}/fd"
    targets = []
    for number in host.list(folder):
        with contextlib.suppress(OSError):  # closed, or its process ended, meanwhile
            targets.append(os.readlink(host.path(f"{folder}/{number}")))
    return targets


def showing(host: Host, cards: Sequence[Card], wish: Wish) -> List[str]:
    """Numbers of GPUs to divide that cannot be, because they are set to drive displays.

    In display mode graphics a workstation GPU is a VGA controller on the bus, and nvidia-smi has no
    MIG mode of it; in display mode compute it is a 3D controller.
    """
    whole = {card.number for card in cards if card.mig is None and wish.of(card.number)}
    if not whole:
        return []
    found = []
    for line in _smi(host, "--query-gpu=index,pci.bus_id", "--format=csv,noheader").splitlines():
        index, _, address = (field.strip() for field in line.partition(","))
        # nvidia-smi writes the domain with eight digits, sysfs with four.
        told = host.read(f"/sys/bus/pci/devices/{address.lower()[-12:]}/class") or ""
        if index.isdigit() and int(index) in whole and told.startswith(_VGA):
            found.append(index)
    return found


def unready(host: Host, cards: Sequence[Card], wish: Wish, where: str) -> str:
    """Why no drain would help: GPUs that first need another display mode; empty where none does."""
    found = showing(host, cards, wish)
    if not found:
        return ""
    return problem(
        "GPUs are in a display mode in which MIG cannot be enabled",
        where,
        "graphics on GPU " + ", ".join(found),
        "compute",
        "Set it by 'displaymodeselector --gpumode compute', reboot, and run the play again.",
    )


def pending(host: Host, cards: Sequence[Card], wish: Wish, where: str) -> List[str]:
    """What waits until a cluster node is drained, a line per card.

    Raises:
        MigError: it would be drained for a change that cannot be made then either.
    """
    against = unready(host, cards, wish, where)
    if against:
        raise MigError(against)
    return differing(cards, wish)


def refusal(host: Host, cards: Sequence[Card], wish: Wish, where: str) -> str:
    """Why these cards cannot be divided now as wished; empty where nothing is against it."""
    missing = absent(cards, wish)
    if missing:
        return problem(
            "the layout names GPUs that the host does not have",
            where,
            "GPU " + ", ".join(missing),
            "GPU " + ", ".join(str(card.number) for card in cards),
            "Correct the GPUs of bedplate_sharing of the host's pool, and run 'bedplate plan'.",
        )
    waiting = unready(host, cards, wish, where)
    if waiting:
        return waiting
    whole = [str(card.number) for card in cards if card.mig is None and wish.of(card.number)]
    if whole:
        return problem(
            "GPUs that MIG cannot divide",
            where,
            "GPU " + ", ".join(whole),
            "GPUs of a model with MIG",
            "Correct bedplate_sharing or bedplate_gpu of the host's pool, and run 'bedplate plan'.",
        )
    if not _to_divide(cards, wish):
        return ""
    busy = users(host)
    if busy:
        return problem(
            "GPUs are in use, so that their MIG layout stays",
            where,
            ", ".join(busy),
            "no process that holds a GPU",
            "End them, or drain the node by bedplate.gpu.upgrade, and run the play again.",
        )
    return ""


def apply(host: Host, wish: Wish, where: str, check: bool = False) -> Outcome:
    """Have every GPU as wished.

    Raises:
        MigError: something uses the GPUs, they cannot be divided so, or nvidia-smi fails.
    """
    cards = read(host)
    before = _state(cards, wish)
    if not differing(cards, wish):
        return Outcome(bool(_start_again(host, check)), before, before)
    against = refusal(host, cards, wish, where)
    if against:
        raise MigError(against)
    if check:
        return Outcome(True, before, _foretold(cards, wish, before))
    try:
        if _to_divide(cards, wish):
            _stop_watchers(host, where)
        return _change(host, cards, wish, where)
    finally:
        _start_again(host)


def _stop_watchers(host: Host, where: str) -> None:
    reason = holders.stop(host, holders.WATCHERS)
    if reason is not None:
        raise MigError(
            problem(
                "a service that only watches the GPUs does not stop",
                where,
                reason,
                "{} stopped while GPUs are divided".format(" or ".join(holders.WATCHERS)),
                "Stop it on the host, and run the play again.",
            )
        )


def _start_again(host: Host, check: bool = False) -> List[str]:
    """Start what this run, or one that was killed, has stopped.

    Not awaited: at boot they come after the unit that this may run in, which would wait for itself.
    """
    return holders.start(host, (*holders.WATCHERS, holders.DAEMON), wait=False, check=check)


def _foretold(cards: Sequence[Card], wish: Wish, before: Dict[str, str]) -> Dict[str, str]:
    after = dict(before)
    for card in cards:
        if card.mig is not None:
            after[f"GPU {card.number}"] = wished_text(wish.of(card.number))
        if _other_compute_mode(card, wish):
            after[f"GPU {card.number} compute mode"] = COMPUTE_MODES[wish.compute_mode]
    return after


def _change(host: Host, cards: Sequence[Card], wish: Wish, where: str) -> Outcome:
    before = _state(cards, wish)
    _switch_modes(host, cards, wish)
    cards = read(host)
    waiting = [str(card.number) for card in cards if _other_mode(card, wish)]
    for card in cards:
        profiles = wish.of(card.number)
        if card.mig and profiles and _divided_otherwise(card, wish):
            _empty(host, card)
            wished = ",".join(sorted(profiles, key=_by_size, reverse=True))
            _smi(host, "mig", "-i", str(card.number), "-cgi", wished, "-C")
        if _other_compute_mode(card, wish) and not card.mig:
            mode = wish.compute_mode.upper().replace("-", "_")
            _smi(host, "-i", str(card.number), "-c", mode)
    cards = read(host)
    left = differing([card for card in cards if str(card.number) not in waiting], wish)
    if left:
        raise MigError(
            problem(
                "GPUs could not be divided as requested",
                where,
                "; ".join(left),
                wished_layout(wish),
                "See 'nvidia-smi mig -lgipp' for what fits, and the kernel's log on the host.",
            )
        )
    after = _state(cards, wish)
    reason = f"MIG mode of GPU {', '.join(waiting)} waits for a reset" if waiting else ""
    return Outcome(after != before, before, after, reason)


def _empty(host: Host, card: Card) -> None:
    if card.devices:
        _smi(host, "mig", "-i", str(card.number), "-dci")
    if card.instances:
        _smi(host, "mig", "-i", str(card.number), "-dgi")


def _switch_modes(host: Host, cards: Sequence[Card], wish: Wish) -> None:
    """Change the mode where it differs. A change of mode resets a card, which nothing may hold."""
    switched = [card for card in cards if _other_mode(card, wish)]
    if not switched:
        return
    holders.stop(host, [holders.DAEMON])
    try:
        for card in switched:
            if card.mig:
                _empty(host, card)
            # It ends with 0 where the mode waits for a reset: the mode itself is read again.
            _smi(host, "-i", str(card.number), "-mig", "1" if wish.of(card.number) else "0")
    finally:
        # Before instances are made: without the daemon the driver forgets them with its last user.
        holders.start(host, [holders.DAEMON])
