"""Let students' pods go to the nodes that the queue has chosen for them, at once.

Where Kueue chooses nodes, it holds an admitted pod until it has written the node into it, a second
after it sees the pod: a constant (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2,
pkg/controller/tas/topology_ungater.go), and as long as all else that a cell's start takes. Here the
same is written as soon as the pod is there. What is not understood, or not reached, Kueue still
lifts.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.api import ApiError
from bedplate.pods.hub import shares
from bedplate.pods.watching import Watched

if TYPE_CHECKING:
    from bedplate.pods.api import Api

#: Kueue's hold of a pod that is admitted, and whose node it has chosen.
GATE: Final = "kueue.x-k8s.io/topology"
#: On a pod that Kueue has admitted: its Workload.
WORKLOAD: Final = "kueue.x-k8s.io/workload"
#: Who has changed a pod, as `managedFields` name it.
MANAGER: Final = "bedplate-hub"

log = logging.getLogger(__name__)


def watch(api: Api, course: str) -> None:
    """Lift the hold of each pod in the namespace of a course, from now on, in a thread."""

    def seen(pod: dict[str, Any]) -> None:
        try:
            lift(api, pod)
        except ApiError as error:  # changed or gone in between, mostly by Kueue itself
            log.info("%s is left to Kueue: %s", pod["metadata"]["name"], error)

    def listed(pods: list[dict[str, Any]], _: float) -> None:
        for pod in pods:
            seen(pod)

    Watched(
        api,
        f"/api/v1/namespaces/{course}/pods",
        threading.RLock(),
        time.monotonic,
        listed=listed,
        event=lambda kind, pod: None if kind == "DELETED" else seen(pod),
    ).start()


def lift(api: Api, pod: dict[str, Any]) -> None:
    """Let a pod go to the node that is chosen for it, if that is all it waits for.

    Raises ApiError.
    """
    meta, gates = pod["metadata"], pod["spec"].get("schedulingGates") or []
    name = (meta.get("annotations") or {}).get(WORKLOAD)
    if [gate["name"] for gate in gates] != [GATE] or not name or "deletionTimestamp" in meta:
        return
    space = meta["namespace"]
    work = api.call("GET", f"{shares.KUEUE}/namespaces/{space}/workloads/{name}")
    if not (node := chosen(work)):
        return
    change = {
        # Of this pod as it was seen, not of one that has come in its place.
        "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "spec": {
            "nodeSelector": node,
            "schedulingGates": [{"name": GATE, "$patch": "delete"}],
        },
    }
    path = f"/api/v1/namespaces/{space}/pods/{meta['name']}?fieldManager={MANAGER}"
    api.call("PATCH", path, change, "strategic-merge-patch+json")


def chosen(work: dict[str, Any]) -> dict[str, str]:
    """Return the labels of the node that a Workload of one pod has; empty where it has no such."""
    sets = (work.get("status", {}).get("admission") or {}).get("podSetAssignments") or []
    if len(sets) != 1 or sets[0].get("count") != 1:
        return {}
    assigned = sets[0].get("topologyAssignment") or {}
    slices = assigned.get("slices") or []
    if len(slices) != 1 or slices[0].get("domainCount") != 1:
        return {}
    levels, values = assigned["levels"], slices[0]["valuesPerLevel"]
    return {level: _value(one) for level, one in zip(levels, values, strict=True)}


def _value(of_level: dict[str, Any]) -> str:
    """Return the one value of a level: Kueue writes what values have in common only once."""
    if "universal" in of_level:
        return str(of_level["universal"])
    one = of_level["individual"]
    return f"{one.get('prefix', '')}{one['roots'][0]}{one.get('suffix', '')}"
