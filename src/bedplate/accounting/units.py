"""How much of a GPU one unit of each resource is, as the lock shares them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.records import CLAIMS
from bedplate.lock.claims import RESOURCE, by_claim, in_pools, template
from bedplate.lock.offers import offered, offers, pools_with_offers
from bedplate.resolver.mig_layouts import held
from bedplate.resolver.node_pods import for_users, of_unit

if TYPE_CHECKING:
    from bedplate.accounting.records import Units
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.courses import Course
    from bedplate.lock.model import Pool

PROFILE: Final = re.compile(r"\.(?P<gib>[0-9]+)gb")


def units(lock: Lock, catalogue: Catalogue) -> Units:
    """Return GPUs by unit, by pool and resource. A share is its part of the GPU.

    Shares by claim are of one course's size, and by that course's flavour.
    """
    found = {
        flavored(name): {
            resource: _unit(lock.pools[name], resource, catalogue)
            for resource in offers(lock.pools[name])
        }
        for name in pools_with_offers(lock)
    }
    for name, course in by_claim(lock.courses).items():
        gpus = float(claimed(lock, course, catalogue)["gpus"])
        found[flavor(name, course.pool)] = {RESOURCE: gpus}
    return found


def claimed(lock: Lock, course: Course, catalogue: Catalogue) -> dict[str, Any]:
    """Return what a student's claim is, as `annotation` does, with the template to claim by.

    Its part of the GPU is that of the memory.
    """
    whole, memory = _memory(lock.pools[course.pool], "", 1, catalogue), course.share.memory_mib
    gpus = round((memory or 0) / whole, 6) if whole else 1.0
    found = {"gpus": gpus, "most": 1, "memory_mib": memory, "claim": template(course)}
    return found | _of_node(course.notebook.memory_mib, course.notebook.cpu_milli)


def flavored(pool: str) -> str:
    """Return what the flavours of a pool begin with: its name as Kubernetes writes names."""
    return pool.replace("_", "-").lower()


def flavor(course: str, pool: str) -> str:
    """Return the name of the flavour of a course by claims, of its pool up to the first point.

    Shares of two courses differ in size, so that each has a flavour of its own.
    """
    return f"{flavored(pool)}{CLAIMS}{course}"


def by_flavor(lock: Lock, catalogue: Catalogue) -> dict[str, str]:
    """Return `annotation` by flavour: of each pool, and of each course in a pool of mode dra."""
    found = {flavored(pool): annotation(lock, pool, catalogue) for pool in pools_with_offers(lock)}
    claims = {name for name, pool in lock.pools.items() if pool.sharing.mode == "dra"}
    for name, course in in_pools(lock.courses, claims).items():
        known = annotation(lock, course.pool, catalogue)
        if course.share.memory_mib is not None:
            known = json.dumps({RESOURCE: claimed(lock, course, catalogue)}, sort_keys=True)
        found[flavor(name, course.pool)] = known
    return found


def annotation(lock: Lock, pool: str, catalogue: Catalogue) -> str:
    """Return what a unit of each resource of a pool is, as JSON: requests of shares read it.

    `gpus` and `memory_mib` are those of a unit, `most` the units that one container can have: more
    than one share of a GPU is refused by the device plugin, or is no more of the GPU.
    """
    of = lock.pools[pool]
    found = {}
    for resource, count in offers(of).items():
        gpus = _unit(of, resource, catalogue)
        memory = _memory(of, resource, gpus, catalogue)
        found[resource] = {
            "gpus": round(gpus, 6),
            "most": count if gpus == 1 else 1,
            **({"memory_mib": memory} if memory else {}),
            **_of_node(*of_unit(lock, pool, for_users(lock, catalogue))),
        }
    return json.dumps(found, sort_keys=True)


def _of_node(memory: int | None, cpu: int | None) -> dict[str, int]:
    """Return what goes with a unit of its node, as far as it is known."""
    given = {"node_memory_mib": memory, "node_cpu_milli": cpu}
    return {name: value for name, value in given.items() if value}


def _memory(pool: Pool, resource: str, gpus: float, catalogue: Catalogue) -> int | None:
    """Return the memory of a unit in MiB: that of the profile, or the GPU's part; None if unknown.

    GPUs of several models count as the smallest.
    """
    if found := PROFILE.search(resource.partition("/mig-")[2] or pool.sharing.profile or ""):
        return int(found["gib"]) * 1024
    models = [catalogue.gpu_models.get(gpu.model) for gpu in pool.gpu]
    sizes = [one.value.memory_gib for one in models if one is not None and one.value.memory_gib]
    return int(min(sizes) * 1024 * gpus) if sizes else None


def capacity(lock: Lock, catalogue: Catalogue) -> float:
    """Return the GPUs that all nodes offer to the queues."""
    of = units(lock, catalogue)
    return sum(
        count * of[flavored(name)][resource]
        for name in lock.pools
        if flavored(name) in of
        for resource, count in offered(lock, name).items()
    )


def _unit(pool: Pool, resource: str, catalogue: Catalogue) -> float:
    sharing = pool.sharing
    if sharing.mode in {"time-slicing", "mps"} and sharing.replicas:
        return 1 / sharing.replicas
    profile = resource.partition("/mig-")[2] or sharing.profile
    if sharing.mode == "mig" and profile and (profile == sharing.profile or "/mig-" in resource):
        holds = [held(gpu.model, profile.replace(".me", "+me"), catalogue) for gpu in pool.gpu]
        most = max((one for one in holds if one), default=0)
        return 1 / most if most else 1.0
    return 1.0
