"""From the lock to the cluster's inputs. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.site.membership import NODES
from bedplate.stackconfig import StackError

if TYPE_CHECKING:
    from bedplate.cluster.cluster import ClusterArgs, GpuArgs
    from bedplate.lock import Lock
    from bedplate.provider.sdk import MachineArgs

STACK = "cluster"


def cluster_args(lock: Lock, manifest: str, gpu_seconds: int) -> ClusterArgs:
    """Return the cluster that a lock describes. Raises StackError without a control plane."""
    hosts: dict[str, Any] = lock.model_dump(mode="json")["hosts"]
    control_planes = [name for name, host in hosts.items() if "control_plane" in host["groups"]]
    if not control_planes or lock.cluster is None:
        raise StackError(
            "no control plane — the site's hosts — got none / allowed at least one host in the "
            "group control_plane — add one to the inventory and run bedplate plan"
        )
    workers = [
        name
        for name, host in hosts.items()
        if set(NODES) & set(host["groups"]) and name not in control_planes
    ]
    found = lock.model_dump(mode="json")["cluster"]
    return {
        "kubernetes": found["kubernetes"],
        "etcd_image_tag": found["etcd"]["image_tag"],
        "dns_image_tag": found["coredns"]["image_tag"],
        "control_planes": [_machine(name, hosts[name]) for name in sorted(control_planes)],
        "workers": [_machine(name, hosts[name]) for name in sorted(workers)],
        "gpus": gpus(lock),
        "gpu_seconds": gpu_seconds,
        "cni_manifest": manifest,
    }


def gpus(lock: Lock, stack: str = STACK) -> dict[str, GpuArgs]:
    """Return what a stack has to wait for on each host."""
    found = lock.model_dump(mode="json")
    return {
        name: {"resource": expects["resource"], "count": expects["count"]}
        for name, host in sorted(found["hosts"].items())
        if host["pool"] is not None
        and (expects := found["pools"][host["pool"]].get("expects"))
        and expects["by"] == stack
    }


def _machine(name: str, host: dict[str, Any]) -> MachineArgs:
    return {
        "name": name,
        "address": host["address"],
        "port": host["port"],
        "user": host["user"],
    }
