"""A node taken out of service and given back, through kubectl on a control plane host.

Whoever cordoned a node gives it back: a node that was already closed to new pods before an upgrade
stays closed after it. The annotation tells ours from theirs, and why.
"""

import json
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from . import dra
from .host import Host, Result

ADMIN = "/etc/kubernetes/admin.conf"
#: Where stacks and kubeadm install what makes a cluster. Such a pod keeps in an emptyDir what it
#: makes again, as Kueue's controller its certificate: it may go to another node.
OWN = {"kube-system", "kueue-system", "jobset-system", "volcano-system"}
OWN_PREFIX = "bedplate-"
#: On a node that was cordoned here; its value is the reason.
ANNOTATION = "bedplate.gpu/out-of-service"
EMPTYDIR = "--delete-emptydir-data"
PAUSE = 3.0


class Node(NamedTuple):
    """What the API says of a node."""

    ready: bool
    closed: bool
    reason: Optional[str]
    allocatable: Mapping[str, str]


class UnansweredError(Exception):
    """kubectl had no answer; the text is its reason."""


def kubectl(host: Host, argv: List[str], timeout: float = 40) -> Result:
    """Run kubectl as the cluster's administrator."""
    command = ["kubectl", "--kubeconfig", host.path(ADMIN), "--request-timeout=20s"]
    return host.run(command + argv, timeout=timeout)


def find(host: Host, name: str) -> Optional[Node]:
    """The node, or None where the cluster does not know it.

    Raises:
        UnansweredError: the API could not be asked.
    """
    answer = kubectl(host, ["get", "node", name, "--ignore-not-found", "--output=json"])
    if answer.code != 0:
        raise UnansweredError(answer.said)
    if not answer.out.strip():
        return None
    node: Dict[str, Any] = json.loads(answer.out)
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    return Node(
        ready=conditions.get("Ready") == "True",
        closed=bool(node["spec"].get("unschedulable", False)),
        reason=node["metadata"].get("annotations", {}).get(ANNOTATION),
        allocatable=node["status"].get("allocatable", {}),
    )


def close(host: Host, name: str, node: Node, reason: str) -> None:
    """Keep new pods away, and say why where nobody had closed the node before.

    Raises:
        UnansweredError: kubectl refused.
    """
    if not node.closed or node.reason is not None:
        # First the annotation: a run killed between the two leaves a node that the next one opens.
        _must(kubectl(host, ["annotate", "node", name, f"{ANNOTATION}={reason}", "--overwrite"]))
    if not node.closed:
        _must(kubectl(host, ["cordon", name]))


def drain(host: Host, name: str, seconds: int, flags: List[str]) -> Optional[str]:
    """Evict the node's pods; what kubectl says of those that stay, or None.

    Raises:
        UnansweredError: the API did not say which pods there are.
    """
    argv = ["drain", name, "--ignore-daemonsets", f"--timeout={seconds}s", *flags]
    if EMPTYDIR not in flags and all_own(host, name):
        argv.append(EMPTYDIR)
    command = ["kubectl", "--kubeconfig", host.path(ADMIN), *argv]
    answer = host.run(command, timeout=seconds + 60)
    if answer.code == 0:
        return None
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Warning:", "There are pending"))]
    return "; ".join(dict.fromkeys(told)) or answer.said


def all_own(host: Host, name: str) -> bool:
    """Whether pods that lose an emptyDir by a drain are there, and are the cluster's own alone.

    Raises:
        UnansweredError: the API could not be asked.
    """
    argv = ["get", "pods", "-A", f"--field-selector=spec.nodeName={name}", "--output=json"]
    answer = kubectl(host, argv)
    _must(answer)
    own = []
    for pod in json.loads(answer.out)["items"]:
        space = pod["metadata"]["namespace"]
        owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])]
        volumes = pod["spec"].get("volumes", [])
        if "DaemonSet" not in owners and any("emptyDir" in volume for volume in volumes):
            own.append(space in OWN or space.startswith(OWN_PREFIX))
    return bool(own) and all(own)


def reopen(host: Host, name: str, node: Node) -> bool:
    """Let pods in again where the node was closed here; whether anything changed.

    Raises:
        UnansweredError: kubectl refused.
    """
    if node.reason is None:
        return False
    if node.closed:
        _must(kubectl(host, ["uncordon", name]))
    _must(kubectl(host, ["annotate", "node", name, ANNOTATION + "-"]))
    return True


def lacking(node: Optional[Node], name: str, expects: Mapping[str, int]) -> List[str]:
    """What keeps a node from carrying workload; empty where nothing does.

    ``expects`` may name a DRA driver in place of an extended resource: then its devices count.
    """
    if node is None:
        return [f"the cluster does not know {name}"]
    found = [] if node.ready else [f"node {name} is not Ready"]
    for resource, count in sorted(expects.items()):
        offered = node.allocatable.get(resource, "none")
        if offered != str(count):
            found.append(f"{resource}: {offered} instead of {count}")
    return found


def _with_devices(
    host: Host, node: Optional[Node], name: str, expects: Mapping[str, int]
) -> Optional[Node]:
    """The node, with how many devices each expected DRA driver has published of it."""
    drivers = [resource for resource in expects if dra.is_driver(resource)]
    if node is None or not drivers:
        return node
    argv = ["get", dra.SLICES, f"--field-selector=spec.nodeName={name}", "--output=json"]
    answer = kubectl(host, argv)
    _must(answer)
    slices = json.loads(answer.out)["items"]
    counted = {driver: str(len(dra.devices(slices, name, driver))) for driver in drivers}
    return node._replace(allocatable={**node.allocatable, **counted})


def await_ready(
    host: Host,
    name: str,
    expects: Mapping[str, int],
    seconds: float,
    pause: Callable[[float], None] = time.sleep,
) -> List[str]:
    """Wait until nothing is lacking, or for ``seconds``; what still lacks then."""
    left = seconds
    while True:
        try:
            found = lacking(_with_devices(host, find(host, name), name, expects), name, expects)
        except UnansweredError as error:
            found = [str(error)]
        if not found or left <= 0:
            return found
        pause(PAUSE)
        left -= PAUSE


def _must(answer: Result) -> None:
    if answer.code != 0:
        raise UnansweredError(answer.said)
