"""What one student of a course gets from a pool, or why the pool has no such share."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from bedplate.common.errors import Wrong
from bedplate.courses.sizes import Asked, Gpus
from bedplate.lock.courses import Share
from bedplate.lock.offers import offers
from bedplate.portable.quantities import GIB, mebibytes
from bedplate.resolver.mig_layouts import shapes_of
from bedplate.resolver.node_pods import EQUAL
from bedplate.resolver.sharing_checks import clients
from bedplate.resolver.wishes import split_named
from bedplate.site.courses import StudentGpus, StudentMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.sharing_facts import MemoryReserve
    from bedplate.lock.model import Pool
    from bedplate.site.courses import Course

#: MIG divides a GPU's compute in as many slices.
SLICES = 7
#: The reserves of the catalogue that are of no framework: a whole GPU's, and any process's.
OF_GPU, OF_PROCESS = "gpu", "cuda"


def gpus_of(pool: Pool, hosts: int, catalogue: Catalogue) -> Gpus:
    """Return what the GPUs of a pool have; of several models, the least of them."""
    facts = [catalogue.gpu_models[gpu.model].value for gpu in pool.gpu]
    per_host = sum(gpu.count for gpu in pool.gpu)
    if pool.accelerator is not None:
        per_host = pool.accelerator.count
    sizes = [fact.memory_gib for fact in facts]
    known = [size for size in sizes if size is not None]
    reserve = catalogue.memory_reserves.get(OF_GPU)
    percent = (reserve.value.percent or 0) if reserve else 0
    whole = len(known) == len(sizes) > 0
    total = min(known) * GIB if whole else None
    memory = None if total is None else total * (100 - percent) // 100
    names = [gpu.model for gpu in pool.gpu] or [pool.accelerator.model if pool.accelerator else ""]
    most = min((clients(fact, catalogue) for fact in facts), default=0)
    shares = pool.sharing.replicas if pool.sharing.mode in EQUAL else None
    model = " and ".join(dict.fromkeys(names))
    mode = pool.sharing.mode
    built = tuple(sorted({fact.architecture for fact in facts}))
    return Gpus(per_host * hosts, per_host, memory, total, most, shares, mode, model, built)


def reserves(names: Iterable[str], gpus: Gpus, catalogue: Catalogue) -> list[Fact[MemoryReserve]]:
    """Return what is reserved on these GPUs: of their architecture, where that was measured."""
    known = catalogue.memory_reserves
    found = [
        known.get(f"{name}-{architecture}") or known.get(name)
        for name in names
        for architecture in gpus.architectures or ("",)
    ]
    return [fact for fact in found if fact]


def reserved_for(named: Iterable[str], catalogue: Catalogue) -> list[str]:
    """Return the frameworks whose memory counts: of an own image any, as it may hold any."""
    known = sorted({fact.value.framework for fact in catalogue.frameworks.values()})
    asked = {split_named(text)[0] for text in named}
    return known if asked - set(known) else sorted(asked)


def asked_of(course: Course, gpus: Gpus, catalogue: Catalogue) -> Asked:
    """Return what a student of a course asks for, with the most that a framework of it reserves."""
    names = [OF_PROCESS, *reserved_for(course.frameworks, catalogue)]
    facts = reserves(names, gpus, catalogue)
    reserve = max((fact.value.mebibytes or 0 for fact in facts), default=0)
    share = course.share
    if isinstance(share, StudentMemory):
        return Asked(None, mebibytes(share.memory), reserve)
    if isinstance(share, StudentGpus):
        return Asked(None, None, reserve)
    return Asked(Decimal(str(float(share))), None, reserve)


def written(course: Course) -> str:
    """Return a course's share as one says it."""
    share = course.share
    if isinstance(share, StudentMemory):
        return share.memory
    if isinstance(share, StudentGpus):
        return f"{share.gpus} GPU" + "s" * (share.gpus > 1)
    return f"{share:g}"


def share_of(course: Course, pool: Pool, gpus: Gpus, catalogue: Catalogue) -> Share | Wrong:
    """Return what the pod of each student asks for."""
    asked = asked_of(course, gpus, catalogue)
    resource = next(iter(offers(pool)), "")
    whole = course.share.gpus if isinstance(course.share, StudentGpus) else 0
    if asked.part == 1:
        whole = 1
    if gpus.mode == "mig":
        return _instance(course, pool, asked, catalogue)
    if gpus.shares is not None:
        return Wrong(*_no_whole(gpus)) if whole else _equal(course, gpus, asked, resource)
    if whole:
        if whole > gpus.per_host:
            got, allowed = f"{whole} GPUs", f"at most {gpus.per_host}, which a host has"
            return Wrong(got, allowed, f"write share: {{gpus: {gpus.per_host}}}")
        return Share(resource=resource, count=whole)
    if gpus.mode != "dra":
        fix = "write share: {gpus: 1}, or bedplate_sharing: "
        fix += f"{{mode: time-slicing, share: {asked.part}}}" if asked.part else "{mode: dra}"
        return Wrong(f"{written(course)} of GPUs that are not shared", "whole GPUs", fix)
    return _claim(course, gpus, asked, resource)


