"""Slurm's configuration from what the site declares and what each node's slurmd finds.

Keys and their meaning: slurm.conf(5), gres.conf(5) and cgroup.conf(5) of Slurm 22.05.
"""

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import documents
from .gpus import LINKS

FOLDER = "/etc/slurm"
#: Its presence says that the role slurm made this host a node, so jobs may run on it.
DROP_IN = "/etc/systemd/system/slurmd.service.d/50-bedplate.conf"
#: The user's own settings; made once and never written again.
LOCAL = "local.conf"
LOCAL_TEXT = "# Your own settings, read last. Bedplate made this file and never writes it again.\n"
HEAD = (
    "# Managed by Bedplate (role slurm). Your own settings go into local.conf next to slurm.conf.\n"
)
#: What a node reports of itself and slurm.conf repeats; Slurm drains a node that has less.
HARDWARE = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
#: Slurm's resource by the way in which the lock shares a GPU; each counts shares of one card.
SHARED = {"mps": "mps", "time-slicing": "shard"}


class Node(NamedTuple):
    """One node: ``gpu`` is the model or MIG profile of its ``gpus``, ``shares`` the jobs on one.

    MIG devices are on ``cards``, equally many on each.
    """

    name: str
    address: str
    partition: str
    gpu: str
    gpus: int
    mode: str
    shares: int
    cards: int = 1


class Layout(NamedTuple):
    """The cluster as a whole; ``reserved_mib`` stays for the operating system of each node."""

    cluster: str
    controller: str
    address: str
    reserved_mib: int
    settings: Mapping[str, str]


def node_of(wish: Mapping[str, Any]) -> Node:
    """A node from a dictionary with the fields' names; those of the GPUs may be missing."""
    return Node(
        str(wish["name"]),
        str(wish["address"]),
        str(wish["partition"]),
        str(wish.get("gpu") or ""),
        int(wish.get("count") or 0),
        str(wish.get("mode") or "none"),
        int(wish.get("shares") or 0),
        int(wish.get("cards") or 1),
    )


def hardware(text: str) -> Dict[str, int]:
    """What ``slurmd -C`` printed; empty where that is no answer of slurmd."""
    found = {}
    for word in text.split():
        key, separator, value = word.partition("=")
        if separator and key in HARDWARE and value.isdigit():
            found[key] = int(value)
    return found if set(found) == set(HARDWARE) else {}


def memory(found: int, reserved: int) -> int:
    """RealMemory in MiB: what the node has, less the reserve, in whole GiB.

    A node that reports less than slurm.conf says is drained, and the kernel's own share of the
    memory changes a little with each kernel.
    """
    return max(found - reserved, 1024) // 1024 * 1024


def gres(node: Node) -> str:
    """The node's generic resources as slurm.conf has them."""
    if not node.gpus:
        return ""
    told = f"gpu:{node.gpu}:{node.gpus}"
    if node.mode in SHARED:
        told += f",{SHARED[node.mode]}:{node.gpus * node.shares}"
    return told


def declared(shown: str) -> str:
    """What ``scontrol show node`` shows of a node's generic resources, in the words of `gres`.

    Slurm gives shares the type of their card once the node has registered, and adds in brackets
    which sockets or numbers the cards are at.
    """
    words = []
    shown = re.sub(r"\([^)]*\)", "", shown)
    for word in shown.split(",") if shown else ():
        name, *_, count = word.split(":")
        words.append(f"{name}:{count}" if name in SHARED.values() else word)
    return ",".join(words)


def _hostlist(names: Sequence[str]) -> str:
    return ",".join(sorted(names, key=natural))


def natural(name: str) -> Tuple[Tuple[int, str], ...]:
    """A sort key by which n2 comes before n10."""
    return tuple(
        (int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)
    )


def node_line(node: Node, found: Mapping[str, int], reserved: int) -> str:
    """The node's line in slurm.conf."""
    words = [f"NodeName={node.name}", f"NodeAddr={node.address}"]
    for key in HARDWARE:
        value = memory(found[key], reserved) if key == "RealMemory" else found[key]
        words.append(f"{key}={value}")
    if gres(node):
        words.append(f"Gres={gres(node)}")
    return " ".join(words)


