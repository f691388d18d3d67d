"""A pool of mode dra for the hub: one node with one GPU of 15 GiB, and courses that claim of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting.records import seen
from bedplate.accounting.units import units
from bedplate.catalogue import load_catalogue
from bedplate.components.frameworks import hub_settings
from bedplate.components.schedulers import dra
from bedplate.components.schedulers.kueue import policies
from bedplate.lock.model import Lock
from bedplate.resolver import courses as decided
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.dra import VERSION, claim, pod, resource_slice, template
from tests.schedulers.kueue import API as KUEUE
from tests.schedulers.locks import queues_of
from tests.schedulers.nodes import GPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POOL, NODE = "pool_claims", "pool-claims-{}"
MODEL = "t4-16gb"


def with_claims(lock: Lock, courses: Mapping[str, tuple[int, int]], nodes: int = 1) -> Lock:
    """Return a lock with the pool, and courses of students and MiB each; without, a whole GPU."""
    host = lock.hosts["pool-class-0"].model_copy(update={"pool": POOL, "groups": [POOL]})
    content = lock.model_dump()
    for number in range(nodes):
        content["hosts"][NODE.format(number)] = host.model_dump()
    content["pools"][POOL] = {
        "os": "debian-12",
        "kind": "bare-metal",
        "gpu": [{"model": MODEL, "pci": ["10de:1eb8"], "count": 1}],
        "sharing": {"mode": "dra"},
        "expects": {"resource": GPU, "count": 1, "by": "dra"},
    }
    content["cluster"]["courses"] = {
        name: {
            "students": students,
            "share": {"resource": GPU, "count": 1, "memory_mib": mib or None},
            "pool": POOL,
            "idle_timeout_s": 1800,
            "teachers": ["ada"],
        }
        for name, (students, mib) in courses.items()
    }
    found = Lock.model_validate(content)
    assert found.cluster is not None
    teams = found.cluster.teams | decided.teams(found.cluster.courses)
    return found.model_copy(update={"cluster": found.cluster.model_copy(update={"teams": teams})})


def asking(lock: Lock, name: str) -> dict[str, Any]:
    """Return such a course as the hub's settings have it."""
    assert lock.cluster is not None
    profile = {"slug": f"{name}-jax", "title": name, "about": "Memory.", "image": "x/y:1"}
    asked = hub_settings.asked(lock.cluster.courses[name])
    return {**asked, "teachers": ["ada"], "profiles": [profile]}


def publish(api: Api, nodes: int = 1) -> None:
    """Make the device classes, and the slice of each node; whole GPUs are no resource of it."""
    for one in dra.objects(limited=False):
        api.apply(one)
    for name in (NODE.format(number) for number in range(nodes)):
        api.create(resource_slice(name, 1, "15Gi"))
        path = api.path("nodes", "v1", None, name)
        api.patch(path, {"status": {"capacity": {GPU: None}, "allocatable": {GPU: None}}}, "status")


def claimed(api: Api, course: str) -> dict[str, tuple[str, str]]:
    """Return by pod the GPU that it has a share of, and how much of the memory that is."""
    found = {}
    for one in api.get("resourceclaims", VERSION, course):
        devices = one.get("status", {}).get("allocation", {}).get("devices", {})
        for of in devices.get("results", []):
            pod = one["metadata"]["ownerReferences"][0]["name"]
            found[pod] = (of["device"], of["consumedCapacity"]["memory"])
    return found


def counted(api: Api, lock: Lock, course: str) -> list[tuple[str, str, int, float]]:
    """Return what usage counts of a course's workloads that are admitted."""
    of = units(lock, load_catalogue())
    found = [seen(one, of) for one in api.get("workloads", KUEUE, course)]
    return [
        (amount.flavor, amount.resource, amount.count, amount.gpus)
        for one in found
        for amount in one.amounts
        if one.admitted
    ]


