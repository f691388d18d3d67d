"""What one request of a team's member may be: how many GPUs, and for how long.

A request is what the queue admits at once: Kueue makes a Workload of it, whatever form it has. So
the policy of Workloads is the one that protects; those of Jobs, JobSets, pods and remote claims
give who submits the same answer at once. What a person has at once is counted elsewhere
(`person_limits.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bedplate.common import cel
from bedplate.components.schedulers import jobset
from bedplate.components.schedulers.kueue import devices, person_limits
from bedplate.components.schedulers.kueue.admission import (
    BOTH,
    CREATE,
    NAMESPACE,
    Kinds,
    mutation,
    policy,
)
from bedplate.components.schedulers.kueue.objects import (
    CONTROLLER,
    JOB_CONTROLLER,
    TEAM_LABEL,
    Object,
)
from bedplate.pods.remote.claims import GROUP, PLURAL
from bedplate.pods.remote.objects import LONGEST_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from bedplate.components.schedulers.kueue.args import QueuesArgs

NAME: Final = "bedplate-request-limits"
TIME: Final = "bedplate-request-time"
#: Seconds by which the queue's limit may be later than a job's own, which ends it first.
LATER: Final = 60

_LABEL: Final = f"metadata.?labels[?'{LONGEST_LABEL}']"
_LABELLED: Final = f"object.{_LABEL}.orValue('none')"
_DEADLINE: Final = "spec.?activeDeadlineSeconds"
#: How many pods a Job has at a time, as Kueue counts them.
_AT_A_TIME: Final = (
    "[{0}.?parallelism.orValue(1), {0}.?completions.orValue({0}.?parallelism.orValue(1))].min()"
)
_SIDECAR: Final = "c.?restartPolicy.orValue('') == 'Always'"


@dataclass(frozen=True)
class _Form:
    """What a request is written as, in CEL.

    Attributes:
        suffix: of the policy's name.
        kinds: the objects.
        items: the parts of an object.
        number: how many pods a part `p` has at a time.
        spec: the specification of its pods.
        kept: what is the same in an update that is not judged.
        seconds: how long it may run at most; 0 where nothing says so.
    """

    suffix: str
    kinds: Kinds
    items: str
    number: str
    spec: str
    kept: tuple[str, ...]
    seconds: str = f"{_LABELLED}.matches('^[0-9]{{1,9}}$') ? int({_LABELLED}) : 0"


_WORKLOADS: Final = _Form(
    "",
    (("kueue.x-k8s.io", "*", ("workloads",)),),
    "object.spec.?podSets.orValue([])",
    "p.?count.orValue(1)",
    "p.template.spec",
    ("spec.?podSets", "spec.?maximumExecutionTimeSeconds"),
    "object.spec.?maximumExecutionTimeSeconds.orValue(0)",
)
_SUBMITTED: Final = (
    _Form(
        "-of-jobs",
        (("batch", "v1", ("jobs",)),),
        "[object.spec]",
        _AT_A_TIME.format("p"),
        "p.template.spec",
        ("spec.?parallelism", "spec.template.spec.containers", _DEADLINE, _LABEL),
    ),
    _Form(
        "-of-job-sets",
        (("jobset.x-k8s.io", "*", ("jobsets",)),),
        "object.spec.?replicatedJobs.orValue([])",
        f"p.?replicas.orValue(1) * {_AT_A_TIME.format('p.template.spec')}",
        "p.template.spec.template.spec",
        ("spec.?replicatedJobs", _LABEL),
    ),
    _Form("-of-pods", (("", "v1", ("pods",)),), "[object]", "1", "p.spec", (_LABEL,)),
)
#: Who goes on with what was judged before.
_CONTROLLERS: Final = json.dumps([CONTROLLER, jobset.CONTROLLER, JOB_CONTROLLER])
_BY_USERS: Final = f"!(request.userInfo.username in {_CONTROLLERS})"


def objects(args: QueuesArgs) -> Iterator[Object]:
    """Yield the policies; none where no team has `per_request`."""
    limits = {name: team.per_request for name, team in sorted(args.teams.items())}
    gpus = {name: one.gpus for name, one in limits.items() if one.gpus is not None}
    # What is larger than a person's limit would wait for ever.
    persons = person_limits.limits(args.teams).items()
    less = {name: most for name, most in persons if most < gpus.get(name, most + 1)}
    gpus |= less
    times = {name: one.time_s for name, one in limits.items() if one.time_s is not None}
    if not gpus and not times:
        return
    sizes = _of_gpus(gpus, less)
    for form in (_WORKLOADS, *_SUBMITTED):
        same = " && ".join(f"object.{one} == oldObject.{one}" for one in form.kept)
        conditions = {"is-new": f"oldObject == null || !({same})"}
        if form is not _WORKLOADS:
            conditions["by-users"] = _BY_USERS
        yield from policy(
            f"{NAME}{form.suffix}",
            "One request has at most the GPUs and the time that the site gives its team.",
            form.kinds,
            BOTH,
            {**sizes, **_of_time(form, times)},
            variables={
                **_of_team(gpus, times),
                "gpus": _sum(form, args.resources),
                "seconds": form.seconds,
            },
            conditions=conditions,
        )
    yield from policy(
        f"{NAME}-of-claims",
        "One remote claim has at most the GPUs and the time that the site gives its team.",
        ((GROUP, "*", (PLURAL,)),),
        CREATE,
        {**sizes, **_longer(times, "limitSeconds", 0)},
        variables={
            **_of_team(gpus, times),
            "gpus": "object.spec.?count.orValue(1)",
            "seconds": "object.spec.limitSeconds",
        },
    )
    yield from _usual(args, times)


def _sum(form: _Form, resources: list[str]) -> str:
    """CEL: what all pods of a request have at a time."""
    return f"{form.items}.map(p, ({form.number}) * {_of_pod(form.spec, resources)}).sum()"


def _of_pod(spec: str, resources: list[str]) -> str:
    """CEL: what a pod has of the queue's resources at most at a time, as Kueue counts it."""
    asked = "c.?resources.?limits[?r].orValue(c.?resources.?requests[?r].orValue('0'))"
    each = f"{json.dumps(resources)}.map(r, quantity({asked}).asInteger()).sum()"
    init = f"{spec}.?initContainers.orValue([])"
    stays = f"({spec}.?containers.orValue([]) + {init}.filter(c, {_SIDECAR})).map(c, {each}).sum()"
    return f"([{stays}] + {init}.filter(c, !({_SIDECAR})).map(c, {each})).max()"


