"""Courses by claims: what the hub claims by, the class as a quota of claims, and who may claim.

Kueue counts each claim of a device class as one (its gate KueueDRAIntegration, on by default). All
students of a course claim by one template, so their number is the class, and the plan has proved
that so many have room. The flavour has no topology: Kueue chooses nodes by what they offer, which
claims are not, whole GPUs of such a pool neither. kube-scheduler sees what is left.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bedplate.accounting.units import flavor
from bedplate.components.schedulers.dra import SHARE
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object, made
from bedplate.components.schedulers.topology import POOL_LABEL
from bedplate.lock.claims import RESOURCE, template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.components.schedulers.kueue.args import QueuesArgs
    from bedplate.lock.courses import Course

VERSION: Final = "resource.k8s.io/v1"


def tolerated(args: QueuesArgs, pool: str) -> Object:
    """Return a flavour's tolerations: Kueue gives them to the pods that it lets in there."""
    found = args.pools[pool].tolerations
    return {"tolerations": list(found)} if found else {}


def flavors(args: QueuesArgs) -> Iterator[Object]:
    """Yield a ResourceFlavor for each course in a pool of mode dra."""
    for name, course in args.in_pools_of_claims.items():
        yield made(
            "ResourceFlavor",
            flavor(name, course.pool),
            f"{_each(course)} of {course.pool}, for students of {name}.",
            labels={POOL_LABEL: course.pool, TEAM_LABEL: name},
            spec={"nodeLabels": {POOL_LABEL: course.pool}} | tolerated(args, course.pool),
        )


def groups(args: QueuesArgs, name: str, resources: Iterable[str]) -> list[Object]:
    """Return the resource groups of a course in a pool of mode dra: the class, and nothing more.

    Its only flavour has no topology: with one that has, Kueue would choose its nodes. Of the other
    `resources` there is none.
    """
    course = args.in_pools_of_claims[name]
    share = course.share
    has = dict.fromkeys(resources, 0) | {share.resource: course.seats * share.count}
    if share.memory_mib is not None:
        has |= {share.resource: 0, RESOURCE: course.seats}
    quotas = [
        {"name": one, "nominalQuota": str(count), "borrowingLimit": "0"}
        for one, count in sorted(has.items())
    ]
    of = {"name": flavor(name, course.pool), "resources": quotas}
    return [{"coveredResources": sorted(has), "flavors": [of]}]


def about(name: str, course: Course) -> str:
    """Say what the queue of such a course has."""
    who = f"{course.seats} runs" if course.runs_at_once else f"{course.students} students"
    who = f"{course.seats} students at a time" if course.at_once else who
    return f"Team {name}: {_each(course)} of {course.pool} for each of {who}."


def _each(course: Course) -> str:
    if course.share.memory_mib is not None:
        return f"{course.share.memory_mib}Mi of a GPU"
    return f"{course.share.count} {course.share.resource}"


def templates(args: QueuesArgs) -> Iterator[Object]:
    """Yield the template of each course's claims. Members of teams may make none."""
    for name, course in args.claiming.items():
        size = f"{course.share.memory_mib}Mi"
        exactly = {"deviceClassName": SHARE, "capacity": {"requests": {"memory": size}}}
        yield made(
            "ResourceClaimTemplate",
            template(course),
            f"What a student of {name} has of a GPU: {size}.",
            version=VERSION,
            namespace=name,
            labels={TEAM_LABEL: name},
            spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        )


def asks(spec: str) -> str:
    """CEL: whether the specification of a pod has claims."""
    return f"(has({spec}.resourceClaims) && {spec}.resourceClaims.size() > 0)"


def by_template(args: QueuesArgs, spec: str) -> str:
    """CEL: whether a pod claims once, by the template of the course that its namespace is of."""
    names = json.dumps({name: template(one) for name, one in args.claiming.items()})
    label = f"namespaceObject.metadata.labels[?'{TEAM_LABEL}'].orValue('')"
    return (
        f"({spec}.resourceClaims.size() == 1 && {spec}.resourceClaims[0]"
        f".?resourceClaimTemplateName.orValue('') == {names}[?{label}].orValue('none'))"
    )
