"""What facts have wrong about each other: references, overlaps, empty ranges."""

from __future__ import annotations

import re
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from bedplate.common.errors import Problem
from bedplate.common.versions import last, number
from bedplate.portable.package_names import family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue.facts import Condition, Fact, KnownBad, Value
    from bedplate.catalogue.sharing_facts import MpsLimit

EPOCH = re.compile(r"^\d+:")

type Tables = Mapping[str, list[Fact[Any]]]

#: File, its field, and the file and field that it names.
REFERENCES = (
    ("gpu-models", "architecture", "architectures", "architecture"),
    ("gpu-models", "fabric", "fabrics", "fabric"),
    ("driver-packages", "os", "systems", "os"),
    ("driver-packages", "branch", "driver-branches", "branch"),
    ("kernels", "os", "systems", "os"),
    ("distribution-archives", "os", "systems", "os"),
    ("host-packages", "os", "systems", "os"),
    ("repositories", "os", "systems", "os"),
    ("runtime-repositories", "os", "systems", "os"),
    ("container-runtimes", "os", "systems", "os"),
    ("forward-compatibility", "branches", "driver-branches", "branch"),
    ("mig-geometries", "models", "gpu-models", "model"),
    ("mig-conditions", "model", "gpu-models", "model"),
    ("framework-limits", "framework", "frameworks", "framework"),
    ("rdma-paths", "architectures", "architectures", "architecture"),
    ("addons", "needs", "addons", "addon"),
    ("addons", "excludes", "addons", "addon"),
    ("snapshots", "archive", "distribution-archives", "archive"),
    ("systems", "kernel", "kernels", "kernel"),
)

