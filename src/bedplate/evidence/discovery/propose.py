"""Pool variables for hosts as they were found: equal hardware and system make a pool."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bedplate.evidence.discovery.identify import flow, gpu_wish, hardware, kind_of, system_of
from bedplate.portable.quantities import GIB
from bedplate.site.site import PARENTS, POOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.evidence.discovery.identify import Hardware

POOL = "pool_"
#: Groups that give hosts without accelerators their name.
ROLES = ("control_plane", "workers", "hypervisors", "slurm")


@dataclass(frozen=True)
class Read:
    """A host that was read: its facts, and the groups of the inventory that it is in."""

    name: str
    groups: tuple[str, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Proposal:
    """Variables for a group of hosts that are alike, and what else a person should know."""

    name: str
    hosts: tuple[str, ...]
    variables: Mapping[str, Any]
    notes: tuple[str, ...]
    parent: str

    def render(self, site: str) -> str:
        """Return the file's text: the same hosts give the same bytes."""
        lines = [
            "# Proposed by `ansible-playbook bedplate.gpu.discover`: nothing reads this file.",
            f"# Copy what is right into {site}/group_vars/{self.name}.yml,",
            f"# and into hosts.yml, below {self.parent}: children:",
            f"#   {self.name}:",
            "#     hosts:",
            *(f"#       {host}: {{}}" for host in self.hosts),
            *(f"# {note}" for note in self.notes),
        ]
        lines += [f"{key}: {flow(value)}" for key, value in self.variables.items()]
        return "\n".join(lines) + "\n"


def proposals(hosts: Iterable[Read], catalogue: Catalogue) -> list[Proposal]:
    """Return one proposal for each kind of host, by name."""
    alike: dict[str, list[tuple[Read, dict[str, Any], Hardware]]] = {}
    for host in sorted(hosts, key=lambda one: one.name):
        found = hardware(host.facts, catalogue)
        variables = _variables(host, found, catalogue)
        # Hosts of Slurm and of Kubernetes make no pool together, however alike they are.
        role = _parent(host) if _is_pool(variables) else _role(host)
        key = json.dumps([variables, sorted(found.switches.items()), role], sort_keys=True)
        alike.setdefault(key, []).append((host, variables, found))
    names = _names([[host for host, _, _ in group] for group in alike.values()], alike, catalogue)
    return sorted(
        (
            Proposal(
                name,
                tuple(host.name for host, _, _ in group),
                _sized(group[0][1], [host for host, _, _ in group]),
                _notes([host for host, _, _ in group], group[0][2], catalogue),
                _parent(group[0][0]) if name.startswith(POOL) else "all",
            )
            for name, group in zip(names, alike.values(), strict=True)
        ),
        key=lambda one: one.name,
    )


