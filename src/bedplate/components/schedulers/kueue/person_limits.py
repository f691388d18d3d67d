"""What one member of a team has: Workloads wait outside of the queue to be counted.

A policy sees one object and counts none, so it makes each Workload inactive, which the queue does
not see. The recorder makes those active that a person has room for (`accounting/turns.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.accounting.turns import reason
from bedplate.components.schedulers.kueue import devices
from bedplate.components.schedulers.kueue.admission import BOTH, mutation
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object
from bedplate.pods.hub.shares import HELD
from bedplate.pods.remote.objects import TEAM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.accounting.hours import Limits as Hours
    from bedplate.accounting.turns import Limits
    from bedplate.components.schedulers.kueue.args import QueuesArgs
    from bedplate.lock import Lock
    from bedplate.lock.model import Team

NAME: Final = "bedplate-person-limits"


def limits(teams: Mapping[str, Team]) -> dict[str, int]:
    """Return the GPUs or shares that one member has at once, by team."""
    found = {name: team.per_user.gpus for name, team in sorted(teams.items())}
    return {name: gpus for name, gpus in found.items() if gpus is not None}


def by_namespace(teams: Mapping[str, Team]) -> Limits:
    """Return what the recorder counts by, also in the namespaces of remote claims."""
    return {
        namespace: (name, team.per_user.gpus)
        for name, team in sorted(teams.items())
        if team.per_user.limited
        for namespace in (*team.namespaces, TEAM_NAMESPACE.format(name))
    }


def hours(lock: Lock) -> Hours:
    """Return whose limit it is and the GPU-hours of a week, by queue; sizes are their course's."""
    found = {name: (name, team.per_user.hours) for name, team in lock.teams.items()}
    found |= {name: (one.of or name, one.per_user.hours) for name, one in lock.courses.items()}
    return {name: (of, most) for name, (of, most) in sorted(found.items()) if most is not None}


def objects(args: QueuesArgs) -> Iterator[Object]:
    """Yield the policy; none where no team has `per_user`."""
    found = dict(by_namespace(args.teams).values())
    if not found or args.mutating_api is None:
        return
    told = ", ".join(f"'{name}': '{reason(name, gpus)}'" for name, gpus in found.items())
    why = f"{{{told}}}[namespaceObject.metadata.labels['{TEAM_LABEL}']]"
    # Patches of JSON: an apply configuration of a kind that is new to the API server is refused.
    held = (
        "(has(object.metadata.annotations) ? [] :"
        " [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}])"
        f" + [JSONPatch{{op: 'add', path: '/metadata/annotations/{HELD.replace('/', '~1')}',"
        f" value: {why}}}, JSONPatch{{op: 'add', path: '/spec/active', value: false}}]"
    )
    yield from mutation(
        NAME,
        "A request waits outside of the queue until it is counted to its person.",
        (("kueue.x-k8s.io", "*", ("workloads",)),),
        BOTH,
        {"patchType": "JSONPatch", "jsonPatch": {"expression": held}},
        {
            # Kueue writes a Job that was changed while it waits into the Workload that it has.
            "is-new": "oldObject == null || !oldObject.?status.?admission.hasValue() && "
            "object.spec.?podSets != oldObject.spec.?podSets",
            "has-gpus": "object.spec.?podSets.orValue([]).exists(p, "
            f"{devices.gpus('p.template.spec', args)})",
        },
        version=args.mutating_api,
        namespaces={
            "matchExpressions": [{"key": TEAM_LABEL, "operator": "In", "values": sorted(found)}]
        },
    )
