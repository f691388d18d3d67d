"""A share of a GPU on request: what can be had, the Job that asks for it, where it waits, its end.

Standard library only: the hub mounts this file, the command line imports it. Whoever calls brings
`call`, which makes one request to the API server and returns its document, and raises an error with
the HTTP `status`. Nothing is remembered: the queue is Kueue's, the shares are the Jobs there are.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from bedplate.pods.hub import idle
from bedplate.pods.hub import memory as of_node
from bedplate.portable import quantities

Call = Callable[[str, str, "Mapping[str, Any] | None"], "dict[str, Any]"]
#: Returns the text at a path of the API server; raises as `Call` does.
Read = Callable[[str], str]
Object = dict[str, Any]

KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
VISIBLE: Final = "/apis/visibility.kueue.x-k8s.io/v1beta2"
QUEUE: Final = "default"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
#: On a Job that is a share, and on its pods.
LABEL: Final = "bedplate.io/share"
#: On a flavour: what a unit of its resources is, as JSON by resource.
UNITS: Final = "bedplate.io/units"
ASKED: Final = "bedplate.io/asked"
USER: Final = "bedplate.io/user"
STUDENT: Final = "hub.jupyter.org/username"
#: On a Workload that is not in the queue yet: why its person has to wait.
HELD: Final = "bedplate.io/held"
#: Seconds that an ended share is still listed.
KEPT: Final = 3600
SHORTEST: Final = 1
#: A week: what is to run longer is a job, not a share.
LONGEST: Final = 7 * 24 * 3600
#: The exit status of a program that was killed, as the kernel does for its memory.
KILLED: Final = 128 + 9
#: Bytes of a share's output that are shown.
SHOWN: Final = 1024 * 1024
#: More memory than a GPU has.
MOST_MIB: Final = 2**31
SPAN: Final = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")


class ShareError(Exception):
    """Something that who asks can put right."""

    def __init__(self, what: str, got: str, allowed: str, fix: str) -> None:
        super().__init__(f"{what} — got {got} / allowed {allowed} — {fix}")
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix


@dataclass(frozen=True)
class Wanted:
    """What somebody asks for: a part of a GPU or whole ones, or memory. One of the two is there."""

    gpus: float | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class Offer:
    """What a team can ask for in one pool.

    Attributes:
        gpus: of one unit, 1 or less.
        memory_mib: of one unit; None where it is not known.
        most: units that one container can have.
        labels: of the pool's nodes.
        claim: the template by which a container claims it; empty where it is a resource.
        node_memory_mib: of its node's memory, what goes with a unit; None where it is not known.
        node_cpu_milli: thousandths of its node's CPUs, likewise.
        node_shm_mib: of that memory, what /dev/shm may take; None for half of it.
        node_disk_mib: what may be written to its node's disk; None is no limit.
    """

    resource: str
    gpus: float
    memory_mib: int | None
    most: int
    labels: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""
    node_memory_mib: int | None = None
    node_cpu_milli: int | None = None
    node_shm_mib: int | None = None
    node_disk_mib: int | None = None

    def __str__(self) -> str:
        memory = f" ({_memory(self.memory_mib)})" if self.memory_mib else ""
        return f"{self.gpus:g}{memory}" if self.most == 1 else f"1 to {self.most} GPUs{memory}"


def wanted(text: str) -> Wanted:
    """Return what a text asks for: `0.1`, `2`, `2Gi`. Raises ShareError."""
    number = 0.0
    with contextlib.suppress(ValueError):
        if text[-1:].isalpha():
            mib = quantities.mebibytes(text)
            if 0 < mib <= MOST_MIB:
                return Wanted(memory_mib=mib)
        else:
            number = float(text)
    if not math.isfinite(number) or number <= 0 or (number > 1 and number != int(number)):
        raise ShareError(
            "no share of a GPU",
            text,
            "a part (0.1), whole GPUs (1, 2) or memory (2Gi)",
            "write one",
        )
    return Wanted(gpus=number)


def seconds(text: str) -> int:
    """Return how long a text says: `30m`, `1h30m`, `90s`, `2d`. Raises ShareError."""
    found = SPAN.fullmatch(text)
    parts = [int(one or 0) for one in found.groups()] if found else [0] * 4
    total = sum(number * size for number, size in zip(parts, (86400, 3600, 60, 1), strict=True))
    if not SHORTEST <= total <= LONGEST:
        raise ShareError("no time for a share", text, "1s to 7d, as 30m or 1h30m", "write a time")
    return total


def offers(call: Call, namespace: str) -> list[Offer]:
    """Return what the queue of a namespace has quota of, the smallest first."""
    local = call("GET", f"{KUEUE}/namespaces/{namespace}/localqueues/{QUEUE}", None)
    queue = call("GET", f"{KUEUE}/clusterqueues/{local['spec']['clusterQueue']}", None)
    found, silent = [], []
    for group in queue["spec"].get("resourceGroups") or []:
        for one in group["flavors"]:
            has = [r["name"] for r in one["resources"] if _quota(r)]
            if has:
                flavor = call("GET", f"{KUEUE}/resourceflavors/{one['name']}", None)
                found += _offers(flavor, has)
                silent += [] if _annotation(flavor, UNITS) else [one["name"]]
    if silent and not found:
        what, allowed = "flavours say nothing of their units", f"an annotation {UNITS}"
        fix = "ask an administrator to run pulumi up in stacks/schedulers"
        raise ShareError(what, ", ".join(silent), allowed, fix)
    return sorted(found, key=lambda one: (one.gpus, one.memory_mib or 0, one.resource))


def _quota(resource: Mapping[str, Any]) -> bool:
    """Tell whether a queue may have any of a resource. Without a limit it may borrow all."""
    return str(resource.get("nominalQuota", "0")) != "0" or resource.get("borrowingLimit") != "0"


def _offers(flavor: Mapping[str, Any], resources: list[str]) -> list[Offer]:
    units = json.loads(_annotation(flavor, UNITS) or "{}")
    labels = flavor["spec"].get("nodeLabels") or {}
    return [
        Offer(
            name,
            float(one["gpus"]),
            one.get("memory_mib"),
            int(one["most"]),
            labels,
            one.get("claim", ""),
            one.get("node_memory_mib"),
            one.get("node_cpu_milli"),
        )
        for name, one in units.items()
        if name in resources
    ]


def chosen(found: list[Offer], want: Wanted) -> tuple[Offer, int]:
    """Return the smallest offer that has what is asked for, and how many units of it.

    Raises:
        ShareError: there is none.
    """
    for one in found:
        count = _count(one, want)
        if count is not None:
            return one, count
    asked = f"{want.gpus:g}" if want.gpus is not None else _memory(want.memory_mib)
    what = "no such share in this queue"
    allowed = ", ".join(dict.fromkeys(map(str, found))) or "none: the team has no quota of GPUs"
    raise ShareError(what, asked, allowed, "ask for one of these, or for less")


def _count(one: Offer, want: Wanted) -> int | None:
    if want.memory_mib is not None:
        count = math.ceil(want.memory_mib / one.memory_mib) if one.memory_mib else one.most + 1
        # Memory of several GPUs is not one memory.
        return 1 if count == 1 else None
    count = math.ceil((want.gpus or 0) / one.gpus - 1e-9)
    return count if count <= one.most else None


def _memory(mib: int | None) -> str:
    return quantities.memory(mib or 0)


@dataclass(frozen=True)
class Request:
    """A share that is asked for.

    Attributes:
        text: as it was asked for.
        length: seconds from its start.
        image: what runs in it.
        command: what is run; empty for a shell that waits until the time is up.
        user: whom the hub asks for; empty where the API server knows who asks.
    """

    text: str
    length: int
    image: str
    command: tuple[str, ...] = ()
    name: str = ""
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def job(request: Request, namespace: str, offer: Offer, count: int) -> Object:
    """Return the Job: it waits in the team's queue, and Kubernetes ends it when its time is up."""
    name = request.name or f"share-{secrets.token_hex(3)}"
    if not NAME.fullmatch(name):
        fix = "write another name"
        raise ShareError("no name for a share", name, "up to 52 of a-z, 0-9 and -", fix)
    labels = {LABEL: "asked"}
    annotations = {ASKED: request.text, **({STUDENT: request.user} if request.user else {})}
    claims = [{"name": "gpu", "resourceClaimTemplateName": offer.claim}] if offer.claim else []
    # A program that takes more memory ends this pod alone. CPUs that others leave it may use.
    held = (offer.node_memory_mib, offer.node_cpu_milli, offer.node_disk_mib)
    memory, cpu, disk = ((one or 0) * count for one in held)
    devices = {} if claims else {offer.resource: str(count)}
    resources: Object = {**of_node.resources(devices, memory, cpu, disk)}
    if claims:
        resources["claims"] = [{"name": "gpu"}]
    shm = (offer.node_shm_mib or 0) * count or memory // 2
    container: Object = {
        "name": "share",
        "image": request.image,
        "command": list(request.command) or ["sleep", str(request.length)],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [dict(of_node.SHM)],
    }
    if request.environment:
        container["env"] = [
            {"name": key, "value": value} for key, value in sorted(request.environment.items())
        ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, QUEUE_LABEL: QUEUE},
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": request.length,
            "ttlSecondsAfterFinished": KEPT,
            # What the queue stops, or a drain, is no failure: it waits again.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": "share",
                            "operator": "In",
                            "values": [KILLED],
                        },
                    },
                ]
            },
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "nodeSelector": dict(offer.labels),
                    "containers": [container],
                    **({"resourceClaims": claims} if claims else {}),
                    "volumes": [of_node.shm_volume(shm)],
                },
            },
        },
    }


