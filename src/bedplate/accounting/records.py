"""One record for each time that a workload was admitted, read from what Kueue says of it.

A Workload has the time of its present admission, whether it has finished, and in
`accumulatedPastExecutionTimeSeconds` how long all admissions before the present one lasted. So a
Workload that was not watched still gives the right sum.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bedplate.portable.quantities import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

API: Final = "kueue.x-k8s.io/v1beta2"
#: Written by an admission policy from who made the request.
USER: Final = "bedplate.io/user"
#: Who makes the pods of all students, and the annotation in which KubeSpawner names the student.
HUB: Final = "system:serviceaccount:bedplate-hub:"
STUDENT: Final = "hub.jupyter.org/username"

#: In the name of a flavour, between its pool and the course whose claims it is of.
CLAIMS: Final = ".claims."

#: GPUs that one unit of a resource is, by pool (as flavours are named) and resource.
Units = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Amount:
    """So many units of a resource of a flavour, and the GPUs that they are."""

    flavor: str
    resource: str
    count: int
    gpus: float

    @property
    def shared(self) -> bool:
        """Whether a unit is less than a GPU."""
        return self.gpus < self.count


@dataclass(frozen=True)
class Record:
    """A workload held GPUs from `start` to `end`, or to this day.

    Attributes:
        uid: of the Workload.
        start: of the admission, in seconds since 1970; with `uid` the key of a record.
        end: None while it goes on.
        why: how it ended: `evicted`, `finished`, `deleted`; `lost` where the Workload was gone when
            it was looked for again: `end` is then when it was last seen.
        cycles: admissions in this record. More than one, or one that nobody saw begin, has the
            right length and not the right place in time: `placed` is False.
        user: who submitted it; empty where that is not known.
        seen: when the API last showed a record that goes on.
        measured: seconds for which it is known what its GPUs did.
        idle: those of them in which its pods used no GPU.
        no_figure: why the last look did not know it, with the node.
    """

    uid: str
    start: int
    end: int | None
    why: str
    namespace: str
    queue: str
    workload: str
    user: str
    amounts: tuple[Amount, ...]
    cycles: int = 1
    placed: bool = True
    seen: int | None = None
    measured: float = 0.0
    idle: float = 0.0
    no_figure: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What a record is known by."""
        return self.uid, self.start

    def as_json(self) -> dict[str, Any]:
        """Return the form in which it is kept."""
        found = asdict(self)
        found["amounts"] = [asdict(one) for one in self.amounts]
        found["start"], found["end"], found["seen"] = map(
            written, (self.start, self.end, self.seen)
        )
        if not self.measured and not self.no_figure:  # as in a cluster without readers
            for name in ("measured", "idle", "no_figure"):
                del found[name]
        return found


#: More GPUs and shares than any cluster has; what is no number is not below it either.
LARGEST: Final = 1e9


def read_record(kept: Mapping[str, Any]) -> Record:
    """Return a record from the form in which it is kept. Raises KeyError, TypeError, ValueError."""
    times = {name: seconds(kept[name]) for name in ("start", "end", "seen")}
    if times["start"] is None:
        raise ValueError("a record without a start")
    amounts = tuple(Amount(**one) for one in kept["amounts"])
    record = Record(**{**kept, **times, "amounts": amounts})
    texts = [record.uid, record.why, record.namespace, record.queue, record.workload, record.user]
    texts += [record.no_figure]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a name is no text")
    numbers = [record.cycles, record.measured, record.idle]
    numbers += [*(number for one in amounts for number in (one.count, one.gpus))]
    if not all(isinstance(one, int | float) and 0 <= one < LARGEST for one in numbers):
        raise ValueError("a number of GPUs is not a number")
    return record


def seconds(time: str | None) -> int | None:
    """Return a time of the API in seconds since 1970."""
    if time is None:
        return None
    return int(datetime.fromisoformat(time).timestamp())


def written(time: int | None) -> str | None:
    """Return a time as the API writes it."""
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Seen:
    """What a Workload says of its admissions.

    Attributes:
        admitted: when the present admission began, if there is one.
        ended: when the last admission ended, if it has.
        why: how it ended.
        past: seconds of all admissions before the present one.
        cycles: how many those are.
        amounts: of the present admission, or else what it asks for.
    """

    uid: str
    namespace: str
    queue: str
    workload: str
    amounts: tuple[Amount, ...]
    admitted: int | None
    ended: int | None
    why: str
    past: int
    cycles: int


