"""What the GPUs of records that go on did, by the readers on the nodes of their pods.

A record has the seconds for which that is known, and those of them in which its pods used no GPU.
Of a workload with several pods it is their mean. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.records import seconds
from bedplate.pods.hub.idle import work_of
from bedplate.pods.hub.node_use import READERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.accounting.records import Record
    from bedplate.pods.api import Api

#: Seconds between two looks: a reader that nobody asks for a minute begins again.
EVERY: Final = 30.0
WITHIN: Final = 5.0
AT_ONCE: Final = 16
LARGEST: Final = 1 << 24
ENDED: Final = ("Succeeded", "Failed")
JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"

#: By node, what its reader says; a text says why there is nothing.
Answers = dict[str, "dict[str, Any] | str"]


@dataclass(frozen=True)
class Measured:
    """Seconds of a record since the last look: those that are known, and the idle ones of them.

    `why` is why some are not known. `still` is for how many seconds its pods have used no GPU and
    run no program; None where that is not known of each, or one of them does not run yet. `maker`
    is what made a pod without a Job, `KIND/NAME`; empty for one that somebody submitted alone.
    """

    known: float
    idle: float
    why: str = ""
    still: float | None = None
    maker: str = ""


def look(
    api: Api, records: Iterable[Record], lasted: float, now: float, port: int
) -> dict[str, Measured]:
    """Return what is known of records that go on, by Workload. Raises ApiError.

    Args:
        lasted: seconds since the last look.
        now: seconds since 1970.
        port: of the readers.
    """
    going = [one for one in records if one.end is None]
    if not going:
        return {}
    pods = {
        namespace: api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        for namespace in sorted({one.namespace for one in going})
    }
    mine = {one.uid: holders(one, pods[one.namespace]) for one in going}
    nodes = {pod["spec"]["nodeName"] for found in mine.values() for pod in found if _runs(pod)}
    answers = ask(api, nodes, port) if nodes else {}
    return {
        one.uid: of_record(one, mine[one.uid], answers, lasted, now)
        for one in going
        if any(map(_runs, mine[one.uid]))
    }


def holders(record: Record, pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pods of a record's workload that have not ended and hold what it counts.

    Of a group of pods without a Job it is the one by which Kueue names the group.
    """
    counted = {one.resource for one in record.amounts}
    return [
        pod
        for pod in pods
        if pod["status"].get("phase") not in ENDED
        and record.workload in _names(pod)
        and (pod["spec"].get("resourceClaims") or counted & _limits(pod))
    ]


def _runs(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and bool(pod["spec"].get("nodeName"))


def _names(pod: Mapping[str, Any]) -> set[str]:
    meta = pod["metadata"]
    owners = {f"{one['kind']}/{one['name']}" for one in meta.get("ownerReferences") or []}
    jobset = (meta.get("labels") or {}).get(JOBSET)
    return {f"Pod/{meta['name']}", *owners, *([f"JobSet/{jobset}"] if jobset else [])}


def _limits(pod: Mapping[str, Any]) -> set[str]:
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or []), *spec["containers"])
    return {name for one in containers for name in (one.get("resources") or {}).get("limits") or {}}


def of_record(
    record: Record,
    pods: list[Mapping[str, Any]],
    answers: Mapping[str, dict[str, Any] | str],
    lasted: float,
    now: float,
) -> Measured:
    """Return what is known of a workload with these pods, over the seconds since the last look.

    One of them runs at least.
    """
    known = idle = 0.0
    why = ""
    still: list[float] = []
    running = [pod for pod in pods if _runs(pod)]
    for pod in running:
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        answer = answers.get(node, "no reader runs there")
        work = None if isinstance(answer, str) else work_of(answer, uid)
        if work is None or not work.measured:
            said = answer if isinstance(answer, str) else str(answer["why"])
            why = f"{node}: {said or 'its reader does not see the pod'}"
            continue
        most = min(work.watched, max(0.0, now - begun(pod, record.start)))
        seen = min(lasted, most)
        known += seen
        idle += seen if work.gpu is None else min(seen, work.gpu)
        still.append(min([most, *(one for one in (work.gpu, work.program) if one is not None)]))
    every = min(still) if len(still) == len(pods) else None
    maker = _maker(running[0]) if record.workload.startswith("Pod/") else ""
    return Measured(known / len(running), idle / len(running), why, every, maker)


def _maker(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    if group := (meta.get("labels") or {}).get(GROUP):
        return f"group/{group}"
    made = (one for one in meta.get("ownerReferences") or [] if one.get("controller"))
    return next((f"{one['kind']}/{one['name']}" for one in made), "")


def begun(pod: Mapping[str, Any], otherwise: int) -> int:
    """Return when the last of a pod's containers began, in seconds since 1970."""
    status = pod["status"]
    listed = (status.get(f"{kind}Statuses") or [] for kind in ("initContainer", "container"))
    states = [(one.get("state") or {}).get("running") or {} for found in listed for one in found]
    times = [seconds(one.get("startedAt")) for one in states]
    return max((one for one in times if one is not None), default=otherwise)


def ask(api: Api, nodes: set[str], port: int) -> Answers:
    """Return what the readers of nodes say. Raises ApiError where they cannot be listed."""
    found = {
        one["spec"].get("nodeName", ""): one["status"].get("podIP", "")
        for one in api.call("GET", READERS)["items"]
    }
    places = {node: found[node] for node in sorted(nodes) if found.get(node)}
    with ThreadPoolExecutor(AT_ONCE) as together:
        said = together.map(lambda address: _said(address, port), places.values())
        return dict(zip(places, said, strict=True))


def _said(address: str, port: int) -> dict[str, Any] | str:
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/", timeout=WITHIN) as answer:
            found: dict[str, Any] = json.loads(answer.read(LARGEST))
            return _checked(found)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        return f"its reader does not answer: {str(error) or type(error).__name__}"


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with its figures as numbers. Raises KeyError, TypeError, ValueError."""
    for uid in found["pods"]:
        work = work_of(found, uid)
        figures = (work.watched, work.gpu) if work else ()
        if not all(one is None or isinstance(one, int | float) for one in figures):
            raise TypeError(f"a figure of pod {uid} is no number")
    return {**found, "why": str(found["why"])}
