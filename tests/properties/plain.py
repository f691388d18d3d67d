"""Facts as plain tables and versions as plain numbers: nothing here comes from the resolver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

type Row = Mapping[str, Any]

RESOURCE = "nvidia.com/gpu"
SHARED_COMPONENTS = (
    "cni_plugins",
    "cri_tools",
    "nvidia_container_toolkit",
    "nvidia_device_plugin",
)
RUNTIMES = {"containerd": "containerd", "cri-o": "cri_o", "docker": "docker"}


class Violation(NamedTuple):
    """A rule that a lock breaks: where (a pool, a host or `cluster`), and what it is about."""

    rule: str
    subject: str
    detail: str


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading dotted numbers of a version: what follows them does not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _pairs(one: str, other: str) -> Iterable[tuple[int, int]]:
    return zip_longest(numbers(one), numbers(other), fillvalue=0)


def at_least(version: str, floor: str | None) -> bool:
    """Tell whether a version is a floor or newer; without a floor everything is."""
    if floor is None:
        return True
    mine, its = zip(*_pairs(version, floor), strict=True)
    return mine >= its


def at_most(version: str, end: str | None) -> bool:
    """Tell whether a version is an end, begins with it, or is older."""
    if end is None:
        return True
    mine, its = zip(*_pairs(version, end), strict=True)
    length = len(numbers(end))
    return mine[:length] <= its[:length]


def between(version: str, first: str | None, end: str | None) -> bool:
    """Tell whether a version is in an inclusive range."""
    return at_least(version, first) and at_most(version, end)


def begins(version: str, wished: str) -> bool:
    """Tell whether a version is what was wished: the same, or a later part of it (1.36.3, 1.36)."""
    return version == wished or version.startswith(f"{wished}.")


def same_minor(version: str, minor: str) -> bool:
    """Tell whether a version is of a minor release."""
    return numbers(version)[:2] == numbers(minor)[:2]


@dataclass(frozen=True)
class Facts:
    """The values of every table, by the name of its file."""

    tables: Mapping[str, Sequence[Row]]
    read: Mapping[str, Sequence[str]]

    def __getitem__(self, file: str) -> Sequence[Row]:
        """Return the values of one table."""
        return self.tables[file]

    def one(self, file: str, **wanted: object) -> Row | None:
        """Return the value with these fields, if there is one."""
        return next(iter(self.some(file, **wanted)), None)

    def some(self, file: str, **wanted: object) -> list[Row]:
        """Return the values with these fields."""
        return [
            row
            for row in self.tables[file]
            if all(row.get(key) == value for key, value in wanted.items())
        ]


def facts_in(folder: Path) -> Facts:
    """Read a folder of facts."""
    tables: dict[str, list[Row]] = {}
    read: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.yml")):
        tables[path.stem], read[path.stem] = [], []
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            values = entry.get("values") or [entry["value"]]
            tables[path.stem] += [_texts(entry.get("each", {}) | value) for value in values]
            read[path.stem] += [str(entry["source"]["read"])] * len(values)
    return Facts(tables, read)


def _texts(value: Any) -> Any:
    """Return dates as text, as a lock and a comparison have them."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return value if isinstance(value, (bool, int, type(None))) else str(value)


def model_of(facts: Facts, gpu: Row) -> Row | None:
    """Return the model that a wish for a GPU means: device and subsystem first, then the device."""
    models = facts["gpu-models"]
    if gpu.get("model") is not None:
        return facts.one("gpu-models", model=gpu["model"])
    by_device = [row for row in models if gpu.get("pci") in row["pci"]]
    exact = [row for row in by_device if gpu.get("subsystem") in row.get("subsystems", [])]
    rest = [row for row in by_device if not row.get("subsystems")]
    return next(iter([*(exact if gpu.get("subsystem") else []), *rest]), None)


def named(wish: str, names: Iterable[str]) -> tuple[str | None, str | None]:
    """Return the name and the version of `kueue` or `kueue-0.17`; no name if it is unknown."""
    known = set(names)
    if wish in known:
        return wish, None
    name, _, version = wish.rpartition("-")
    return (name, version) if name in known else (None, None)
