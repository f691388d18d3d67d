"""From `facts/*.yml` to typed tables, checked against each other."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from bedplate.catalogue.facts import (
    Architecture,
    Artifact,
    DriverBranch,
    DriverPackages,
    Fact,
    GpuModel,
    KubernetesRelease,
    System,
    Value,
)
from bedplate.errors import CatalogueError, Problem

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: Kind of fact by file, and the field of its value that names it.
KINDS: dict[str, tuple[type[Value], str]] = {
    "gpu-models": (GpuModel, "model"),
    "architectures": (Architecture, "architecture"),
    "driver-branches": (DriverBranch, "branch"),
    "driver-packages": (DriverPackages, ""),
    "systems": (System, "os"),
    "kubernetes": (KubernetesRelease, "version"),
    "artifacts": (Artifact, "artifact"),
}


@dataclass(frozen=True)
class Catalogue:
    """All facts, by kind and name."""

    gpus: dict[str, Fact[GpuModel]]
    architectures: dict[str, Fact[Architecture]]
    branches: dict[str, Fact[DriverBranch]]
    drivers: tuple[Fact[DriverPackages], ...]
    systems: dict[str, Fact[System]]
    kubernetes: dict[str, Fact[KubernetesRelease]]
    artifacts: dict[str, Fact[Artifact]]
    digest: str


@cache
def load_catalogue() -> Catalogue:
    """Return the catalogue that comes with Bedplate."""
    return read_catalogue(files("bedplate.catalogue") / "facts")


def read_catalogue(folder: Traversable) -> Catalogue:
    """Read and check a folder of facts. Raises CatalogueError with everything that is wrong."""
    tables: dict[str, list[Fact[Any]]] = {}
    problems: list[Problem] = []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name, (kind, _) in KINDS.items():
        path = folder / f"{name}.yml"
        tables[name] = []
        for number, entry in enumerate(yaml.load(path.read_text(encoding="utf-8"), loader) or []):  # noqa: S506
            try:
                tables[name].append(Fact[kind].model_validate(entry))  # type: ignore[valid-type]
            except ValidationError as error:
                told = entry.get("id") if isinstance(entry, dict) else None
                problems += [
                    _problem(
                        "fact is malformed",
                        f"{name}.yml",
                        told or f"[{number}]",
                        f"{'.'.join(str(p) for p in detail['loc'])}: {detail['msg']}",
                    )
                    for detail in error.errors(include_url=False)
                ]
    problems += check(tables)
    if problems:
        raise CatalogueError(problems)
    content = [fact.model_dump(mode="json") for table in tables.values() for fact in table]
    text = json.dumps(sorted(content, key=lambda f: f["id"]), sort_keys=True, separators=(",", ":"))
    named = {
        name: {getattr(fact.value, field): fact for fact in tables[name]}
        for name, (_, field) in KINDS.items()
        if field
    }
    return Catalogue(
        named["gpu-models"],
        named["architectures"],
        named["driver-branches"],
        tuple(tables["driver-packages"]),
        named["systems"],
        named["kubernetes"],
        named["artifacts"],
        f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
    )


def _problem(what: str, file: str, key: str, got: str, allowed: str | None = None) -> Problem:
    return Problem(
        what, file, key=key, got=got, allowed=allowed, fix="correct the fact", rule="catalogue"
    )


def check(tables: dict[str, list[Fact[Any]]]) -> list[Problem]:
    """Return what the facts have wrong about each other."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for name, table in tables.items():
        for fact in table:
            if fact.id in seen:
                problems.append(_problem("id is used twice", f"{name}.yml", fact.id, seen[fact.id]))
            seen[fact.id] = f"{name}.yml"
        field = KINDS[name][1]
        named = [getattr(fact.value, field) for fact in table] if field else []
        problems += [
            _problem("two facts say the same", f"{name}.yml", twice, f"{named.count(twice)} facts")
            for twice in sorted({item for item in named if named.count(item) > 1})
        ]
    known = {
        name: {getattr(fact.value, field) for fact in tables[name]}
        for name, (_, field) in KINDS.items()
        if field
    }
    references = [
        ("gpu-models", "architecture", "architectures"),
        ("driver-packages", "os", "systems"),
        ("driver-packages", "branch", "driver-branches"),
    ]
    for name, field, target in references:
        problems += [
            _problem(
                f"{field} is not in the catalogue",
                f"{name}.yml",
                fact.id,
                getattr(fact.value, field),
                ", ".join(sorted(known[target])),
            )
            for fact in tables[name]
            if getattr(fact.value, field) not in known[target]
        ]
    problems += _overlaps(tables)
    return problems


def _overlaps(tables: dict[str, list[Fact[Any]]]) -> list[Problem]:
    problems: list[Problem] = []
    owner: dict[str, str] = {}
    for fact in tables["gpu-models"]:
        for pci in fact.value.pci:
            if pci in owner:
                what = "PCI identifier belongs to two models"
                problems.append(_problem(what, "gpu-models.yml", fact.id, f"{pci} of {owner[pci]}"))
            owner[pci] = fact.id
    sets: dict[tuple[str, ...], str] = {}
    for fact in tables["driver-packages"]:
        value = fact.value
        key = (value.os, value.source, value.flavour, value.version)
        if key in sets:
            what = "two package sets bring the same driver"
            problems.append(_problem(what, "driver-packages.yml", fact.id, sets[key]))
        sets[key] = fact.id
        if not value.version.startswith(f"{value.branch}."):
            what = "driver is not of its branch"
            problems.append(_problem(what, "driver-packages.yml", fact.id, value.version))
    for fact in tables["architectures"]:
        value = fact.value
        if value.last_branch is not None and value.last_branch < value.first_branch:
            problems.append(
                _problem("range is empty", "architectures.yml", fact.id, value.last_branch)
            )
    return problems
