"""Moves claims on: from request to admission, to an open front, to its end.

It looks at everything again every few seconds and keeps nothing in memory but what the next look
finds too, so it may be killed at any moment. Time limits hold without it: the front ends itself,
then Kubernetes ends its Job, and Kueue its Workload.
"""

from __future__ import annotations

import base64
import datetime
import http
import json
import logging
import pkgutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.api import ApiError
from bedplate.pods.remote import certificates, objects, tunnel
from bedplate.pods.remote.claims import API, ENDED, HELD, LIVE, OPEN, PLURAL, QUEUED, Claim
from bedplate.pods.remote.objects import CLAIM_LABEL, PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bedplate.pods.api import Api
    from bedplate.pods.remote.objects import Settings

LOG = logging.getLogger(__name__)
Object = dict[str, Any]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
UTC: Final = datetime.UTC
#: Status field by the meter's.
METERED: Final = {
    "bytesIn": "bytes_in",
    "bytesOut": "bytes_out",
    "connections": "connections",
    "refused": "refused",
    "seconds": "seconds",
}
#: Kinds by version and plural, in the order in which they are deleted: first what runs.
PARTS: Final = {
    "Job": ("batch/v1", "jobs"),
    "Service": ("v1", "services"),
    "Secret": ("v1", "secrets"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
}
#: Of a front's Secret: the admission that it is for.
OPENED: Final = "bedplate.io/opened"


class Controller:
    """Reads and writes the API server as the account that it was given."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        program: bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._settings, self._program, self._clock = api, settings, program, clock

    def run(self, pause: float) -> None:
        """Look again and again, until the process ends."""
        while True:
            try:
                self.look()
            except ApiError as error:
                LOG.warning("the API server: %s", error)
                self._api.drop()
            time.sleep(pause)

    def look(self) -> None:
        """Move every claim on by what is there now. Raises ApiError if it can't be listed."""
        # Jobs before claims: a Job whose claim is not in the later list has lost it.
        jobs = {uid: one for one in self._all("batch/v1", "jobs") if (uid := _claim_of(one))}
        workloads = {
            owner["uid"]: one
            for one in self._all(KUEUE, "workloads")
            for owner in one["metadata"].get("ownerReferences", [])
        }
        claims = {
            one["metadata"]["uid"]: Claim.of(one)
            for one in self._items(f"/apis/{API}/{PLURAL}")
            if one["metadata"]["namespace"] in self._settings.teams
        }
        crowded = _crowded(claims.values(), jobs)
        for uid, claim in claims.items():
            job = jobs.get(uid)
            if uid in crowded:
                continue
            workload = workloads.get(job["metadata"]["uid"]) if job else None
            try:
                self.step(claim, job, workload)
            except ApiError as error:  # the others' claims go on
                LOG.warning("claim %s/%s: %s", claim.namespace, claim.name, error)
        for uid, job in jobs.items():
            if uid not in claims:
                self._orphaned(uid, job)

    def step(self, claim: Claim, job: Object | None, workload: Object | None) -> None:
        """Move one claim on."""
        now = self._clock()
        if claim.phase == ENDED:
            if job:
                self._remove(claim.object, job["metadata"]["namespace"])
        elif claim.released:
            self._end(claim, claim.ended)
        elif claim.resource not in self._settings.resources:
            self._end(claim, self._uncounted(claim))
        elif claim.phase == OPEN and now >= _seconds(claim.status["until"]):
            self._end(claim, "time is up")
        elif job is None:
            self._ask(claim)
        elif (ended := _ended(job)) is not None:
            self._end(claim, ended)
        elif not _admitted(workload):
            self._wait(claim, workload)
        elif claim.phase == QUEUED:
            self._open(claim, _admitted_at(workload))
        else:
            message = _last_words(self._pods(claim)) or _mount(claim) + claim.warning
            self._write(claim, {"message": message, **self._metered(claim)})

    def _uncounted(self, claim: Claim) -> str:
        return (
            f"the queue does not count this resource — spec.resource — got {claim.resource} / "
            f"allowed {', '.join(self._settings.resources)} — make another claim"
        )

    def _ask(self, claim: Claim) -> None:
        """Make the Job in the team's queue; what is there already stays."""
        for one in objects.waiting(claim, self._settings):
            self._create(one)
        self._write(claim, {"phase": QUEUED, "message": "asked the team's queue"})

    def _wait(self, claim: Claim, workload: Object | None) -> None:
        if claim.phase == OPEN:  # stopped by the queue: what was given no longer opens anything
            used = self._clock() - _seconds(claim.status["since"])
            self._withdraw(claim)
            total = round(claim.status.get("usedSeconds", 0) + used, 1)
            gone = {"since": None, "until": None, "address": None}
            before = {key: claim.status.get(key, 0) for key in METERED}
            told = {"phase": QUEUED, "usedSeconds": total, "before": before}
            self._write(claim, {**told, **gone, "message": _why(workload)})
            self._shortened(claim, total)
            return
        self._write(claim, {"phase": QUEUED, "message": _why(workload)})

    def _shortened(self, claim: Claim, used: float) -> None:
        """Give the Job, which is suspended, what is left of its time."""
        left = max(1, int(claim.limit - used)) + objects.GRACE
        path = _path("batch/v1", "jobs", self._settings.place(claim), claim.object)
        self._api.call("PATCH", path, {"spec": {"activeDeadlineSeconds": left}}, "merge-patch+json")

    def _open(self, claim: Claim, since: float) -> None:
        """Hand out certificates: this alone lets the pod's containers start."""
        left = claim.limit - claim.status.get("usedSeconds", 0)
        until = datetime.datetime.fromtimestamp(int(since + left), UTC)
        if until.timestamp() <= self._clock():
            self._end(claim, "time is up")
            return
        host = self._settings.host(claim)
        if self._opened(claim) != _text(since) and not self._issue(claim, since, until):
            text = f"a Secret {claim.secret} that is not of this claim is in the way: delete it"
            self._write(claim, {"phase": QUEUED, "message": text})
            return
        told = {"since": _text(since), "until": _text(until.timestamp()), "user": claim.user}
        address = f"{host}:{PORT}"
        message = _mount(claim)
        self._write(claim, {"phase": OPEN, "address": address, "message": message, **told})

    def _opened(self, claim: Claim) -> str:
        """Return the admission for which certificates are there; of a look that was killed too."""
        path = _path("v1", "secrets", self._settings.place(claim), claim.object)
        found = self._found(path) or {"metadata": {}}
        return str(found["metadata"].get("annotations", {}).get(OPENED, ""))

    def _issue(self, claim: Claim, since: float, until: datetime.datetime) -> bool:
        self._withdraw(claim)
        bundle = certificates.issue(claim.uid, self._settings.host(claim), until)
        source = pkgutil.get_data("bedplate.pods.remote", "tunnel.py") or b""
        if not self._create(objects.client_secret(claim, self._settings, bundle, source)):
            return False
        # Last: with it the pod's containers start.
        own = objects.front_secret(claim, self._settings, bundle, until, self._program)
        own["metadata"]["annotations"][OPENED] = _text(since)
        return self._create(own)

    def _end(self, claim: Claim, why: str) -> None:
        """Take the last reading, then everything away. The record stays in the claim's status."""
        last = self._metered(claim) if claim.phase == OPEN else {}
        used = claim.status.get("usedSeconds", 0)
        if claim.phase == OPEN:
            end = min(self._clock(), _seconds(claim.status["until"]))
            used = round(used + max(0.0, end - _seconds(claim.status["since"])), 1)
        self._withdraw(claim)
        self._remove(claim.object, self._settings.place(claim))
        told = {"phase": ENDED, "message": why, "usedSeconds": used, **last}
        self._write(claim, told)
        LOG.info("ended %s", json.dumps({"claim": claim.uid, "user": claim.user, **told}))

    def _orphaned(self, uid: str, job: Object) -> None:
        meta = job["metadata"]
        LOG.info("claim %s is deleted: %s", uid, meta.get("annotations"))
        self._remove(meta["name"], meta["namespace"])

    def _withdraw(self, claim: Claim) -> None:
        """Delete the certificates; the client's Secret only if it is this claim's."""
        self._delete(_path("v1", "secrets", self._settings.place(claim), claim.object))
        path = _path("v1", "secrets", claim.namespace, claim.secret)
        found = self._found(path)
        if found is not None and _claim_of(found) == claim.uid:
            self._delete(path)

    def _found(self, path: str) -> Object | None:
        try:
            return self._api.call("GET", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return None

    def _remove(self, name: str, namespace: str) -> None:
        for version, plural in PARTS.values():
            self._delete(_path(version, plural, namespace, name))

    def _metered(self, claim: Claim) -> Object:
        """Return the meter's fields as the front has them now, with those of earlier openings."""
        reading = self._read(claim)
        if reading is None:
            return {}
        before = claim.status.get("before", {})
        return {
            key: round(before.get(key, 0) + reading[field], 3) for key, field in METERED.items()
        }

    def _read(self, claim: Claim) -> Object | None:
        namespace = self._settings.place(claim)
        try:
            statuses = [one["status"] for one in self._pods(claim)]
            address = next((a for one in statuses if (a := one.get("podIP"))), None)
            if address is None:
                return None
            secret = self._api.call("GET", _path("v1", "secrets", namespace, claim.object))
            return _reading(address, self._settings.host(claim), secret["data"])
        except (ApiError, OSError, ValueError, KeyError) as error:
            LOG.info("meter of %s/%s: %s", claim.namespace, claim.name, error)
            return None

    def _pods(self, claim: Claim) -> list[Object]:
        path = _path("v1", "pods", self._settings.place(claim))
        return self._items(f"{path}?labelSelector={CLAIM_LABEL}%3D{claim.uid}")

    def _write(self, claim: Claim, change: Object) -> None:
        """Change the status where it differs."""
        if all(claim.status.get(key) == value for key, value in change.items()):
            return
        path = f"{_path(API, PLURAL, claim.namespace, claim.name)}/status"
        body = {"metadata": {"uid": claim.uid}, "status": change}
        self._api.call("PATCH", path, body, "merge-patch+json")

    def _create(self, one: Object) -> bool:
        """Create an object, or tell False where one of its name is there."""
        version, plural = PARTS[one["kind"]]
        try:
            self._api.call("POST", _path(version, plural, one["metadata"]["namespace"]), one)
        except ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
            return False
        return True

    def _delete(self, path: str) -> None:
        try:
            self._api.call("DELETE", path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _all(self, version: str, plural: str) -> Iterable[Object]:
        """Yield the objects of all teams' engines."""
        for team in sorted(set(self._settings.teams.values())):
            yield from self._items(_path(version, plural, objects.TEAM_NAMESPACE.format(team)))

    def _items(self, path: str) -> list[Object]:
        found: list[Object] = self._api.call("GET", path)["items"]
        return found


def _crowded(claims: Iterable[Claim], jobs: dict[str, Object]) -> set[str]:
    """Return the claims that wait until older ones of their namespace have ended."""
    live: dict[str, list[str]] = {}
    for claim in sorted(claims, key=lambda one: (one.uid not in jobs, one.created, one.uid)):
        if claim.phase != ENDED and not claim.released:
            live.setdefault(claim.namespace, []).append(claim.uid)
    return {uid for found in live.values() for uid in found[LIVE:]}


def _path(version: str, plural: str, namespace: str, name: str = "") -> str:
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def _claim_of(found: Object) -> str:
    return str((found["metadata"].get("labels") or {}).get(CLAIM_LABEL, ""))


def _condition(found: Object | None, *kinds: str) -> Object:
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] in kinds and c["status"] == "True"), {})


