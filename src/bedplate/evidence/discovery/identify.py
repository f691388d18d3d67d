"""From PCI identifiers and system names to what the catalogue calls them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.portable.pci import DISPLAY, NVIDIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.catalogue import Catalogue

#: PCI classes that say accelerator rather than screen: 3D, other display, processing accelerator.
COMPUTE = ("0302", "0380", "12")


@dataclass(frozen=True)
class Board:
    """A GPU as it was found; `model` and `name` are the catalogue's, None where it has none."""

    address: str
    pci: str
    subsystem: str | None
    model: str | None
    name: str | None

    @property
    def label(self) -> str:
        """Return the model, or the identifiers where the catalogue does not know them."""
        if self.model:
            return self.model
        return f"{self.pci} (subsystem {self.subsystem})" if self.subsystem else self.pci

    @property
    def wish(self) -> dict[str, Any]:
        """Return how `bedplate_gpu` names it, without the count."""
        if self.model:
            return {"model": self.model}
        return {"pci": self.pci} | ({"subsystem": self.subsystem} if self.subsystem else {})


@dataclass(frozen=True)
class Hardware:
    """The accelerators of a host, and the switches that join them."""

    boards: tuple[Board, ...]
    switches: Mapping[str, int]
    others: Mapping[tuple[str, str], int]
    unknown: Mapping[str, int]


def model_of(catalogue: Catalogue, pci: str, subsystem: str | None) -> tuple[str, str] | None:
    """Return model and name: by subsystem first, then by models that are not told apart so."""
    plain = None
    for fact in catalogue.gpu_models.values():
        if pci not in fact.value.pci:
            continue
        if not fact.value.subsystems:
            plain = (fact.value.model, fact.value.name)
        elif subsystem in fact.value.subsystems:
            return fact.value.model, fact.value.name
    return plain


def hardware(facts: Mapping[str, Any], catalogue: Catalogue) -> Hardware:
    """Return what the accelerators among a host's facts are."""
    boards: list[Board] = []
    switches: Counter[str] = Counter()
    others: Counter[tuple[str, str]] = Counter()
    unknown: Counter[str] = Counter()
    fabric = {p: f.value.name for f in catalogue.fabric_switches.values() for p in f.value.pci}
    known = {
        p: (f.value.vendor, f.value.accelerator)
        for f in catalogue.accelerators.values()
        for p in f.value.pci
    }
    for device in facts["accelerators"]:
        pci, subsystem = device["id"], device["subsystem"]
        if pci in fabric:
            switches[fabric[pci]] += 1
        elif pci.startswith(f"{NVIDIA}:"):
            if device["class"].startswith(DISPLAY):
                model, name = model_of(catalogue, pci, subsystem) or (None, None)
                boards.append(Board(device["address"], pci, subsystem, model, name))
        elif pci in known:
            others[known[pci]] += 1
        elif device["class"].startswith(COMPUTE):
            unknown[pci] += 1
    return Hardware(tuple(boards), dict(switches), dict(others), dict(unknown))


def system_of(facts: Mapping[str, Any], catalogue: Catalogue) -> tuple[str, bool]:
    """Return the system's name in the catalogue, and whether the catalogue has it.

    RHEL's relatives count point releases (`rhel-9.6`) that the catalogue may have as `rhel-9`.
    """
    found: str = facts["system"]["os"]
    fitting = [os for os in catalogue.systems if found == os or found.startswith(f"{os}.")]
    return (max(fitting, key=len), True) if fitting else (found, False)


def kind_of(facts: Mapping[str, Any], groups: Iterable[str]) -> str | None:
    """Return `bedplate_host.kind`, or None where it cannot be told: in a container."""
    if "hypervisors" in groups:
        return "hypervisor"
    if facts["system"]["container"]:
        return None
    return "passthrough" if facts["system"]["virtual"] else "bare-metal"


def counted(labels: Iterable[str]) -> str:
    """Return `8 x h100-pcie-80gb, 1 x t4-16gb` for messages."""
    counts = Counter(labels)
    return ", ".join(f"{counts[label]} x {label}" for label in sorted(counts)) or "none"


def gpu_wish(boards: Sequence[Board]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return `bedplate_gpu` for these boards, as short as it can be written."""
    kinds = {board.label: board for board in boards}
    counts = Counter(board.label for board in boards)
    wishes = [kinds[label].wish | {"count": counts[label]} for label in sorted(counts)]
    return wishes[0] if len(wishes) == 1 else wishes


def flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip().removesuffix("\n...")
