"""What facts have wrong about each other: references, overlaps, empty ranges."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from bedplate.errors import Problem
from bedplate.versions import last, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue.facts import Fact, MpsLimit, Value

type Tables = Mapping[str, list[Fact[Any]]]

#: File, its field, and the file and field that it names.
REFERENCES = (
    ("gpu-models", "architecture", "architectures", "architecture"),
    ("driver-packages", "os", "systems", "os"),
    ("driver-packages", "branch", "driver-branches", "branch"),
    ("kernels", "os", "systems", "os"),
    ("repositories", "os", "systems", "os"),
    ("runtime-repositories", "os", "systems", "os"),
    ("container-runtimes", "os", "systems", "os"),
    ("forward-compatibility", "branches", "driver-branches", "branch"),
    ("mig-geometries", "models", "gpu-models", "model"),
    ("rdma-paths", "architectures", "architectures", "architecture"),
    ("addons", "needs", "addons", "addon"),
    ("addons", "excludes", "addons", "addon"),
    ("systems", "kernel", "kernels", "kernel"),
)

#: What a condition of a known-bad combination names: dimension, and the file and field of it. A
#: misspelt name would make the combination hold never.
DIMENSIONS = (
    ("gpu", "gpu-models", "model"),
    ("architecture", "architectures", "architecture"),
    ("os", "systems", "os"),
    ("branch", "driver-branches", "branch"),
)


def fact_problem(what: str, file: str, key: str, got: str, allowed: str | None = None) -> Problem:
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
        *_identifiers(tables),
        *_drivers(tables),
        *_runtimes(tables),
        *_mps(fact for fact in tables["mps-limits"]),
        *_mig(tables),
        *_known_bad(tables),
        *_tools(tables),
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
        stems = {stem for kind in {type(fact.value) for fact in table} for stem in _ranges(kind)}
        for fact, stem in product(table, sorted(stems)):
            first, end = getattr(fact.value, f"{stem}_from"), getattr(fact.value, f"{stem}_upto")
            if first and end and number(first) > last(end):
                what = f"range of {stem} is empty"
                yield fact_problem(what, file, fact.id, f"{first} to {end}")
    for fact in tables["architectures"]:
        value = fact.value
        if value.last_branch is not None and value.last_branch < value.first_branch:
            got = f"{value.first_branch} to {value.last_branch}"
            yield fact_problem("range of branch is empty", "architectures", fact.id, got)


def _ranges(kind: type[Value]) -> set[str]:
    """Return what a kind's values tell ranges of, in the fields STEM_from and STEM_upto."""
    begun = {f.removesuffix("_from") for f in kind.model_fields if f.endswith("_from")}
    return {stem for stem in begun if f"{stem}_upto" in kind.model_fields}


def _boards(tables: Tables) -> Iterator[Problem]:
    architectures = {fact.value.architecture: fact.value for fact in tables["architectures"]}
    for fact in tables["gpu-models"]:
        value = fact.value
        if architecture := architectures.get(value.architecture):
            for field, said, known in (
                ("flavours", value.flavours, architecture.flavours),
                (
                    "compute_capability",
                    [value.compute_capability],
                    architecture.compute_capabilities,
                ),
            ):
                for item in (item for item in said if item not in known):
                    what = f"{field} is not one of the architecture's"
                    allowed = ", ".join(sorted(known))
                    yield fact_problem(what, "gpu-models", fact.id, item, allowed)
        if (value.fabric is None) != (value.fabric_from is None):
            what = "fabric and fabric_from go together"
            yield fact_problem(what, "gpu-models", fact.id, f"{value.fabric}, {value.fabric_from}")
        if value.open_from is not None and "open" not in value.flavours:
            what = "open_from without the flavour open"
            yield fact_problem(what, "gpu-models", fact.id, value.open_from)


def _identifiers(tables: Tables) -> Iterator[Problem]:
    """Find identifiers that name two boards or switches; a subsystem makes another one of them."""
    owner: dict[tuple[str, str], str] = {}
    for file in ("gpu-models", "accelerators", "fabric-switches"):
        for fact in tables.get(file, []):
            subsystems = getattr(fact.value, "subsystems", []) or [""]
            for key in product(fact.value.pci, subsystems):
                if key in owner:
                    got = f"{' '.join(key).strip()} of {owner[key]}"
                    what = "PCI identifier belongs to two models"
                    yield fact_problem(what, file, fact.id, got)
                owner[key] = fact.id


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