def _of_team(gpus: Mapping[str, int], times: Mapping[str, int]) -> dict[str, str]:
    """Return the team's limits as variables; 0 is none."""

    def most(limits: Mapping[str, int]) -> str:
        told = ", ".join(f"'{name}': {number}" for name, number in limits.items())
        return f"{{{told}}}[?variables.team].orValue(0)" if limits else "0"

    team = f"namespaceObject.metadata.labels[?'{TEAM_LABEL}'].orValue('')"
    return {"team": team, "most_gpus": most(gpus), "most_time": most(times)}


def _fix(less: str, key: str) -> str:
    setting = f"bedplate_teams.{{variables.team}}.{key}"
    return f"ask for {less}, or ask an administrator for more: {setting}"


def _of_gpus(limits: Mapping[str, int], of_person: Collection[str]) -> dict[str, str]:
    """Return what a request may have, with the message of a refusal.

    Args:
        limits: by team.
        of_person: the teams whose limit is that of one person.
    """
    if not limits:
        return {}
    most, key = "variables.most_gpus", "per_request"
    if of_person:
        whose = f"variables.team in {json.dumps(sorted(of_person))}"
        key = f"{{({whose} ? 'per_user' : 'per_request')}}"
    return {
        f"{most} == 0 || variables.gpus <= {most}": cel.message(
            "larger than one request of team {variables.team} may be",
            NAMESPACE,
            "{string(variables.gpus)} GPUs or shares",
            f"{{string({most})}}",
            _fix("less", f"{key}.gpus"),
        )
    }


def _of_time(form: _Form, limits: Mapping[str, int]) -> dict[str, str]:
    """Return how long a request with GPUs may run: the queue's limit, and a Job's own."""
    where = "maximumExecutionTimeSeconds" if form is _WORKLOADS else LONGEST_LABEL
    found = _longer(limits, where, LATER)
    if _DEADLINE in form.kept and limits:
        own = f"object.{_DEADLINE}.orValue(0)"
        found |= _refused("activeDeadlineSeconds", own, f"{own} <= variables.most_time + {LATER}")
    return found


def _longer(limits: Mapping[str, int], where: str, later: int) -> dict[str, str]:
    if not limits:
        return {}
    within = f"variables.seconds > 0 && variables.seconds <= variables.most_time + {later}"
    return _refused(where, "variables.seconds", within)


def _refused(where: str, got: str, within: str) -> dict[str, str]:
    return {
        f"variables.most_time == 0 || variables.gpus == 0 || ({within})": cel.message(
            "longer than one request of team {variables.team} may run",
            NAMESPACE,
            f"{where}: {{string({got})}}",
            "1 to {string(variables.most_time)} seconds",
            _fix("less time", "per_request.time"),
        )
    }


def _usual(args: QueuesArgs, limits: Mapping[str, int]) -> Iterator[Object]:
    """Yield what writes the team's time into a request that says none.

    Where the API server has no such policies, users say it: the refusal has the label's name.
    """
    if not limits or args.mutating_api is None:
        return
    times = ", ".join(f"'{name}': '{most}'" for name, most in limits.items())
    own = f"{{{times}}}[namespaceObject.metadata.labels['{TEAM_LABEL}']]"
    key = LONGEST_LABEL.replace("/", "~1")
    some = f"[JSONPatch{{op: 'add', path: '/metadata/labels/{key}', value: {own}}}]"
    none = (
        f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'{LONGEST_LABEL}': {own}}}}}]"
    )
    expression = f"has(object.metadata.labels) ? {some} : {none}"
    for form in _SUBMITTED:
        yield from mutation(
            f"{TIME}{form.suffix}",
            "A request with GPUs that says no time has that of its team.",
            form.kinds,
            CREATE,
            {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}},
            {
                "says-no-time": f"!object.{_LABEL}.hasValue()",
                "has-gpus": f"{form.items}.exists(p, {devices.gpus(form.spec, args)})",
                "by-users": _BY_USERS,
            },
            version=args.mutating_api,
            namespaces={
                "matchExpressions": [
                    {"key": TEAM_LABEL, "operator": "In", "values": sorted(limits)}
                ]
            },
        )