@dataclass(frozen=True)
class Made:
    """A share that was asked for: its name, and what it gets, which may be more than was asked."""

    name: str
    gets: str


def request(
    call: Call,
    namespace: str,
    asked: Request,
    change: Callable[[Object], Object] = lambda made: made,
) -> Made:
    """Ask for a share; `change` is made to its Job before. Raises ShareError."""
    offer, count = chosen(offers(call, namespace), wanted(asked.text))
    part = _bounded(call, namespace, offer, count)
    return submit(call, namespace, change(job(asked, namespace, part, count)), offer, count)


def _bounded(call: Call, namespace: str, offer: Offer, count: int) -> Offer:
    """Return an offer with no more of its node than a pod of the team may have."""
    listed = call("GET", f"/api/v1/namespaces/{namespace}/limitranges", None)["items"]
    every = [one for found in listed for one in found["spec"].get("limits") or []]
    most = {
        name: text
        for one in every
        if one["type"] == "Pod"
        for name, text in (one.get("max") or {}).items()
    }
    memory, cpu = offer.node_memory_mib, offer.node_cpu_milli
    if memory and "memory" in most:
        memory = min(memory, int(quantities.mebibytes(most["memory"])) // count)
    if cpu and "cpu" in most:
        cpu = min(cpu, int(quantities.parse(most["cpu"]) * 1000) // count)
    return replace(offer, node_memory_mib=memory, node_cpu_milli=cpu)


def submit(call: Call, namespace: str, made: Object, offer: Offer, count: int) -> Made:
    """Make the Job of a share of so many units of an offer."""
    made = call("POST", jobs(namespace), made)
    gpus = offer.gpus * count
    memory = f", {_memory(offer.memory_mib)}" if offer.memory_mib and count == 1 else ""
    gets = f"{count} {offer.resource}, {gpus:g} of a GPU{memory}"
    if gpus > 1:
        gets = f"{count} {offer.resource}"
    return Made(str(made["metadata"]["name"]), gets)


def release(call: Call, namespace: str, name: str) -> None:
    """End a share, or leave the queue. Raises ShareError where there is none of that name."""
    found = shares(call, namespace)
    if name not in {one.name for one in found}:
        allowed = ", ".join(one.name for one in found) or "none"
        raise ShareError("no such share", name, allowed, "list them, and name one")
    body = {"propagationPolicy": "Background"}
    call("DELETE", f"{jobs(namespace)}/{name}", body)


def output(call: Call, read: Read, namespace: str, name: str) -> str:
    """Return what a share's command has printed until now, the first `SHOWN` bytes."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    found = call("GET", f"{path}?labelSelector=batch.kubernetes.io/job-name={name}", None)["items"]
    newest = sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))[-1:]
    for pod in newest:
        try:
            return read(f"{path}/{pod['metadata']['name']}/log?container=share&limitBytes={SHOWN}")
        except Exception as error:
            if getattr(error, "status", None) not in (400, 404):  # it has not begun, or is gone
                raise
    return ""


@dataclass(frozen=True)
class Share:
    """A share as it is now.

    Attributes:
        state: `waiting`, `starting`, `running`, `ending`, `ended`.
        place: in the team's queue from 1, and how many wait there; None where it does not wait.
        reason: why it waits, or how it ended.
        until: when its time is up.
        student: whom the hub asked for; empty where somebody asked the API server.
    """

    name: str
    asked: str
    user: str
    state: str
    place: tuple[int, int] | None = None
    reason: str = ""
    until: str = ""
    student: str = ""

    def __str__(self) -> str:
        where = f"place {self.place[0]} of {self.place[1]}" if self.place else ""
        until = f"until {self.until}" if self.until else ""
        more = ", ".join(part for part in (where, until, self.reason) if part)
        return f"{self.name}: {self.state}" + (f", {more}" if more else "")


def shares(call: Call, namespace: str) -> list[Share]:
    """Return the shares in a namespace, by age."""
    if not (listed := call("GET", f"{jobs(namespace)}?labelSelector={LABEL}", None)["items"]):
        return []
    work = call("GET", f"{KUEUE}/namespaces/{namespace}/workloads", None)["items"]
    by_owner = {
        owner["uid"]: one for one in work for owner in one["metadata"].get("ownerReferences") or []
    }
    places = _places(call, namespace, work)
    found = [
        _share(one, by_owner.get(one["metadata"]["uid"]), places)
        for one in listed
        if "deletionTimestamp" not in one["metadata"]
    ]
    order = {one["metadata"]["name"]: one["metadata"]["creationTimestamp"] for one in listed}
    return sorted(found, key=lambda one: (order[one.name], one.name))


def _places(call: Call, namespace: str, work: list[Object]) -> dict[str, tuple[int, int]]:
    """Return places by the UID of the Workload's owner: as Kueue shows them, if it does.

    Else as Kueue orders them: by priority, then by when they came. A namespace has one queue.
    """
    path = f"{VISIBLE}/namespaces/{namespace}/localqueues/{QUEUE}/pendingworkloads?limit=10000"
    try:
        items = call("GET", path, None).get("items") or []
        # Kueue counts from 0 and leaves a 0 out.
        ranked = sorted(items, key=lambda one: one.get("positionInLocalQueue", 0))
    except Exception as error:
        if getattr(error, "status", None) not in (403, 404, 503):
            raise
        ranked = sorted((one for one in work if _waits(one)), key=_rank)
    return {
        owner["uid"]: (number, len(ranked))
        for number, one in enumerate(ranked, 1)
        for owner in one["metadata"].get("ownerReferences") or []
    }


def _conditions(one: Mapping[str, Any] | None) -> dict[str, Object]:
    found = ((one or {}).get("status") or {}).get("conditions") or []
    return {of["type"]: of for of in found}


def _true(one: Mapping[str, Any] | None, kind: str) -> bool:
    return bool(_conditions(one).get(kind, {}).get("status") == "True")


def ended(one: Mapping[str, Any]) -> bool:
    """Tell whether the Job of a share has ended."""
    return any(_true(one, kind) for kind in ("Complete", "Failed"))


def _waits(one: Object) -> bool:
    return not any(_true(one, kind) for kind in ("QuotaReserved", "Finished"))


def _rank(one: Object) -> tuple[int, str, str]:
    meta = one["metadata"]
    evicted = _conditions(one).get("Evicted", {})
    came = evicted.get("lastTransitionTime") if _true(one, "Evicted") else None
    return -int(one["spec"].get("priority") or 0), came or meta["creationTimestamp"], meta["name"]


def _share(one: Object, work: Object | None, places: Mapping[str, tuple[int, int]]) -> Share:
    meta, status = one["metadata"], one.get("status") or {}
    length = timedelta(seconds=int(one["spec"].get("activeDeadlineSeconds") or 0))
    state, place, reason, until = "starting", None, "", ""
    started = status.get("startTime")
    if _true(one, "Failed"):
        state, failed = "ended", _conditions(one)["Failed"]
        late = failed.get("reason") == "DeadlineExceeded"
        reason = "its time was up" if late else str(failed.get("message", ""))
        reason = _killed(one) if failed.get("reason") == "PodFailurePolicy" else reason
        reason = _annotation(one, idle.ENDED) or reason
    elif _true(one, "Complete"):
        state, reason = "ended", "its command has ended"
    elif _true(one, "FailureTarget") or _true(one, "SuccessCriteriaMet"):
        state = "ending"
    elif one["spec"].get("suspend"):
        state, place = "waiting", places.get(meta["uid"])
        reason = str(_conditions(work).get("QuotaReserved", {}).get("message", ""))
        reason = _annotation(work, HELD) if work and _annotation(work, HELD) else reason
    elif started:
        until = (datetime.fromisoformat(started) + length).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = "running" if status.get("ready") else "starting"
        if ends := _annotation(one, idle.ENDS):
            reason = f"idle, and ends at {ends} unless it is used"
    student = _annotation(one, STUDENT)
    user = student or _annotation(one, USER)
    return Share(meta["name"], _annotation(one, ASKED), user, state, place, reason, until, student)


def _killed(one: Object) -> str:
    """Say why a share's program was killed: nearly always it is the kernel, for its memory."""
    (container,) = one["spec"]["template"]["spec"]["containers"]
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    if memory is None:
        return "its program was killed"
    return f"its program was killed: did it use more than its {memory} of memory?"


def _annotation(one: Mapping[str, Any], name: str) -> str:
    return str((one["metadata"].get("annotations") or {}).get(name, ""))


def jobs(namespace: str) -> str:
    """Return the path of a namespace's Jobs."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"
