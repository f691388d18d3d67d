"""Catalogues with one fact wrong each: a limit, a floor or an end of a range one step off.

A step is one that something in the catalogue can tell: a floor moves over the nearest version that
is there, not by a digit that nothing has.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from bedplate.catalogue.load import KINDS, assembled
from tests.properties.plain import at_least, at_most, numbers
from tests.resolver.mutants import Mutant
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The rules whose cases should see a file's facts; of files that are not here none decides.
SEEN_BY = {
    "addons": ("addon-kubernetes", "addon-driver", "addon-needs", "addon-excludes",
               "resource-owner", "sharing-scheduler", "known-bad"),
    "architectures": ("gpu-branch", "cuda-gpu", "mps-clients", "rdma-path", "known-bad"),
    "components": ("component-kubernetes", "component-driver", "isolation", "known-bad"),
    "container-runtimes": ("runtime-kubernetes", "runtime-cdi", "runtime-packaged", "known-bad"),
    "cuda-majors": ("cuda-driver", "framework-driver"),
    "cuda-toolkits": ("cuda-driver", "cuda-gpu"),
    "driver-branches": ("gpu-branch", "mps-clients", "rdma-path", "known-bad"),
    "driver-packages": ("fabric-packaged", "secure-boot", "kernel-headers", "driver-packaged"),
    "fabrics": ("fabric-packaged",),
    "forward-compatibility": ("cuda-driver", "framework-driver"),
    "frameworks": ("framework-driver", "framework-gpu", "known-bad"),
    "gpu-models": ("gpu-known", "gpu-flavour", "gpu-qualified", "fabric-packaged", "cuda-driver",
                   "framework-gpu", "mig-geometry", "mps-clients"),
    "kernels": ("kernel-headers", "kernel-known"),
    "known-bad": ("known-bad",),
    "kubernetes": ("cgroup-v1",),
    "mig-geometries": ("mig-geometry", "share-divides"),
    "mps-limits": ("mps-clients",),
    "node-needs": ("node-needs",),
    "rdma-paths": ("rdma-path",),
    "sharing-modes": ("isolation", "sharing-parameters", "component-kubernetes"),
    "configuration-fields": ("configuration-field",),
    "subnet-limits": ("subnet-nodes", "subnet-size"),
    "systems": ("guest-os", "cgroup-v1", "system-known"),
}  # fmt: skip
#: Words that can stand in place of one another.
OTHERS = {
    "market": ("data-centre", "workstation"),
    "default_flavour": ("open", "proprietary"),
    "type": ("lts", "production", "new-feature"),
    "owns_in_mode": ("hami", None),
    "method": ("dma-buf", "peermem", "host-memory"),
    "stack": ("inbox", "doca"),
    "cgroup": (1, 2),
    "memory": ("counted", "limited", "isolated"),
    "compute": ("counted", "limited", "isolated"),
    "lifted_by": ("any-client", "root", None),
}
LISTS = ("flavours", "architectures", "excludes", "needs", "owns", "kernels", "models", "branches",
         "compute_capabilities", "subsystems", "all", "starts")  # fmt: skip
COUNTS = ("fabric_from", "clients", "mps_clients", "instances", "size", "replicas_from",
          "largest", "smallest", "node_prefix")  # fmt: skip
SWITCHES = ("warns", "signed", "cdi", "guest", "ptx", "default")


def domain(file: str, field: str) -> list[str]:
    """Return the versions that a limit is compared with, oldest first."""
    tables = world().tables()

    def of(table: str, name: str) -> set[str]:
        return {str(getattr(fact.value, name)) for fact in tables[table].values()}

    stem = field.rpartition("_")[0]
    if stem == "toolkit":
        found = of("components", "version")
    elif stem in ("driver", "open") or field == "driver_seen":
        found = of("driver-packages", "version")
    elif stem == "kubernetes":
        found = of("kubernetes", "version")
    elif stem == "capability":
        found = of("gpu-models", "compute_capability")
    elif stem == "kernel":
        found = of("kernels", "kernel")
    elif field in ("first_branch", "last_branch") or stem == "branch":
        found = of("driver-branches", "branch")
    elif file == "architectures":
        found = of("cuda-toolkits", "version")
    else:
        found = of("driver-branches", "cuda")
    return sorted(found, key=numbers)


def _steps(file: str, field: str, value: str) -> Iterator[str]:
    """Yield a limit that lets one version less pass, and one that lets one more pass."""
    known = domain(file, field)
    if field.endswith(("_from", "_seen")) or field == "first_branch":
        inside = [one for one in known if at_least(one, value)]
        outside = [one for one in known if not at_least(one, value)]
        yield from inside[1:2]
        yield from outside[-1:]
    else:
        inside = [one for one in known if at_most(one, value)]
        outside = [one for one in known if not at_most(one, value)]
        yield from inside[-2:-1]
        yield from outside[:1]


def _changes(file: str, field: str, value: Any) -> Iterator[Any]:
    if field == "cgroup" and (value is None or file == "node-needs"):
        return
    if field in OTHERS:
        yield from (other for other in OTHERS[field] if other != value)
    elif field in SWITCHES:
        yield not value
    elif field in COUNTS and value is not None:
        yield from (value - 1, value + 1)
    elif field in LISTS or (file == "fabrics" and field == "packages"):
        yield from ([other for other in value if other is not one] for one in value)
    elif value is not None and (
        field in ("headers", "cgroup_v1") or (file, field) == ("driver-packages", "fabric")
    ):
        yield None
    elif field == "end_of_life" and value is not None:
        read = date(2026, 11, 21)
        yield read - timedelta(days=1) if value >= read else read
    elif field == "cuda" and file in ("driver-branches", "frameworks"):
        known = domain(file, field)
        yield from (one for one in known if abs(known.index(one) - _place(known, value)) == 1)
    elif isinstance(value, str) and (field.endswith(("_from", "_upto", "_seen", "_branch"))):
        yield from _steps(file, field, value)
        if field.endswith("_upto") or field == "last_branch":
            yield None


def _place(known: list[str], value: str) -> int:
    return (
        sum(not at_least(one, value) for one in known) if value not in known else known.index(value)
    )


@cache
def fact_mutants() -> tuple[Mutant, ...]:
    """Return every mutant of the facts, in the order of the files."""
    tables = {file: list(table.values()) for file, table in world().tables().items()}
    found = []
    for file in KINDS:
        for place, fact in enumerate(tables[file] if file in SEEN_BY else ()):
            for field in type(fact.value).model_fields:
                value = getattr(fact.value, field)
                for number, other in enumerate(_changes(file, field, value)):
                    changed = fact.model_copy(
                        update={"value": fact.value.model_copy(update={field: other})}
                    )
                    others = [*tables[file][:place], changed, *tables[file][place + 1 :]]
                    catalogue = assembled({**tables, file: others}, "sha256:mutant")
                    shown = f"without #{number}" if field in LISTS else f"{other!s:.40}"
                    name = f"{fact.id} {field}: {value!s:.60} as {shown}"
                    found.append(Mutant(name, SEEN_BY[file], catalogue=catalogue))
    return tuple(found)


def spoilt(mutant: Mutant) -> Mutant:
    """Return a mutant that all cases are tried on."""
    return replace(mutant, rules=())
