"""Collects the cluster's evidence through kubectl on a control plane host."""

import json
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import dra
from ..cluster_node import ANNOTATION
from ..host import Host
from .checks import FAIL, Checks, check, failed, skipped

SETTLE_PAUSE = 3.0
#: What no waiting mends: somebody has to run a playbook, or a stack.
LASTING = (".in_service", ".version")
ADMIN = "/etc/kubernetes/admin.conf"
#: The cluster stack's note on the host; its phase is ``begun`` until kubeadm has ended well.
MEMBERSHIP = "/var/lib/bedplate/membership.json"
Object = Dict[str, Any]


def _get(host: Host, argv: List[str]) -> Tuple[List[Object], Optional[str]]:
    kubectl = ["kubectl", "--kubeconfig", host.path(ADMIN), "--request-timeout=20s", "get"]
    answer = host.run(kubectl + argv + ["--output=json"], timeout=40)
    if answer.code != 0:
        return [], answer.said
    items: List[Object] = json.loads(answer.out)["items"]
    return items, None


def _condition(thing: Object, name: str) -> str:
    for one in thing.get("status", {}).get("conditions", []):
        if one["type"] == name:
            return str(one["status"])
    return "Unknown"


def _nodes(
    nodes: List[Object], slices: List[Object], expects: Mapping[str, Any], to: Checks
) -> None:
    found = {n["metadata"]["name"]: n for n in nodes}
    # A host waits between site.yml and the cluster stack: that is an order of work, not a fault.
    for name in sorted(set(expects) - set(found)):
        reason = "it is not in the cluster yet: 'pulumi up' in the cluster stack joins it"
        to.append(skipped(f"node.{name}.ready", f"node {name} is Ready", reason))
    for name in sorted(set(found) - set(expects)):
        reason = "it is not in the lock: 'pulumi up' in the cluster stack removes it"
        to.append(skipped(f"node.{name}.ready", f"node {name} is Ready", reason))
    for name in sorted(set(found) & set(expects)):
        node, wish = found[name], expects[name]
        to.append(
            check(
                f"node.{name}.ready",
                f"node {name} is Ready",
                "True",
                _condition(node, "Ready"),
                f"See 'kubectl describe node {name}'.",
            )
        )
        version = node["status"].get("nodeInfo", {}).get("kubeletVersion", "")
        to.append(
            check(
                f"node.{name}.version",
                f"kubelet of node {name} at the lock's version",
                "v" + wish["kubernetes"],
                version,
                "Run 'pulumi up' in the cluster stack.",
            )
        )
        _in_service(node, name, to)
        if wish.get("rdma"):
            what = f"node {name} offers RDMA devices to pods"
            fix = f"See 'kubectl -n kube-system logs rdma-device-plugin-{name}'."
            to.append(_offers(f"node.{name}.rdma", what, node, wish["rdma"], fix))
        resource = wish.get("resource")
        if not resource:
            continue
        fix = "See 'kubectl -n kube-system logs' of the node's device plugin pod."
        offered = node["status"].get("allocatable", {}).get(resource)
        if dra.is_driver(resource):
            fix = f"See 'journalctl --unit {dra.UNIT}' on the host."
            offered = str(len(dra.devices(slices, name, resource)))
        what = f"node {name} offers its {resource}"
        to.append(check(f"node.{name}.allocatable", what, str(wish["count"]), offered, fix))
        if wish.get("also"):
            what = f"node {name} offers its MIG devices by their profiles"
            to.append(_offers(f"node.{name}.allocatable_also", what, node, wish["also"], fix))


def _offers(
    check_id: str, what: str, node: Object, counts: Mapping[str, Any], fix: str
) -> Dict[str, Any]:
    """A check of how many of each resource a node gives to pods."""
    there = node["status"].get("allocatable", {})
    asked = {one: str(count) for one, count in counts.items()}
    return check(check_id, what, asked, {one: there[one] for one in counts if one in there}, fix)


def _in_service(node: Object, name: str, to: Checks) -> None:
    """A node that upgrade.yml keeps closed is whole to all appearances, and carries nothing.

    One that its user has cordoned is the user's.
    """
    reason = node["metadata"].get("annotations", {}).get(ANNOTATION)
    to.append(
        check(
            f"node.{name}.in_service",
            f"node {name} is not kept out of service by bedplate.gpu.upgrade",
            "in service",
            "in service" if reason is None else "out of service",
            "Fix what it says, run bedplate.gpu.upgrade with --limit "
            f"{name}, and then bedplate.gpu.verify.",
            reason or "",
        )
    )