def seen(workload: Mapping[str, Any], units: Units, *, deleted_at: int | None = None) -> Seen:
    """Return what a Workload says of its admissions; `deleted_at` where the API has deleted it."""
    meta, status = workload["metadata"], workload.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    admission = status.get("admission") or {}

    def true(kind: str) -> bool:
        return bool(conditions.get(kind, {}).get("status") == "True")

    def since(kind: str) -> int | None:
        return seconds(conditions[kind]["lastTransitionTime"]) if kind in conditions else None

    admitted = since("Admitted") if true("Admitted") else None
    ended, why = None, ""
    if admitted is None:
        ended, why = since("Admitted"), "evicted"
    elif true("Finished"):
        ended, why = since("Finished"), "finished"
    elif deleted_at is not None:
        # Kueue holds a Workload until its pods are gone; the deletion began before that.
        ended, why = seconds(meta.get("deletionTimestamp")) or deleted_at, "deleted"
    evictions = (status.get("schedulingStats") or {}).get("evictions") or []
    cycles = sum(int(one["count"]) for one in evictions)
    if true("Evicted") and admitted is not None:
        cycles -= 1  # counted already, and its pods still run
    return Seen(
        uid=meta["uid"],
        namespace=meta["namespace"],
        queue=str(admission.get("clusterQueue") or ""),
        workload=_owner(workload),
        amounts=tuple(_amounts(workload, units)),
        admitted=admitted,
        ended=ended,
        why=why,
        past=int(status.get("accumulatedPastExecutionTimeSeconds") or 0),
        cycles=max(0, cycles),
    )


def _owner(workload: Mapping[str, Any]) -> str:
    owners = workload["metadata"].get("ownerReferences") or []
    first = next((one for one in owners if one.get("controller")), owners[0] if owners else None)
    if first is None:
        return f"Workload/{workload['metadata']['name']}"
    return f"{first['kind']}/{first['name']}"


def _amounts(workload: Mapping[str, Any], units: Units) -> list[Amount]:
    """Return the extended resources that are held; before any admission those asked for."""
    admission = (workload.get("status") or {}).get("admission") or {}
    counts: dict[tuple[str, str], int] = {}
    for one in admission.get("podSetAssignments") or []:
        for resource, quantity in (one.get("resourceUsage") or {}).items():
            if "/" in resource:
                place = str((one.get("flavors") or {}).get(resource, "")), resource
                counts[place] = counts.get(place, 0) + int(parse(quantity))
    if not admission:
        for group in workload["spec"].get("podSets") or []:
            for container in group["template"]["spec"].get("containers") or []:
                limits = (container.get("resources") or {}).get("limits") or {}
                for resource, quantity in limits.items():
                    if "/" in resource:
                        asked = int(parse(quantity)) * int(group.get("count", 1))
                        counts["", resource] = counts.get(("", resource), 0) + asked
            counts |= _claimed(workload, group, units)
    return [
        Amount(flavor, resource, count, round(count * _unit(units, flavor, resource), 6))
        for (flavor, resource), count in sorted(counts.items())
        if count
    ]


def _claimed(
    workload: Mapping[str, Any], group: Mapping[str, Any], units: Units
) -> dict[tuple[str, str], int]:
    """Return the shares that students of a course claim; its namespace has the course's name."""
    claims = [
        one
        for one in group["template"]["spec"].get("resourceClaims") or []
        if "resourceClaimTemplateName" in one
    ]
    course = f"{CLAIMS}{workload['metadata']['namespace']}"
    flavor = next((name for name in units if name.endswith(course)), None)
    if not claims or flavor is None:
        return {}
    (resource,) = units[flavor]
    return {(flavor, resource): len(claims) * int(group.get("count", 1))}


def _unit(units: Units, flavor: str, resource: str) -> float:
    """Return the GPUs of a unit; of a flavour that is not known the first that has the resource.

    A pool's flavours have its name, with a point and more behind it where its placement changed.
    """
    pool = flavor if flavor in units else flavor.partition(".")[0]
    if resource in units.get(pool, {}):
        return units[pool][resource]
    return next((of[resource] for of in units.values() if resource in of), 1.0)


def user_of(owner: Mapping[str, Any] | None, workload: Mapping[str, Any] | None = None) -> str:
    """Return who submitted what a Workload belongs to; empty where that is not known.

    A pod that the hub made is the student's whom the hub names in it. Of a Job that is gone the
    Workload has the template, which carries the name too.
    """
    annotations = ((owner or {}).get("metadata") or {}).get("annotations") or {}
    if owner is None and workload is not None and _owner(workload).startswith("Job/"):
        groups = workload["spec"].get("podSets") or [{}]
        template = groups[0].get("template") or {}
        annotations = (template.get("metadata") or {}).get("annotations") or {}
    user = str(annotations.get(USER, ""))
    return str(annotations.get(STUDENT, user)) if user.startswith(HUB) else user
