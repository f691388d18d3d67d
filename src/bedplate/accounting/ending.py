"""Ends what holds GPUs and is idle, after a warning that its owner sees. Standard library only.

Each look reads what is there and keeps nothing: a warning is an annotation, a label and an event.
What cannot be measured ends by its time alone.
"""

from __future__ import annotations

import http
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.records import API as KUEUE
from bedplate.hub import idle, shares
from bedplate.packing.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.accounting.measured import Measured
    from bedplate.accounting.records import Record
    from bedplate.packing.api import Api

#: Idle times in seconds, by namespace and by what holds the GPUs there.
Limits = dict[str, dict[str, float]]
#: Records that go on, and for how many seconds the pods of each did nothing; None is not known.
Going = list[tuple["Record", "float | None"]]
Object = dict[str, Any]
#: Jobs are those of teams, and JobSets; the engines of claims have a namespace of their own.
SHARES, JOBS, CLAIMS = "shares", "jobs", "claims"
MERGE: Final = "merge-patch+json"
#: Seconds. Kubernetes ends a Job whose time is up, and lists it as failed with what it was.
AT_ONCE: Final = 1
#: On what was warned of, and what has ended: of thousands of Jobs these alone are listed.
LABEL: Final = "bedplate.io/idle"
STATES: Final = {"": None, "warn": "warned", "stop": "ended"}
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
KINDS: Final = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
REMOTE: Final = "bedplate.io/v1alpha1", "RemoteClaim"
#: On the Job of a remote claim, NAMESPACE/NAME of the claim. No member of a team can write it.
CLAIM: Final = "bedplate.io/claim"
SOURCE: Final = "bedplate-accounting"
AGAIN: Final = "; to run it again, delete it and submit it again"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """Something that holds GPUs.

    Attributes:
        of: its API version and its kind.
        found: as the API server has it.
        still: seconds since it did anything; None where that is not known.
        stop: what of its spec ends it.
        workload: UID of the Workload that is deactivated to end it; else empty.
    """

    of: tuple[str, str]
    found: Object
    still: float | None
    stop: Mapping[str, Any] = field(default_factory=dict)
    workload: str = ""

    @property
    def path(self) -> str:
        """Return where it is."""
        meta = self.found["metadata"]
        return _path(*self.of, meta["namespace"], meta["name"])


def look(
    api: Api, limits: Limits, records: Iterable[Record], found: Mapping[str, Measured], now: float
) -> None:
    """Warn of what is idle, and end it. What cannot be read or changed is left for the next look.

    Args:
        found: what is known of records that go on, by Workload.
        now: seconds since 1970.
    """
    going: dict[str, Going] = {}
    for one in records:
        if one.end is None and one.uid in found and one.namespace in limits:
            going.setdefault(one.namespace, []).append((one, found[one.uid].still))
    when = datetime.fromtimestamp(now, UTC)
    for namespace, known in sorted(going.items()):
        for kind, listed in ((SHARES, _shares), (JOBS, _jobs), (CLAIMS, _claims)):
            if (limit := limits[namespace].get(kind)) is None:
                continue
            try:
                for held in listed(api, namespace, known, limit):
                    _settle(api, held, limit, when)
            except ApiError as error:
                log.warning("idle %s in %s: %s", kind, namespace, error)


def _settle(api: Api, one: Held, limit: float, now: datetime) -> None:
    """Warn of one, end it, or note that it is in use again."""
    meta = one.found["metadata"]
    why = f"it was idle for {idle.length(limit)}{AGAIN if one.workload else ''}"
    todo, notes = idle.changed(meta.get("annotations") or {}, one.still, limit, now, why)
    if not notes:
        return
    marks = {"uid": meta["uid"], "annotations": notes, "labels": {LABEL: STATES[todo]}}
    body: Object = {"metadata": marks}
    if todo == "stop" and one.stop:
        body["spec"] = one.stop
    try:
        api.call("PATCH", one.path, body, MERGE)
        if todo == "stop" and one.workload:
            _deactivate(api, meta, one.workload)
        if todo:
            ends = f"its GPU is not used and no program runs: it ends at {notes.get(idle.ENDS)}"
            text = why if todo == "stop" else f"{ends} unless it is used"
            api.call(
                "POST", f"/api/v1/namespaces/{meta['namespace']}/events", _event(one, text, now)
            )
    except ApiError as error:  # the others go on
        log.warning("%s: %s", one.path, error)
    log.info("%s: %s", one.path, todo or "in use again")