def slurm_conf(
    layout: Layout, nodes: Sequence[Node], known: Mapping[str, Mapping[str, int]]
) -> str:
    """slurm.conf with those of ``nodes`` whose hardware is known."""
    there = sorted((n for n in nodes if known.get(n.name)), key=lambda n: natural(n.name))
    settings = {
        "ClusterName": layout.cluster,
        "SlurmctldHost": f"{layout.controller}({layout.address})",
        # Nodes fetch all files from the controller: adding one host touches no other.
        "SlurmctldParameters": "enable_configless",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/affinity,task/cgroup",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # All of them, for those that nodes will share their cards by: slurmd learns of a type when
        # it starts only, and Slurm drains a node that does not know what it is to have.
        "GresTypes": ",".join(["gpu", *sorted(SHARED.values())]),
        # A node that was rebooted or lost works again once it registers with all its resources.
        "ReturnToService": "2",
        # So AccountingStorageTRES can't name the GPUs: slurmctld does not start with it.
        "AccountingStorageType": "accounting_storage/none",
        "MpiDefault": "none",
        **layout.settings,
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += ["", *(node_line(n, known[n.name], layout.reserved_mib) for n in there)]
    for number, partition in enumerate(sorted({n.partition for n in there})):
        mine = [n for n in there if n.partition == partition]
        # Without a default each job would take the whole memory of its node, and so the node.
        each = min(
            memory(known[n.name]["RealMemory"], layout.reserved_mib) // known[n.name]["CPUs"]
            for n in mine
        )
        lines.append(
            f"PartitionName={partition} Nodes={_hostlist([n.name for n in mine])}"
            f" Default={'NO' if number else 'YES'} DefMemPerCPU={each} MaxTime=INFINITE State=UP"
        )
    return HEAD + "\n".join([*lines, "", f"Include {LOCAL}", ""])


def gres_conf(nodes: Sequence[Node], known: Mapping[str, Mapping[str, int]]) -> str:
    """gres.conf: the same lines for all nodes with equal GPUs, by links that follow the UUID."""
    lines = ["AutoDetect=off"]
    alike: Dict[Tuple[str, int, str, int, int], List[str]] = {}
    for node in nodes:
        if node.gpus and known.get(node.name):
            kind = (node.gpu, node.gpus, node.mode, node.shares, node.cards)
            alike.setdefault(kind, []).append(node.name)
    for (gpu, count, mode, shares, cards), names in sorted(alike.items()):
        start = f"NodeName={_hostlist(names)} Name="
        for place in range(count):
            card, part = divmod(place, max(count // cards, 1))
            link = f"{LINKS}/gpu{card if mode == 'mig' else place}"
            files = f"{link},{link}-{part}-gi,{link}-{part}-ci"
            told = f"MultipleFiles={files}" if mode == "mig" else f"File={link}"
            lines.append(f"{start}gpu Type={gpu} {told}")
        if mode in SHARED:
            lines += [
                f"{start}{SHARED[mode]} Count={shares} File={LINKS}/gpu{place}"
                for place in range(count)
            ]
    return HEAD + "\n".join([*lines, ""])


def cgroup_conf() -> str:
    """cgroup.conf: a job sees the devices, cores and memory that it was given, and no others."""
    lines = ("ConstrainDevices=yes", "ConstrainCores=yes", "ConstrainRAMSpace=yes")
    return HEAD + "\n".join([*lines, ""])


def read_nodes(recorded: object) -> Dict[str, Node]:
    """The nodes that an earlier run has recorded, by name, as far as they are whole."""
    found = {}
    for name, values in recorded.items() if isinstance(recorded, dict) else ():
        whole = isinstance(values, dict) and set(values) == set(Node._fields)
        if whole and all(type(values[one]) is kind for one, kind in Node.__annotations__.items()):
            found[str(name)] = Node(**values)
    return found


def read_known(text: Optional[str]) -> Dict[str, Dict[str, int]]:
    """The hardware that was recorded by an earlier run, by node."""
    try:
        recorded = documents.table(text)
        return {str(k): {str(a): int(b) for a, b in v.items()} for k, v in recorded.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
