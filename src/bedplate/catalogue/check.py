"""What facts have wrong about each other: references, overlaps, empty ranges."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from bedplate.errors import Problem
from bedplate.versions import last, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue.facts import Fact, MpsLimit

type Tables = Mapping[str, list[Fact[Any]]]

#: File, its field, and the file and field that it names.
REFERENCES = (
    ("gpu-models", "architecture", "architectures", "architecture"),
    ("driver-packages", "os", "systems", "os"),
    ("driver-packages", "branch", "driver-branches", "branch"),
    ("kernels", "os", "systems", "os"),
    ("container-runtimes", "os", "systems", "os"),
    ("forward-compatibility", "branches", "driver-branches", "branch"),
    ("mig-geometries", "models", "gpu-models", "model"),
    ("rdma-paths", "architectures", "architectures", "architecture"),
    ("addons", "needs", "addons", "addon"),
    ("addons", "excludes", "addons", "addon"),
    ("systems", "kernel", "kernels", "kernel"),
)


def fact_problem(
    what: str, file: str, key: str, got: str, allowed: str | None = None
) -> Problem:
    """Return a problem of a fact."""
    return Problem(
        what, f"{file}.yml", key=key, got=got, allowed=allowed, fix="correct the fact",
        rule="catalogue",
    )  # fmt: skip


def check(tables: Tables) -> list[Problem]:
    """Return everything that the facts have wrong about each other."""
    return [
        *_twice(tables),
        *_dangling(tables),
        *_empty_ranges(tables),
        *_boards(tables),
        *_drivers(tables),
        *_mps(fact for fact in tables["mps-limits"]),
    ]


def _twice(tables: Tables) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for file, table in tables.items():
        for fact in table:
            if fact.id in seen:
                yield fact_problem("id is used twice", file, fact.id, f"{seen[fact.id]}.yml")
            seen[fact.id] = file


def _dangling(tables: Tables) -> Iterator[Problem]:
    for file, field, target, name in REFERENCES:
        known = {getattr(fact.value, name) for fact in tables[target]}
        for fact in tables[file]:
            value = getattr(fact.value, field)
            for item in value if isinstance(value, list) else [value]:
                if item is not None and item not in known:
                    allowed = ", ".join(sorted(known))
                    what = f"{field} is not in the catalogue"
                    yield fact_problem(what, file, fact.id, item, allowed)


def _empty_ranges(tables: Tables) -> Iterator[Problem]:
    for file, table in tables.items():
        for fact in table:
            for field in type(fact.value).model_fields:
                stem = field.removesuffix("_from")
                first = getattr(fact.value, field)
                end = getattr(fact.value, f"{stem}_upto", None)
                if stem != field and first and end and number(first) > last(end):
                    what = f"range of {stem} is empty"
                    yield fact_problem(what, file, fact.id, f"{first} to {end}")
    for fact in tables["architectures"]:
        value = fact.value
        if value.last_branch is not None and value.last_branch < value.first_branch:
            got = f"{value.first_branch} to {value.last_branch}"
            yield fact_problem("range of branch is empty", "architectures", fact.id, got)


def _boards(tables: Tables) -> Iterator[Problem]:
    owner: dict[tuple[str, str], str] = {}
    flavours = {fact.value.architecture: fact.value.flavours for fact in tables["architectures"]}
    capabilities = {
        fact.value.architecture: fact.value.compute_capabilities for fact in tables["architectures"]
    }
    for fact in tables["gpu-models"]:
        value = fact.value
        for pci in value.pci:
            for subsystem in value.subsystems or [""]:
                if (pci, subsystem) in owner:
                    got = f"{' '.join((pci, subsystem)).strip()} of {owner[pci, subsystem]}"
                    what = "PCI identifier belongs to two models"
                    yield fact_problem(what, "gpu-models", fact.id, got)
                owner[pci, subsystem] = fact.id
        for field, known in (
            ("flavours", set(flavours.get(value.architecture, value.flavours))),
            (
                "compute_capability",
                set(capabilities.get(value.architecture, [value.compute_capability])),
            ),
        ):
            said = getattr(value, field)
            for item in said if isinstance(said, list) else [said]:
                if item not in known:
                    what = f"{field} is not one of the architecture's"
                    yield fact_problem(what, "gpu-models", fact.id, item, ", ".join(sorted(known)))
        if (value.fabric is None) != (value.fabric_from is None):
            what = "fabric and fabric_from go together"
            yield fact_problem(what, "gpu-models", fact.id, f"{value.fabric}, {value.fabric_from}")


def _drivers(tables: Tables) -> Iterator[Problem]:
    published = {fact.value.branch: fact.value.flavours for fact in tables["driver-branches"]}
    for fact in tables["driver-packages"]:
        value = fact.value
        if not value.version.startswith(f"{value.branch}."):
            yield fact_problem(
                "driver is not of its branch", "driver-packages", fact.id, value.version
            )
        if value.flavour not in published.get(value.branch, [value.flavour]):
            what = "flavour is not published for the branch"
            yield fact_problem(what, "driver-packages", fact.id, value.flavour)
    for fact in tables["driver-branches"]:
        if fact.value.default_flavour not in fact.value.flavours:
            what = "default flavour is not published for the branch"
            yield fact_problem(what, "driver-branches", fact.id, fact.value.default_flavour)


def _mps(limits: Iterable[Fact[MpsLimit]]) -> Iterator[Problem]:
    for one, other in combinations(list(limits), 2):
        first, second = one.value, other.value
        begins = [number(value.cuda_from) if value.cuda_from else 0 for value in (first, second)]
        ends = [last(value.cuda_upto) if value.cuda_upto else None for value in (first, second)]
        if (ends[0] is None or begins[1] <= ends[0]) and (ends[1] is None or begins[0] <= ends[1]):
            yield fact_problem("ranges overlap", "mps-limits", other.id, one.id)