def _shares(api: Api, namespace: str, going: Going, _limit: float) -> Iterator[Held]:
    """Yield shares on request; Kubernetes ends their Jobs."""
    known = {record.workload: still for record, still in going}
    path = f"{shares.jobs(namespace)}?labelSelector={shares.LABEL}"
    for job in api.call("GET", path)["items"]:
        of = f"Job/{job['metadata']['name']}"
        if of in known and "deletionTimestamp" not in job["metadata"] and not shares.ended(job):
            ends = {"activeDeadlineSeconds": AT_ONCE}
            yield Held(("batch/v1", "Job"), job, known[of], ends)


def _jobs(api: Api, namespace: str, going: Going, limit: float) -> Iterator[Held]:
    """Yield Jobs and JobSets that are idle or were; Kueue stops them, and they stay."""
    for kind, version in KINDS.items():
        known = {
            record.workload.partition("/")[2]: (record.uid, still)
            for record, still in going
            if record.workload.startswith(f"{kind}/")
        }
        if not known:
            continue
        path = f"{_path(version, kind, namespace)}?labelSelector={LABEL}"
        marked = {one["metadata"]["name"]: one for one in api.call("GET", path)["items"]}
        for name, (workload, still) in sorted(known.items()):
            found = marked.get(name)
            if found is None and idle.near(still, limit):
                found = _found(api, _path(version, kind, namespace, name))
            if found is not None and shares.LABEL not in (found["metadata"].get("labels") or {}):
                yield Held((version, kind), found, still, workload=workload)


def _claims(api: Api, namespace: str, going: Going, _limit: float) -> Iterator[Held]:
    """Yield the remote claims whose engines are in a namespace; their controller ends them."""
    for record, still in going:
        kind, _, name = record.workload.partition("/")
        job = _found(api, _path(KINDS["Job"], "Job", namespace, name)) if kind == "Job" else None
        notes = job["metadata"].get("annotations") or {} if job else {}
        where, _, claim = str(notes.get(CLAIM, "")).partition("/")
        found = _found(api, _path(*REMOTE, where, claim)) if claim else None
        if found is not None and name == f"claim-{found['metadata']['uid']}":
            yield Held(REMOTE, found, still, {"release": True})


def _deactivate(api: Api, owner: Mapping[str, Any], uid: str) -> None:
    """Let Kueue stop what belongs to a Workload, and not start it again."""
    path = _path(KUEUE, "Workload", owner["namespace"])
    for one in api.call("GET", f"{path}?labelSelector={JOB_UID}={owner['uid']}")["items"]:
        if (meta := one["metadata"])["uid"] == uid:
            body = {"metadata": {"uid": uid}, "spec": {"active": False}}
            api.call("PATCH", f"{path}/{meta['name']}", body, MERGE)


def _event(one: Held, text: str, now: datetime) -> Object:
    """Return what `kubectl get events` and `kubectl describe` show of it."""
    meta, (version, kind) = one.found["metadata"], one.of
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    place = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "bedplate-idle-", "namespace": meta["namespace"]},
        "involvedObject": {"apiVersion": version, "kind": kind, **place},
        "type": "Warning",
        "reason": "Idle",
        "message": text,
        "source": {"component": SOURCE},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _path(version: str, kind: str, namespace: str, name: str = "") -> str:
    path = f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s"
    return f"{path}/{name}" if name else path


def _found(api: Api, path: str) -> Object | None:
    """Return an object; None where it is gone."""
    try:
        return api.call("GET", path)
    except ApiError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
    return None
