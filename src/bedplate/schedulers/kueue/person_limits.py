"""What one member of a team has at once: Workloads wait outside of the queue to be counted.

A policy sees one object and counts none, so it makes each Workload inactive, which the queue does
not see. The recorder makes those active that a person has room for (`accounting/turns.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.hub.shares import HELD
from bedplate.remote.objects import TEAM_NAMESPACE
from bedplate.schedulers.kueue import devices
from bedplate.schedulers.kueue.admission import BOTH, mutation
from bedplate.schedulers.kueue.objects import TEAM_LABEL, Object
from bedplate.schedulers.kueue.queues import teams_of
from bedplate.schedulers.kueue.users import mutating_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.accounting.turns import Limits
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock

NAME: Final = "bedplate-person-limits"


def limits(lock: Lock) -> dict[str, int]:
    """Return the GPUs or shares that one member has, by team."""
    found = {name: team.per_user.gpus for name, team in sorted(teams_of(lock).items())}
    return {name: gpus for name, gpus in found.items() if gpus is not None}


def by_namespace(lock: Lock) -> Limits:
    """Return what the recorder counts by, also in the namespaces of remote claims."""
    teams = teams_of(lock)
    return {
        namespace: (name, gpus)
        for name, gpus in limits(lock).items()
        for namespace in (*teams[name].namespaces, TEAM_NAMESPACE.format(name))
    }


def objects(lock: Lock, catalogue: Catalogue | None = None) -> Iterator[Object]:
    """Yield the policy; none where no team has `per_user`."""
    found, api = limits(lock), mutating_api(lock, catalogue)
    if not found or api is None:
        return
    told = ", ".join(f"'{name}': '{gpus}'" for name, gpus in found.items())
    team = f"namespaceObject.metadata.labels['{TEAM_LABEL}']"
    why = (
        f"'one person has at most ' + {{{told}}}[{team}] + ' GPUs or shares of team ' + {team} + "
        "' at once: this waits until enough of theirs have ended'"
    )
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
            f"{devices.gpus('p.template.spec', lock)})",
        },
        version=api,
        namespaces={
            "matchExpressions": [{"key": TEAM_LABEL, "operator": "In", "values": sorted(found)}]
        },
    )