def _admitted(workload: Object | None) -> bool:
    return bool(_condition(workload, "Admitted")) and not _condition(workload, "Evicted")


def _admitted_at(workload: Object | None) -> float:
    return _seconds(_condition(workload, "Admitted")["lastTransitionTime"])


def _why(workload: Object | None) -> str:
    """Return why it waits, in one line: what holds it before the queue, or what the queue says."""
    found = workload or {}
    conditions = found.get("status", {}).get("conditions", [])
    texts = {one["type"]: one.get("message", "") for one in conditions}
    held = (found.get("metadata", {}).get("annotations") or {}).get(HELD)
    why = held or texts.get("QuotaReserved") or texts.get("Evicted")
    return str(why or "waits for the queue")[:500]


def _mount(claim: Claim) -> str:
    return f"mount the Secret {claim.secret}"


def _last_words(pods: list[Object]) -> str:
    """Return the last line of a front that failed and is started again; empty if none did."""
    for pod in pods:
        for one in pod["status"].get("containerStatuses", []):
            ended = one.get("lastState", {}).get("terminated", {})
            if one["name"] == "front" and not one.get("ready") and ended.get("exitCode"):
                return str(ended.get("message", "")).strip().rpartition("\n")[2][:500]
    return ""


def _ended(job: Object) -> str | None:
    """Return why a Job has ended, or None while it has not."""
    found = _condition(job, "Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
    if not found:
        return None
    if found["type"] in {"Complete", "SuccessCriteriaMet"}:
        return "time is up"
    return f"the engine's Job failed: {found.get('reason', '')} {found.get('message', '')}"[:500]


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _text(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reading(address: str, host: str, data: dict[str, str]) -> Object:
    """Read a front's meter, by its own certificate."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ca.crt", "tls.crt", "tls.key"):
            path = Path(folder) / name
            path.touch(0o600)
            path.write_bytes(base64.b64decode(data[name]))
        context = tunnel.context_of(Path(folder))
    with (
        socket.create_connection((address, PORT), timeout=3) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        text = b""
        while part := secured.recv(65536):
            text += part
    found: Object = json.loads(text)
    return found