def _labels(nodes: List[Object], expects: Mapping[str, Any], to: Checks) -> None:
    for node in nodes:
        name = node["metadata"]["name"]
        if not expects.get(name, {}).get("resource"):
            continue
        what = f"node {name} carries the labels of GPU feature discovery"
        labels = node["metadata"].get("labels", {})
        if "nvidia.com/gpu.product" in labels:
            to.append(check(f"node.{name}.labels", what, "present", "present", ""))
        else:
            # The schedulers stack sets them, and it may not have been brought up yet.
            reason = "the schedulers stack has not labelled it yet"
            to.append(skipped(f"node.{name}.labels", what, reason))


def _system_pods(host: Host, to: Checks) -> None:
    what = "every pod of kube-system is ready"
    pods, reason = _get(host, ["pods", "--namespace=kube-system"])
    if reason is not None:
        to.append(failed("cluster.system_pods", what, reason, "See 'kubectl get pods -A'."))
        return
    if not pods:
        to.append(failed("cluster.system_pods", what, "there is none", "Run 'pulumi up'.", "pods"))
        return
    bad = sorted(
        p["metadata"]["name"]
        for p in pods
        if p["status"].get("phase") != "Succeeded" and _condition(p, "Ready") != "True"
    )
    fix = "See 'kubectl -n kube-system describe pod'."
    to.append(check("cluster.system_pods", what, [], bad, fix, "these are not"))


def collect_settled(
    host: Host,
    expects: Mapping[str, Any],
    seconds: float,
    pause: Callable[[float], None] = time.sleep,
) -> Dict[str, Any]:
    """Evidence of the cluster once nothing fails in it, or as it is after ``seconds``.

    A cluster that has just been made has pods that are still starting; that is no fault yet.
    """
    left = seconds
    while True:
        found = collect(host, expects)
        failed = [one["id"] for one in found["checks"] if one["result"] == FAIL]
        if left <= 0 or all(name.endswith(LASTING) for name in failed):
            return found
        pause(SETTLE_PAUSE)
        left -= SETTLE_PAUSE


def _cut_off(host: Host) -> bool:
    """Whether kubeadm was cut off: it writes admin.conf before that may do anything."""
    try:
        mark = json.loads(host.read(MEMBERSHIP) or "{}")
    except ValueError:
        return False
    return isinstance(mark, dict) and mark.get("phase") == "begun"


def collect(host: Host, expects: Mapping[str, Any]) -> Dict[str, Any]:
    """Evidence of the cluster: ``{facts, checks}``.

    ``expects`` holds, by node name, ``{kubernetes[, resource, count, also]}``: a node without
    ``resource`` has no GPUs to offer, and ``also`` are the counts of further resources.
    """
    checks: Checks = []
    if not host.exists(ADMIN):
        reason = "there is no cluster yet: the cluster stack makes it"
        checks.append(skipped("cluster.reachable", "the cluster answers", reason))
        return {"facts": {}, "checks": checks}
    if _cut_off(host):
        reason = "kubeadm did not end here: 'pulumi up' in the cluster stack starts it again"
        checks.append(skipped("cluster.reachable", "the cluster answers", reason))
        return {"facts": {}, "checks": checks}
    nodes, reason_or_none = _get(host, ["nodes"])
    if reason_or_none is not None:
        fix = "See 'journalctl -u kubelet' on the control plane."
        checks.append(failed("cluster.reachable", "the cluster answers", reason_or_none, fix))
        return {"facts": {}, "checks": checks}
    checks.append(check("cluster.reachable", "the cluster answers", "yes", "yes", ""))
    slices: List[Object] = []
    if any(dra.is_driver(wish.get("resource") or "/") for wish in expects.values()):
        slices, reason_or_none = _get(host, [dra.SLICES])
        if reason_or_none is not None:
            fix = "See 'kubectl api-resources --api-group=resource.k8s.io'."
            what = "the cluster knows DRA's slices"
            checks.append(failed("cluster.slices", what, reason_or_none, fix))
    _nodes(nodes, slices, expects, checks)
    _labels(nodes, expects, checks)
    _system_pods(host, checks)
    facts = {
        "nodes": {
            n["metadata"]["name"]: {
                "version": n["status"].get("nodeInfo", {}).get("kubeletVersion"),
                "gpus": n["status"].get("allocatable", {}).get("nvidia.com/gpu"),
            }
            for n in nodes
        }
    }
    return {"facts": facts, "checks": checks}