def _runtimes(tables: Tables) -> Iterator[Problem]:
    offered = {
        (fact.value.os, runtime)
        for fact in tables["runtime-repositories"]
        for runtime in fact.value.runtimes
    }
    for fact in tables["container-runtimes"]:
        value = fact.value
        if bool(value.packages) != (value.source == "vendor-repo"):
            what = "packages and the source vendor-repo go together"
            yield fact_problem(what, "container-runtimes", fact.id, value.source)
        if (value.os is None) != (value.source == "archive"):
            what = "packages are for a system, and archives for none"
            yield fact_problem(what, "container-runtimes", fact.id, str(value.os))
        if value.source == "vendor-repo" and (value.os, value.runtime) not in offered:
            what = "no repository offers the packages"
            yield fact_problem(what, "container-runtimes", fact.id, str(value.os))


def _mps(limits: Iterable[Fact[MpsLimit]]) -> Iterator[Problem]:
    for one, other in combinations(list(limits), 2):
        if one.value.by != other.value.by:
            continue
        ranges = [_mps_range(one.value), _mps_range(other.value)]
        begins = [number(begin) if begin else 0 for begin, _ in ranges]
        ends = [last(end) if end else None for _, end in ranges]
        if (ends[0] is None or begins[1] <= ends[0]) and (ends[1] is None or begins[0] <= ends[1]):
            yield fact_problem("ranges overlap", "mps-limits", other.id, one.id)


def _mps_range(limit: MpsLimit) -> tuple[str | None, str | None]:
    """Return the versions that a limit is for: of CUDA, or compute capabilities."""
    if limit.by == "device-plugin":
        return limit.capability_from, limit.capability_upto
    return limit.cuda_from, limit.cuda_upto


def _mig(tables: Tables) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    for fact in tables["mig-geometries"]:
        for model in fact.value.models:
            key = (model, fact.value.profile)
            if key in seen:
                what = "a model has the profile twice"
                got = f"{' '.join(key)} of {seen[key]}"
                yield fact_problem(what, "mig-geometries", fact.id, got)
            seen[key] = fact.id


def _tools(tables: Tables) -> Iterator[Problem]:
    systems = {fact.value.os for fact in tables["systems"]}
    for fact in tables["hpc-tools"]:
        value = fact.value
        for system in sorted(set(value.packages) - systems):
            what, allowed = "os is not in the catalogue", ", ".join(sorted(systems))
            yield fact_problem(what, "hpc-tools", fact.id, system, allowed)
        if bool(value.packages) != (value.source == "distro"):
            what = "packages and the source distro go together"
            yield fact_problem(what, "hpc-tools", fact.id, value.source)
        if (value.address is None) != (value.source == "distro"):
            what = "a tool that no distribution has needs its address"
            yield fact_problem(what, "hpc-tools", fact.id, value.source)


def _known_bad(tables: Tables) -> Iterator[Problem]:
    known = {
        dimension: {getattr(fact.value, field) for fact in tables[file]}
        for dimension, file, field in DIMENSIONS
    }
    for fact in tables["known-bad"]:
        for one in fact.value.all:
            ranged = one.from_ is not None or one.upto is not None
            said = [one.equal is not None, one.prefix is not None, ranged].count(True)
            if said > 1 or (said == 0 and one.name is None):
                what = f"condition on {one.dimension} has to have one of equal, prefix and a range"
                got = one.model_dump_json(exclude_none=True, by_alias=True)
                yield fact_problem(what, "known-bad", fact.id, got)
            if one.from_ and one.upto and number(one.from_) > last(one.upto):
                what = f"range of {one.dimension} is empty"
                yield fact_problem(what, "known-bad", fact.id, f"{one.from_} to {one.upto}")
            names = known.get(one.dimension)
            if names is not None and one.equal is not None and one.equal not in names:
                what = f"{one.dimension} is not in the catalogue"
                yield fact_problem(what, "known-bad", fact.id, one.equal, ", ".join(sorted(names)))
