"""A node taken out of service and given back, through kubectl on a control plane host.

Whoever cordoned a node gives it back: a node that was already closed to new pods before an upgrade
stays closed after it. The annotation tells ours from theirs, and why.
"""

import json
import re
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

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
    kubelet: str = ""


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
        kubelet=node["status"].get("nodeInfo", {}).get("kubeletVersion", "").lstrip("v"),
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


def names(host: Host, *selectors: str) -> List[str]:
    """The names of the Nodes: of all, or of those that a selector takes.

    Raises:
        UnansweredError: the API could not be asked.
    """
    answer = kubectl(host, ["get", "nodes", *selectors, "--output=name"])
    _must(answer)
    return [line.partition("/")[2] for line in answer.out.split()]


def api_servers(host: Host) -> Dict[str, str]:
    """The version of each API server that kubeadm runs, by node; empty where others run it.

    Raises:
        UnansweredError: the API could not be asked.
    """
    argv = ["get", "pods", "--namespace=kube-system", "--selector=component=kube-apiserver"]
    answer = kubectl(host, [*argv, "--output=json"])
    _must(answer)
    pods = [one["spec"] for one in json.loads(answer.out)["items"]]
    images = {one["nodeName"]: one["containers"][0]["image"] for one in pods}
    return {name: image.rpartition(":")[2].lstrip("v") for name, image in images.items()}


def behind(host: Host, version: str) -> List[str]:
    """Name the API servers that are older than a kubelet would be, each with its version.

    Raises:
        UnansweredError: the API could not be asked.
    """
    servers = sorted(api_servers(host).items())
    return [f"{name} {has}" for name, has in servers if numbers(has) < numbers(version)]


def numbers(version: str) -> Tuple[int, ...]:
    """The parts of a version of Kubernetes, to compare it by."""
    return tuple(int(one) for one in re.findall(r"\d+", version)[:3])


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


def lacking(
    node: Optional[Node], name: str, expects: Mapping[str, int], kubelet: str = ""
) -> List[str]:
    """What keeps a node from carrying workload; empty where nothing does.

    ``expects`` may name a DRA driver in place of an extended resource: then its devices count.
    ``kubelet`` is the version that it is to have reported: a node whose new kubelet does not start
    stays Ready by what the one before it has reported, until the controllers miss that.
    """
    if node is None:
        return [f"the cluster does not know {name}"]
    found = [] if node.ready else [f"node {name} is not Ready"]
    if kubelet and node.kubelet != kubelet:
        found.append(f"its kubelet reports {node.kubelet or 'no version'} instead of {kubelet}")
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
    *,
    kubelet: str = "",
    steady: float = 0.0,
) -> List[str]:
    """Wait until nothing is lacking, or for ``seconds``; what still lacks then.

    For ``steady`` seconds nothing may lack, and the API has to answer: a control plane whose
    kubelet is of another minor version has its API server started again a little later.
    """
    left, kept = seconds, 0.0
    while True:
        known = True
        try:
            node = find(host, name)
            known = node is not None
            node = _with_devices(host, node, name, expects)
            found = lacking(node, name, expects, kubelet)
        except UnansweredError as error:
            found = [str(error)]
        kept = 0.0 if found else kept + PAUSE
        if not known or left <= 0 or (not found and kept > steady):
            return found
        pause(PAUSE)
        left -= PAUSE


def _must(answer: Result) -> None:
    if answer.code != 0:
        raise UnansweredError(answer.said)