def _sized(variables: Mapping[str, Any], hosts: Sequence[Read]) -> dict[str, Any]:
    """Return variables with what each host has at least; in a container that is the machine's.

    It makes no two pools of hosts that differ in it by little, as firmware does.
    """
    host = variables["bedplate_host"]
    if not _is_pool(variables) or host.get("kind") == "hypervisor":
        return {**variables}
    systems = [one.facts["system"] for one in hosts]
    known = [one for one in systems if not one["container"]]
    memory = [(one.get("memory_mib") or 0) // GIB for one in known]
    cpus = [one.get("cpus") or 0 for one in known]
    size: dict[str, Any] = {}
    if len(known) == len(hosts) and min(memory):
        size["memory"] = f"{min(memory)}Gi"
    if len(known) == len(hosts) and min(cpus):
        size["cpus"] = min(cpus)
    return {**variables, "bedplate_host": {**host, **size}}


def _is_pool(variables: Mapping[str, Any]) -> bool:
    return "bedplate_gpu" in variables or "bedplate_accelerator" in variables


def _parent(host: Read) -> str:
    """Return the group that a pool of such hosts is below."""
    return next((group for group in PARENTS if group in host.groups), POOLS)


def _variables(host: Read, found: Hardware, catalogue: Catalogue) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if found.boards:
        variables["bedplate_gpu"] = gpu_wish(found.boards)
    if len(found.others) == 1:
        ((vendor, model), count) = next(iter(found.others.items()))
        variables["bedplate_accelerator"] = {"vendor": vendor, "model": model, "count": count}
    wish: dict[str, Any] = {"os": system_of(host.facts, catalogue)[0]}
    kind = kind_of(host.facts, host.groups)
    if kind not in (None, "bare-metal"):
        wish["kind"] = kind
    boot = host.facts["secure_boot"]
    if boot["state"] == "enabled":
        wish["secure_boot"] = True
        if boot["key"] == "enrolled":
            wish["module_signing"] = "mok"
    variables["bedplate_host"] = wish
    if kind == "hypervisor" and found.boards:
        variables["bedplate_passthrough"] = passthrough(host.facts, found)
    return variables


def passthrough(facts: Mapping[str, Any], found: Hardware) -> dict[str, Any]:
    """Return the wish to give all GPUs to guests: with their other functions, and their groups."""
    slots = {board.address.rpartition(".")[0] for board in found.boards}
    devices = sorted(
        device["address"]
        for device in facts["accelerators"]
        if device["address"].rpartition(".")[0] in slots
    )
    groups = facts["iommu"]["groups"].values()
    return {
        "devices": devices,
        "iommu_groups": [list(group) for group in groups if set(group) & set(devices)],
    }


def _role(host: Read) -> str:
    return next((role for role in ROLES if role in host.groups), "")


def _names(
    groups: Sequence[Sequence[Read]],
    alike: Mapping[str, Sequence[tuple[Read, dict[str, Any], Hardware]]],
    catalogue: Catalogue,
) -> list[str]:
    """Keep the name of a pool whose hosts are all alike; make the others from what they have."""
    spread = Counter(
        pool
        for group in groups
        for pool in {name for host in group for name in host.groups if name.startswith(POOL)}
    )
    names: list[str] = []
    for group, (_, variables, found) in zip(
        groups, (members[0] for members in alike.values()), strict=True
    ):
        mine = {tuple(n for n in host.groups if n.startswith(POOL)) for host in group}
        (first, *rest) = mine
        if not rest and len(first) == 1 and spread[first[0]] == 1:
            name = first[0]
        elif _is_pool(variables):
            parts = list(dict.fromkeys(board.label for board in found.boards))
            parts += [model for _, model in found.others]
            name = POOL + "_".join(parts)
        else:
            name = _role(group[0]) or f"hosts_{system_of(group[0].facts, catalogue)[0]}"
        name = re.sub(r"\W+", "_", name).strip("_").lower()
        unique, number = name, 2
        while unique in names:
            unique, number = f"{name}_{number}", number + 1
        names.append(unique)
    return names


def _notes(hosts: Sequence[Read], found: Hardware, catalogue: Catalogue) -> tuple[str, ...]:
    notes = []
    for board in {b.label: b for b in found.boards}.values():
        if board.model:
            notes.append(f"{board.model}: {board.name}, {board.pci}")
        else:
            notes.append(f"{board.label}: the catalogue does not know this GPU")
    notes += [f"{count} x {name}" for name, count in sorted(found.switches.items())]
    models = Counter(board.model for board in found.boards if board.model)
    for model, count in sorted(models.items()):
        value = catalogue.gpu_models[model].value
        wants = value.fabric == "nvswitch" and count >= (value.fabric_from or 0)
        if wants and not found.switches:
            notes.append(f"{count} x {model} and no NVSwitch: is this a guest, or are they hidden?")
    if len(found.others) > 1:
        many = ", ".join(f"{n} x {v} {m}" for (v, m), n in sorted(found.others.items()))
        notes.append(f"several kinds of other accelerators ({many}): a pool can have one")
    for pci, count in sorted(found.unknown.items()):
        notes.append(f"{count} x {pci}: an accelerator that the catalogue does not know")
    name, known = system_of(hosts[0].facts, catalogue)
    if not known:
        notes.append(f"{name}: the catalogue does not know this system")
    rdma = {_rdma(host.facts) for host in hosts} - {""}
    notes += [f"RDMA: {text}" for text in sorted(rdma)]
    kernels = sorted({str(host.facts["system"]["kernel"]) for host in hosts})
    notes.append(f"kernel {', '.join(kernels)}")
    return tuple(notes)


def _rdma(facts: Mapping[str, Any]) -> str:
    links = Counter(
        f"{port['link']} {port['rate'] or ''}".strip()
        for card in facts["rdma"]
        for port in card["ports"]
    )
    return ", ".join(f"{links[link]} x {link}" for link in sorted(links))
