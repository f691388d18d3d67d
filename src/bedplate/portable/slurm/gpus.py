#!/usr/bin/python3
"""Slurm's GPUs by UUID: links with lasting names to device files whose numbers change.

``gres.conf`` wants device files, but which card is ``/dev/nvidia0`` may differ after a reboot or a
swap. So each card gets a slot, in the order of the UUIDs, and keeps it:
``/run/bedplate/slurm/gpuN`` leads to the device file that the card has now. Slurm follows the
link to the device's numbers. What MIG divides a card into has links beside the card's own,
``gpuN-0-gi`` and ``gpuN-0-ci`` and so on: Slurm knows files by their names, and forbids a job one
that it also has by the name of another device, so that all of a card have its file by one name.

The role slurm puts this very file on each node too, where a unit runs it at each boot, before
slurmd. So it imports nothing of its own package.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

LINKS = "/run/bedplate/slurm"
RECORD = "/etc/bedplate/slurm-gpus.json"
QUERY = ("nvidia-smi", "-q", "-x")
END = "</nvidia_smi_log>"
#: Exit status of a report that was made, with the warning that a card's infoROM is damaged.
INFOROM = 14
#: Where the kernel says which file under /dev/nvidia-caps opens a MIG instance.
CAPABILITIES = "/proc/driver/nvidia/capabilities"

#: By a card's UUID: link suffix → file.
Devices = Dict[str, Dict[str, str]]


class UnknownGpusError(Exception):
    """The driver does not say which cards there are; the text says why."""


class Links(NamedTuple):
    """What the links are to be, and which of them are not yet so."""

    slots: List[str]
    wanted: Dict[str, str]
    wrong: List[str]
    recorded: List[str]


def devices(report: str, read: Callable[[str], str]) -> Devices:
    """The cards with the files that jobs can get, from nvidia-smi's XML report.

    A card that is cut by MIG is no device itself: its MIG devices are, each with the card's file
    and two of its own. Without them it has no files. ``read`` returns a file's text. Raises
    UnknownGpusError for a report that cannot be read.
    """
    found: Devices = {}
    try:
        for card in ElementTree.fromstring(report).findall("gpu"):  # noqa: S314 the driver's own program wrote it
            uuid, minor = card.findtext("uuid", ""), int(card.findtext("minor_number", ""))
            parts = sorted(
                (
                    int(part.findtext("gpu_instance_id", "")),
                    int(part.findtext("compute_instance_id", "")),
                )
                for part in card.findall("mig_devices/mig_device")
            )
            divided = card.findtext("mig_mode/current_mig") == "Enabled"
            found[uuid] = {} if divided and not parts else {"": f"/dev/nvidia{minor}"}
            for place, (gpu_instance, compute_instance) in enumerate(parts if divided else ()):
                folder = f"{CAPABILITIES}/gpu{minor}/mig/gi{gpu_instance}"
                access = f"{folder}/ci{compute_instance}/access"
                found[uuid][f"-{place}-gi"] = _capability(read, f"{folder}/access")
                found[uuid][f"-{place}-ci"] = _capability(read, access)
    except (ElementTree.ParseError, ValueError, OSError) as error:
        raise UnknownGpusError(f"nvidia-smi -q -x: {error}") from error
    return found


def count(found: Mapping[str, Mapping[str, str]]) -> int:
    """How many devices jobs can get: whole cards, and MIG devices of those that are divided."""
    return sum(len(files) // 2 if len(files) > 1 else len(files) for files in found.values())


def reported(code: int, text: str, read: Callable[[str], str]) -> Devices:
    """The devices of this host from nvidia-smi's answer. Raises UnknownGpusError."""
    if code != 0:
        raise UnknownGpusError(" ".join(text.split()) or f"nvidia-smi: exit status {code}")
    return devices(text, read)


def _capability(read: Callable[[str], str], path: str) -> str:
    for line in read(path).splitlines():
        if line.startswith("DeviceFileMinor:"):
            return f"/dev/nvidia-caps/nvidia-cap{int(line.split(':')[1])}"
    raise ValueError(f"{path} names no DeviceFileMinor")


def assign(recorded: Sequence[str], present: Sequence[str]) -> List[str]:
    """Slots with the cards that have them: who has one keeps it.

    A new card takes the first slot whose own is gone, as one that was swapped for it; a slot that
    nobody takes waits for its card, unless it is the last one.
    """
    slots = list(recorded)
    free = [place for place, name in enumerate(slots) if name not in present]
    for name in sorted(set(present) - set(recorded)):
        if free:
            slots[free.pop(0)] = name
        else:
            slots.append(name)
    while slots and slots[-1] not in present:
        slots.pop()
    return slots


def compare(root: str, found: Mapping[str, Mapping[str, str]]) -> Links:
    """What the links are to be for the devices ``found``, and how that differs from what is."""
    recorded = read_record(root)
    slots = assign(recorded, list(found))
    wanted = {
        f"gpu{place}{suffix}": target
        for place, name in enumerate(slots)
        for suffix, target in found.get(name, {}).items()
    }
    folder = _below(root, LINKS)
    there = os.listdir(folder) if os.path.isdir(folder) else []
    wrong = [name for name in wanted if _target(folder, name) != wanted[name]]
    wrong += [name for name in there if name.startswith("gpu") and name not in wanted]
    return Links(slots, wanted, sorted(wrong), recorded)


def apply(root: str, links: Links) -> None:
    """Put the links right, each in one step, and record who has which slot."""
    folder = _below(root, LINKS)
    _make_folders(folder)
    for name in links.wrong:
        path = os.path.join(folder, name)
        if name not in links.wanted:
            os.unlink(path)
            continue
        fresh = os.path.join(folder, f".{name}.new")
        if os.path.lexists(fresh):
            os.unlink(fresh)
        os.symlink(links.wanted[name], fresh)
        os.replace(fresh, path)
    if links.slots != links.recorded:
        _write(_below(root, RECORD), json.dumps({"slots": links.slots}, indent=2) + "\n")


def read_record(root: str) -> List[str]:
    """The recorded slots; none where there is no such record yet."""
    try:
        with open(_below(root, RECORD), encoding="utf-8") as stream:
            return [str(name) for name in json.load(stream)["slots"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Without a record, as after losing it, the order of the UUIDs is the order of the slots.
        return []


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _target(folder: str, name: str) -> str:
    try:
        return os.readlink(os.path.join(folder, name))
    except OSError:
        return ""


def _make_folders(path: str) -> None:
    """Have a folder and those above it, open to every user whatever the process's umask is."""
    before = os.umask(0o022)
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    finally:
        os.umask(before)


def _write(path: str, text: str) -> None:
    _make_folders(os.path.dirname(path))
    handle, fresh = tempfile.mkstemp(prefix=".bedplate.", dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(fresh, 0o644)
    os.replace(fresh, path)


def read_file(path: str) -> str:
    """A file's text. Raises OSError."""
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def _report() -> Tuple[int, str]:
    done = subprocess.run(
        QUERY, capture_output=True, encoding="utf-8", errors="replace", timeout=120, check=False
    )
    if done.returncode in (0, INFOROM):  # A warning follows the report, which is whole.
        report, end, _ = done.stdout.partition(END)
        return 0, report + end
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Put the links of this host right, and say what was done."""
    try:
        links = compare("/", reported(*_report(), read_file))
    except (UnknownGpusError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"the GPUs of this node are not known — {error}\n")
        return 1
    apply("/", links)
    for name, target in sorted(links.wanted.items()):
        sys.stdout.write(f"{LINKS}/{name} -> {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