def _no_whole(gpus: Gpus) -> tuple[str, str, str]:
    allowed = f"a part of a GPU: {gpus.mode} makes {gpus.shares} shares of each"
    part = f"{1 / (gpus.shares or 1):.3g}"
    return "whole GPUs", allowed, f"write share: {part}, or mode: none for the pool"


def _equal(course: Course, gpus: Gpus, asked: Asked, resource: str) -> Share | Wrong:
    """Return one of a GPU's equal shares, which must be as large as what is asked for."""
    shares = gpus.shares or 1
    most = asked.most(gpus, gpus.mode)
    memory = None if gpus.memory is None else gpus.memory // shares - asked.reserve
    if most >= shares:
        part = gpus.part(memory)
        return Share(resource=resource, count=1, user_mib=memory, user_part=part)
    binds = min(asked.limits(gpus, gpus.mode).items(), key=lambda one: one[1])[0]
    if binds == "memory":
        has = (memory or 0) + asked.reserve
        got = f"{written(course)} where a share of {gpus.model} has {has}Mi of memory"
        allowed = f"{asked.reserve}Mi for the framework itself, and {asked.memory or 'some '}Mi"
        if asked.memory is None:
            allowed = f"more than {asked.reserve}Mi, which the framework itself takes"
    else:
        got = f"{written(course)} where the pool's shares are 1/{shares} of a GPU"
        allowed = f"at most {1 / shares:.3g}: {gpus.mode} has one size for a host"
    if most < 1:
        return Wrong(got, allowed, "write a smaller share")
    fix = f"write replicas: {most} for the pool" if most > 1 else "write mode: none for the pool"
    smaller = asked.of_size(shares, gpus)
    if smaller is not None:
        fix += f", or share: {smaller}"
    elif asked.part is not None and binds == "memory":
        fix += f", and share: {asked.of_size(most, gpus)}"
    return Wrong(got, allowed, fix)


def _claim(course: Course, gpus: Gpus, asked: Asked, resource: str) -> Share | Wrong:
    """Return the size of a claim by memory."""
    if gpus.memory is None:
        return Wrong(gpus.model, "GPUs whose memory is known", "write share: {gpus: 1}")
    claim = asked.claim(gpus)
    if claim > gpus.memory:
        most = gpus.memory - asked.reserve
        got = f"{written(course)} and {asked.reserve}Mi for the framework itself"
        allowed = f"at most {most}Mi of {gpus.model}"
        return Wrong(got, allowed, f"write share: {{memory: {most}Mi}}")
    if claim <= asked.reserve:
        got = f"{written(course)} of {gpus.model}, which is {claim}Mi"
        allowed = f"more than {asked.reserve}Mi, which the framework itself takes"
        fix = f"write share: {asked.of_size(gpus.memory // (asked.reserve + 1), gpus)}"
        return Wrong(got, allowed, fix)
    left = claim - asked.reserve
    return Share(
        resource=resource, count=1, memory_mib=claim, user_mib=left, user_part=gpus.part(left)
    )


def _instance(course: Course, pool: Pool, asked: Asked, catalogue: Catalogue) -> Share | Wrong:
    """Return the smallest MIG instance of a pool that is as large as what is asked for."""
    fits: dict[str, tuple[int, int]] = {}
    found = instances_of(pool, catalogue)
    for resource, (slices, memory) in found.items():
        large = asked.part is None or Decimal(slices) / SLICES >= asked.part
        if large and memory >= asked.reserve + (asked.memory or 0):
            fits[resource] = (slices, memory)
    count = course.share.gpus if isinstance(course.share, StudentGpus) else 1
    if fits:
        resource = min(fits, key=lambda name: (fits[name], name))
        return Share(resource=resource, count=count, user_mib=fits[resource][1] - asked.reserve)
    told = ", ".join(f"{slices}/{SLICES} with {memory}Mi" for slices, memory in found.values())
    got = f"{written(course)} of a GPU"
    return Wrong(got, f"an instance of the pool: {told}", "write a smaller share or larger profile")


def instances_of(pool: Pool, catalogue: Catalogue) -> Mapping[str, tuple[int, int]]:
    """Return compute slices and MiB of each resource of a pool of mode mig."""
    models = [gpu.model for gpu in pool.gpu]
    profiles = {profile for one in pool.sharing.layout for profile in one.profiles}
    if pool.sharing.profile is not None:
        profiles.add(pool.sharing.profile)
    shapes = shapes_of(models[0], catalogue) if models else {}
    sizes = {}
    for resource in offers(pool):
        name = resource.rpartition("/mig-")[2] if "/mig-" in resource else pool.sharing.profile
        if name in shapes:
            # As the names of profiles say it: 1g.10gb has one slice and 10 GB.
            slices, _, rest = name.partition("g.")
            sizes[resource] = (int(slices), int(rest.partition("gb")[0]) * 1000**3 // 1024**2)
        elif "/mig-" not in resource:
            sizes[resource] = (SLICES, gpus_of(pool, 1, catalogue).memory or 0)
    return sizes