#: What a condition of a known-bad combination names: dimension, and the files and fields of it. A
#: misspelt word would make the combination hold never.
DIMENSIONS = (
    ("gpu", "gpu-models", "model"),
    ("architecture", "architectures", "architecture"),
    ("os", "systems", "os"),
    ("kernel", "kernels", "kernel"),
    ("source", "driver-packages", "source"),
    ("flavour", "driver-packages", "flavour"),
    ("branch", "driver-branches", "branch"),
    ("driver", "driver-packages", "version"),
    ("fabric", "driver-packages", "version"),
    ("cuda", "cuda-toolkits", "version"),
    ("cuda", "frameworks", "cuda"),
    ("kubernetes", "kubernetes", "version"),
    ("containerd", "container-runtimes", "version"),
    ("nvidia_container_toolkit", "components", "version"),
    ("nvidia_device_plugin", "components", "version"),
    ("framework", "frameworks", "version"),
    ("addon", "addons", "version"),
)
#: Files whose facts are of several things: the field that says of which, as the dimension's name.
SEVERAL = {"container-runtimes": "runtime", "components": "component"}
#: What is no fact: the wishes' own words.
WORDS = {
    "sharing": {"none", "time-slicing", "mps", "mig", "hami", "dra"},
    "kind": {"bare-metal", "passthrough", "hypervisor"},
}
#: Dimensions whose conditions may say of which thing their version is, with the thing's file.
NAMES = {"addon": "addons", "framework": "frameworks"}
#: What can be carried out begins with the name of a thing: dimension, and the file and field of it.
CARRIED_OUT = (
    ("os", "systems", "os"),
    ("slurm-on", "systems", "os"),
    ("shard-on", "systems", "os"),
    ("mps-on", "systems", "os"),
    ("driver", "systems", "os"),
    ("cuda-on", "systems", "os"),
    ("cni", "components", "component"),
    ("addon", "addons", "addon"),
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
        *_modes(tables),
        *_known_bad(tables),
        *_tools(tables),
        *_majors(tables),
        *_carried_out(tables),
        *_published(tables),
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
    kernels = {(fact.value.os, fact.value.kernel) for fact in tables["kernels"]}
    own_versions = {name for fact in tables["fabrics"] for name in fact.value.own_versions}
    for fact in tables["driver-packages"]:
        value = fact.value
        if not value.version.startswith(f"{value.branch}."):
            yield fact_problem(
                "driver is not of its branch", "driver-packages", fact.id, value.version
            )
        if value.flavour not in published.get(value.branch, [value.flavour]):
            what = "flavour is not published for the branch"
            yield fact_problem(what, "driver-packages", fact.id, value.flavour)
        for kernel in value.kernels:
            if (value.os, kernel) not in kernels:
                what = "kernel is not in the catalogue"
                yield fact_problem(what, "driver-packages", fact.id, f"{kernel} of {value.os}")
        for package, version in sorted((value.fabric or {}).items()):
            # Fabric Manager refuses a driver of another version, to the last digit.
            if family(package) not in own_versions and not EPOCH.sub("", version).startswith(
                f"{value.version}-"
            ):
                what = "fabric package is not of the driver's version"
                got = f"{package} {version}"
                yield fact_problem(what, "driver-packages", fact.id, got, value.version)
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
        if (fact.value.size is None) != (not fact.value.starts):
            what, got = "size and starts go together", f"{fact.value.size}, {fact.value.starts}"
            yield fact_problem(what, "mig-geometries", fact.id, got)


def _modes(tables: Tables) -> Iterator[Problem]:
    """Find modes with two facts for one driver branch."""
    for one, other in combinations(tables["sharing-modes"], 2):
        if (one.value.mode, one.value.limits) != (other.value.mode, other.value.limits):
            continue
        (begin, end), (first, last_) = (
            (fact.value.branch_from or "000", fact.value.branch_upto or "999")
            for fact in (one, other)
        )
        if begin <= last_ and first <= end:
            yield fact_problem("ranges overlap", "sharing-modes", other.id, one.id)


def _tools(tables: Tables) -> Iterator[Problem]:
    systems = {fact.value.os for fact in tables["systems"]}
    majors = {fact.value.major for fact in tables["cuda-majors"]}
    for fact in tables["hpc-tools"]:
        value = fact.value
        for system in sorted(set(value.packages) - systems):
            what, allowed = "os is not in the catalogue", ", ".join(sorted(systems))
            yield fact_problem(what, "hpc-tools", fact.id, system, allowed)
        if bool(value.packages) != (value.source == "distro"):
            what = "packages and the source distro go together"
            yield fact_problem(what, "hpc-tools", fact.id, value.source)
        if value.by_cuda and value.source != "vendor-repo":
            what = "packages by CUDA are a vendor's"
            yield fact_problem(what, "hpc-tools", fact.id, value.source)
        for major in sorted(set(value.by_cuda) - majors):
            what, allowed = (
                "CUDA's major release is not in the catalogue",
                ", ".join(sorted(majors)),
            )
            yield fact_problem(what, "hpc-tools", fact.id, major, allowed)
        if (value.address is None) != (value.source == "distro"):
            what = "a tool that no distribution has needs its address"
            yield fact_problem(what, "hpc-tools", fact.id, value.source)


def _known_bad(tables: Tables) -> Iterator[Problem]:
    known: dict[str, set[str]] = {dimension: set(words) for dimension, words in WORDS.items()}
    for dimension, file, field in DIMENSIONS:
        things = [fact.value for fact in tables[file]]
        if of := SEVERAL.get(file):
            things = [thing for thing in things if getattr(thing, of) == dimension]
        words = (getattr(thing, field) for thing in things)
        known.setdefault(dimension, set()).update(word for word in words if word is not None)
    named = {
        dimension: {getattr(fact.value, dimension) for fact in tables[file]}
        for dimension, file in NAMES.items()
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
            yield from _unknown(fact, one, known[one.dimension], named.get(one.dimension, set()))


def _unknown(
    fact: Fact[KnownBad], one: Condition, words: set[str], names: set[str]
) -> Iterator[Problem]:
    what = f"{one.dimension} is not in the catalogue"
    for word, known in ((one.equal, words), (one.name, names)):
        if word is not None and word not in known:
            allowed = ", ".join(sorted(known)) or None
            yield fact_problem(what, "known-bad", fact.id, word, allowed)
    if one.prefix is not None and not any(word.startswith(one.prefix) for word in words):
        allowed = f"the beginning of {', '.join(sorted(words))}"
        yield fact_problem(what, "known-bad", fact.id, one.prefix, allowed)


def _majors(tables: Tables) -> Iterator[Problem]:
    """Find CUDA versions of which nobody says what driver runs their major version."""
    majors = {fact.value.major for fact in tables["cuda-majors"]}
    for file, field in (("cuda-toolkits", "version"), ("frameworks", "cuda")):
        for fact in tables[file]:
            major = (getattr(fact.value, field) or "").partition(".")[0]
            if major and major not in majors:
                what, allowed = "CUDA's major is not in the catalogue", ", ".join(sorted(majors))
                yield fact_problem(what, file, fact.id, major, allowed)


def _carried_out(tables: Tables) -> Iterator[Problem]:
    things = {
        dimension: {getattr(fact.value, field) for fact in tables[file]}
        for dimension, file, field in CARRIED_OUT
    }
    for fact in tables["installable"]:
        value = fact.value
        if value.dimension not in things:
            continue
        known = things[value.dimension]
        for said in (*value.values, *value.stand_in, *value.unproved):
            if said.partition(" ")[0] not in known:
                what = f"{value.dimension} is not in the catalogue"
                yield fact_problem(what, "installable", fact.id, said, ", ".join(sorted(known)))


def _published(tables: Tables) -> Iterator[Problem]:
    """Find files and images of what no cluster has."""
    known = {fact.value.component for fact in tables["components"]}
    known |= {"kubernetes", "etcd", "coredns", "pause", "hub"}
    known |= {fact.value.runtime.replace("-", "_") for fact in tables["container-runtimes"]}
    addons = {fact.value.addon for fact in tables["addons"]}
    known |= addons | {name.replace("-", "_") for name in addons}
    for file in ("artifacts", "images"):
        for fact in tables[file]:
            if fact.value.component not in {*known, None}:
                what, allowed = "component is not in the catalogue", ", ".join(sorted(known))
                yield fact_problem(what, file, fact.id, fact.value.component, allowed)
    named = [fact.value for fact in tables["frameworks"]]
    builds = {"base"} | {f"{one.framework}-{one.version}-{one.variant}" for one in named}
    for fact in tables["images"]:
        if fact.value.notebook not in {*builds, None}:
            what, allowed = "build is not in the catalogue", ", ".join(sorted(builds))
            yield fact_problem(what, "images", fact.id, fact.value.notebook, allowed)
