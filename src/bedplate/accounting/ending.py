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
from bedplate.pods.api import ApiError
from bedplate.pods.hub import idle, shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.accounting.measured import Measured
    from bedplate.accounting.records import Record
    from bedplate.pods.api import Api

#: Idle times in seconds, by namespace and by what holds the GPUs there.
Limits = dict[str, dict[str, float]]
#: Records that go on, and what is known of the pods of each.
Going = list[tuple["Record", "Measured"]]
Object = dict[str, Any]
#: Jobs are all that a team submits, but for shares; claims' engines have their own namespace.
SHARES, JOBS, CLAIMS = "shares", "jobs", "claims"
MERGE: Final = "merge-patch+json"
#: Seconds. Kubernetes ends a Job whose time is up, and lists it as failed with what it was.
AT_ONCE: Final = 1
#: On what was warned of, and what has ended: of thousands of Jobs these alone are listed.
LABEL: Final = "bedplate.io/idle"
STATES: Final = {"": None, "warn": "warned", "stop": "ended"}
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
KINDS: Final = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
APPS: Final = "apps/v1"
REPLICAS: Final = "ReplicaSet"
REMOTE: Final = "bedplate.io/v1alpha1", "RemoteClaim"
#: On the Job of a remote claim, NAMESPACE/NAME of the claim. No member of a team can write it.
CLAIM: Final = "bedplate.io/claim"
SOURCE: Final = "bedplate-accounting"
AGAIN: Final = "; to run it again, delete it and submit it again"
SCALE: Final = "; to run it again, scale it up"

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
        again: how it is run again, after a semicolon.
    """

    of: tuple[str, str]
    found: Object
    still: float | None
    stop: Mapping[str, Any] = field(default_factory=dict)
    workload: str = ""
    again: str = ""

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
            going.setdefault(one.namespace, []).append((one, found[one.uid]))
    when = datetime.fromtimestamp(now, UTC)
    for namespace, known in sorted(going.items()):
        every = (SHARES, _shares), (JOBS, _jobs), (JOBS, _pods), (JOBS, _sets), (CLAIMS, _claims)
        for kind, listed in every:
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
    why = f"it was idle for {idle.length(limit)}{one.again}"
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
    known = {record.workload: one.still for record, one in going}
    path = f"{shares.jobs(namespace)}?labelSelector={shares.LABEL}"
    for job in api.call("GET", path)["items"]:
        of = f"Job/{job['metadata']['name']}"
        if of in known and "deletionTimestamp" not in job["metadata"] and not shares.ended(job):
            ends = {"activeDeadlineSeconds": AT_ONCE}
            yield Held(("batch/v1", "Job"), job, known[of], ends)


def _jobs(api: Api, namespace: str, going: Going, limit: float) -> Iterator[Held]:
    """Yield Jobs and JobSets that are idle or were; Kueue stops them, and they stay."""
    for kind, version in KINDS.items():
        mine = {
            record.workload.partition("/")[2]: (record.uid, one.still)
            for record, one in going
            if record.workload.startswith(f"{kind}/")
        }
        stills = {name: still for name, (_, still) in mine.items()}
        for name, found in _near(api, (version, kind), namespace, stills, limit):
            if shares.LABEL not in (found["metadata"].get("labels") or {}):
                workload, still = mine[name]
                yield Held((version, kind), found, still, workload=workload, again=AGAIN)


def _near(
    api: Api,
    of: tuple[str, str],
    namespace: str,
    stills: Mapping[str, float | None],
    limit: float,
) -> Iterator[tuple[str, Object]]:
    """Yield objects of a kind, by name, that are idle or were; all others are not even read."""
    if not stills:
        return
    path = f"{_path(*of, namespace)}?labelSelector={LABEL}"
    marked = {one["metadata"]["name"]: one for one in api.call("GET", path)["items"]}
    for name, still in sorted(stills.items()):
        found = marked.get(name)
        if found is None and idle.near(still, limit):
            found = _found(api, _path(*of, namespace, name))
        if found is not None:
            yield name, found


def _pods(api: Api, namespace: str, going: Going, limit: float) -> Iterator[Held]:
    """Yield pods that somebody submitted alone; the kubelet ends them, and they stay as failed."""
    stills = {
        record.workload.partition("/")[2]: one.still
        for record, one in going
        if record.workload.startswith("Pod/") and not one.maker
    }
    for name, found in _near(api, ("v1", "Pod"), namespace, stills, limit):
        ends = {"activeDeadlineSeconds": AT_ONCE}
        yield Held(("v1", "Pod"), found, stills[name], ends, again=AGAIN)


def _sets(api: Api, namespace: str, going: Going, limit: float) -> Iterator[Held]:
    """Yield Deployments, all of whose pods that hold GPUs are idle: to end one pod brings another.

    A Deployment that changes has pods of two ReplicaSets.
    """
    made: dict[str, list[float | None]] = {}
    for _, one in going:
        kind, _, name = one.maker.partition("/")
        if kind == REPLICAS:
            made.setdefault(name, []).append(one.still)
    stills: dict[str, float | None] = {}
    for name, each in sorted(made.items()):
        found = _found(api, _path(APPS, REPLICAS, namespace, name))
        owners = found["metadata"].get("ownerReferences") or [] if found else []
        for one in owners:
            if one.get("controller") and one["kind"] == "Deployment":
                every = [*each, stills[one["name"]]] if one["name"] in stills else each
                known = [still for still in every if still is not None]
                stills[one["name"]] = min(known) if len(known) == len(every) else None
    for name, found in _near(api, (APPS, "Deployment"), namespace, stills, limit):
        yield Held((APPS, "Deployment"), found, stills[name], {"replicas": 0}, again=SCALE)


def _claims(api: Api, namespace: str, going: Going, _limit: float) -> Iterator[Held]:
    """Yield the remote claims whose engines are in a namespace; their controller ends them."""
    for record, one in going:
        kind, _, name = record.workload.partition("/")
        job = _found(api, _path(KINDS["Job"], "Job", namespace, name)) if kind == "Job" else None
        notes = job["metadata"].get("annotations") or {} if job else {}
        where, _, claim = str(notes.get(CLAIM, "")).partition("/")
        found = _found(api, _path(*REMOTE, where, claim)) if claim else None
        if found is not None and name == f"claim-{found['metadata']['uid']}":
            yield Held(REMOTE, found, one.still, {"release": True})


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
    root = "apis" if "/" in version else "api"
    path = f"/{root}/{version}/namespaces/{namespace}/{kind.lower()}s"
    return f"{path}/{name}" if name else path


def _found(api: Api, path: str) -> Object | None:
    """Return an object; None where it is gone."""
    try:
        return api.call("GET", path)
    except ApiError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
    return None
