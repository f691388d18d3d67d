"""GPU models as data, and the slots of a host as text that the simulated kernel reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MODELS = Path(__file__).parent / "models"
MAX_CARDS = 16
#: PCI buses of the slots, in the order in which a server numbers its cards.
BUSES = (
    0x17,
    0x2A,
    0x3D,
    0x50,
    0x65,
    0x71,
    0x84,
    0x8A,
    0x9D,
    0xA4,
    0xB0,
    0xB9,
    0xC3,
    0xCC,
    0xD6,
    0xDB,
)
CARDS_PER_SOCKET = 4
#: NVML_DEVICE_ARCH_* and NVML_BRAND_* of nvml.h.
ARCHITECTURES = {
    "maxwell": 3,
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}
BRANDS = {"tesla": 2, "nvidia": 14}


class SimulationError(Exception):
    """What — where — got / allowed — how to fix, for a person who plugs cards."""


def known_models() -> list[str]:
    """Return the names of all models, sorted."""
    return sorted(path.stem for path in MODELS.glob("*.yml"))


def slots(model: str, count: int) -> str:
    """Return the text for ``count`` cards of ``model``: a line ``gpu``, then ``key value``, each.

    Raises `SimulationError` for a model that there is no file for, or a count that doesn't fit.
    """
    if model not in known_models():
        raise SimulationError(
            f"unknown GPU model — {MODELS} — got {model} / allowed {', '.join(known_models())} — "
            "use one of these, or add its data file"
        )
    if not 0 <= count <= MAX_CARDS:
        raise SimulationError(
            f"number of cards out of range — {model} — got {count} / allowed 0 to {MAX_CARDS} — "
            "plug fewer cards"
        )
    card = _fields(yaml.safe_load((MODELS / f"{model}.yml").read_text(encoding="utf-8")))
    lines: list[str] = []
    for slot in range(count):
        lines += ["gpu", f"slot {slot}", "pci_domain 0", f"pci_bus {BUSES[slot]:x}", "pci_slot 0"]
        lines += [f"socket {slot // CARDS_PER_SOCKET % 2}"]
        lines += [f"{key} {value}" for key, value in card.items()]
    return "".join(f"{line}\n" for line in lines)


def without_slot(text: str, slot: int) -> str:
    """Return the slots' text without the card in ``slot``: the others keep their places.

    Raises `SimulationError` when there is no such card.
    """
    minor_of(text, slot)
    return "".join(card for card in _cards(text) if f"\nslot {slot}\n" not in card)


def minor_of(text: str, slot: int) -> int:
    """Return N of the /dev/nvidiaN that the card in ``slot`` has.

    Raises `SimulationError` when there is no such card.
    """
    taken = [int(card.split("\nslot ")[1].split()[0]) for card in _cards(text)]
    if slot not in taken:
        raise SimulationError(
            f"no card in that slot — slots of the host — got {slot} / "
            f"allowed {', '.join(map(str, taken)) or 'none: no card'} — name one that has"
        )
    return taken.index(slot)


def _cards(text: str) -> list[str]:
    return [f"gpu\n{card}" for card in text.split("gpu\n")[1:]]


def _mig_profiles(profiles: list[dict[str, Any]]) -> dict[str, object]:
    """The lines that `add_profile` of library/device_table.c reads."""
    order = ("profile", "id", "slices", "count", "size", "memory_mib", "processors")
    order += ("copy", "decoders", "jpeg", "ofa", "starts", "name")
    return {
        f"mig_profile_{number}": " ".join(
            ",".join(map(str, profile[key])) if key == "starts" else str(profile[key])
            for key in order
        )
        for number, profile in enumerate(profiles)
    }


def _fields(data: dict[str, Any]) -> dict[str, object]:
    major, minor = data["compute_capability"].split(".")
    vendor, device = data["pci"].split(":")
    subsystem_vendor, subsystem_device = data["subsystem"].split(":")
    return {
        "pci_vendor": vendor,
        "pci_device": device,
        # As NVML gives it: device in the upper half, vendor in the lower.
        "pci_subsystem": subsystem_device + subsystem_vendor,
        "pci_class": data["pci_class"],
        "compute_major": major,
        "compute_minor": minor,
        "architecture": ARCHITECTURES[data["architecture"]],
        "brand": BRANDS[data["brand"]],
        "cores": data["cores"],
        "memory_mib": data["memory_mib"],
        "reserved_mib": data["reserved_mib"],
        "memory_bus": data["memory_bus"],
        "bar1_mib": data["bar1_mib"],
        "ecc": int(data["ecc"]),
        "nvlinks": data.get("nvlink", {}).get("links", 0),
        "nvlink_mbps": data.get("nvlink", {}).get("mbps", 0),
        "fabric": int(data.get("fabric", False)),
        "mig_instances": data["mig_instances"],
        "power_limit_mw": data["power_watts"]["limit"] * 1000,
        "power_min_mw": data["power_watts"]["least"] * 1000,
        "power_idle_mw": data["power_watts"]["idle"] * 1000,
        "clock_sm": data["clocks_mhz"]["sm"],
        "clock_memory": data["clocks_mhz"]["memory"],
        "pcie_generation": data["pcie"]["generation"],
        "pcie_width": data["pcie"]["width"],
        "temperature": data["celsius"]["idle"],
        "temperature_slowdown": data["celsius"]["slowdown"],
        "temperature_shutdown": data["celsius"]["shutdown"],
        "part_number": data["part_number"],
        "vbios": data["vbios"],
        "inforom": data["inforom"],
        "name": data["name"],
        **_mig_profiles(data.get("mig_profiles", [])),
    }