def claiming(namespace: str, of: str, kind: str = "Pod") -> dict[str, Any]:
    """Return a pod, or a job of one, that claims by a template outside of the hub."""
    made = pod(namespace, "mine", of)
    if kind == "Job":
        inside = {"spec": {**made["spec"], "restartPolicy": "Never"}}
        made |= {"apiVersion": "batch/v1", "kind": kind, "spec": {"template": inside}}
    return made


def asking_for(gpus: int, kind: str = "Pod") -> dict[str, Any]:
    """Return something of the course `thesis` with pods that ask for GPUs by the resource."""
    made = pod("thesis", "own")
    if gpus:
        made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(gpus)}}
    if kind == "Job":
        inside = {"spec": {**made["spec"], "restartPolicy": "Never"}}
        made |= {"apiVersion": "batch/v1", "kind": kind, "spec": {"template": inside}}
    elif kind == "Deployment":
        marked = {"metadata": {"labels": {"app": "own"}}, "spec": made["spec"]}
        spec = {"selector": {"matchLabels": {"app": "own"}}, "template": marked}
        made |= {"apiVersion": "apps/v1", "kind": kind, "spec": spec}
    return made


def refuses_others(api: Api, teacher: str, hub: str) -> None:
    """Make claims in the course `studio` as a teacher, and elsewhere as the hub: none is taken."""
    theirs, hubs = api.acting_as(teacher), api.acting_as(hub)
    for kind in ("Pod", "Job"):
        with pytest.raises(ApiError, match=f"{kind.lower()} with resource claims — namespace stud"):
            theirs.create(claiming("studio", "share-3072mi", kind))
    # Whole GPUs of a course are counted by person too, and nothing else is.
    for make in (asking_for(1), asking_for(1, "Job"), asking_for(1, "Deployment")):
        with pytest.raises(
            ApiError, match=r"with GPUs of a course is not made by the hub — namespace thes"
        ):
            theirs.create(make)
    made = theirs.create(asking_for(0))
    api.delete(api.path_of(made))
    # An administrator could change the queue as well. To what waits, a teacher adds nothing.
    made = api.create(asking_for(2, "Job"))
    with pytest.raises(ApiError, match="job with GPUs of a course is not made by the hub"):
        theirs.patch(api.path_of(made), {"spec": {"parallelism": 2}})
    api.delete(api.path_of(made))
    whole = template("studio", "share-3072mi", "15Gi")
    for one in (whole, claim(whole)):
        with pytest.raises(ApiError, match=f'User "{teacher}" cannot create resource'):
            theirs.create(one)
    for namespace, of in (("studio", "share-6144mi"), ("lab", "share-3072mi")):
        with pytest.raises(ApiError, match="pod with resource claims"):
            hubs.create(claiming(namespace, of))
    named = claiming("lab", "share-3072mi")
    named["spec"]["resourceClaims"] = [{"name": "gpu0", "resourceClaimName": "mine"}]
    with pytest.raises(ApiError, match="pod with resource claims"):
        hubs.create(named)


@contextlib.contextmanager
def unguarded(api: Api, lock: Lock) -> Iterator[None]:
    """Be without the policies of claims for a time."""
    off = [
        one
        for one in policies.objects(queues_of(lock))
        if "bedplate-counted-devices" in one["metadata"]["name"]
    ]
    for one in off:
        api.delete(api.path_of(one))
    yield
    for one in off:
        api.apply(one)


def takes_a_share(api: Api, teacher: str) -> None:
    """Claim in the course `studio` as a teacher, until it is taken, and release it."""

    def taken() -> bool:
        with contextlib.suppress(ApiError):
            return bool(api.acting_as(teacher).create(claiming("studio", "share-3072mi")))
        return False

    eventually(taken)
    eventually(lambda: claimed(api, "studio") == {"mine": ("gpu-0", "3Gi")})
    api.delete(api.path("pods", "v1", "studio", "mine"))
    eventually(lambda: claimed(api, "studio") == {})
