"""From the lock to the cluster's inputs. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.components.config import StackError
from bedplate.portable import dra as driver
from bedplate.portable.message import problem
from bedplate.portable.runtime.state import SOCKETS
from bedplate.site.site import CONTROL_PLANE, NODES

if TYPE_CHECKING:
    from bedplate.components.cluster.cluster import ClusterArgs, GpuArgs, MarksArgs
    from bedplate.lock import Lock
    from bedplate.lock.model import Host, Taint
    from bedplate.provider.sdk import MachineArgs, TaintArgs

STACK = "cluster"
#: Nodes whose GPUs a DRA driver of the host publishes, which needs no stack.
DRA = "dra"


def cluster_args(lock: Lock, manifest: str, gpu_seconds: int) -> ClusterArgs:
    """Return the cluster that a lock describes. Raises StackError without a control plane."""
    cluster = lock.cluster
    control_planes = [name for name, host in lock.hosts.items() if CONTROL_PLANE in host.groups]
    if not control_planes or cluster is None:
        raise StackError(
            problem(
                "no control plane",
                "the site's hosts",
                "none",
                "at least one host in the group control_plane",
                "add one to the inventory and run bedplate plan",
            )
        )
    workers = [
        name
        for name, host in lock.hosts.items()
        if set(NODES) & set(host.groups) and name not in control_planes
    ]
    found: ClusterArgs = {
        "kubernetes": cluster.kubernetes.model_dump(mode="json"),
        "etcd_image_tag": cluster.etcd.image_tag,
        "dns_image_tag": cluster.coredns.image_tag,
        "control_planes": [_machine(lock, name) for name in sorted(control_planes)],
        "workers": [_machine(lock, name) for name in sorted(workers)],
        "gpus": gpus(lock),
        "gpu_seconds": gpu_seconds,
        "cni_manifest": manifest,
    }
    if cluster.cri_o is not None:
        found["cri_socket"] = SOCKETS["cri-o"]
    marks: dict[str, MarksArgs] = {name: _marks(host) for name, host in lock.hosts.items()}
    if marks := {name: one for name, one in marks.items() if one}:
        found["marks"] = marks
    return found


def _marks(host: Host) -> MarksArgs:
    """Return a host's labels and taints, without what it has none of."""
    found: MarksArgs = {}
    if host.labels:
        found["labels"] = dict(host.labels)
    if host.taints:
        found["taints"] = [_taint(one) for one in host.taints]
    return found


def _taint(taint: Taint) -> TaintArgs:
    found: TaintArgs = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        found["value"] = taint.value
    return found


def gpus(lock: Lock, stack: str = STACK) -> dict[str, GpuArgs]:
    """Return what a stack has to wait for on each host.

    Of DRA's hosts the cluster stack waits for the driver's devices, by the driver's name.
    """
    by = (stack, DRA) if stack == STACK else (stack,)
    found: dict[str, GpuArgs] = {}
    for name, host in sorted(lock.hosts.items()):
        expects = lock.pools[host.pool].expects if host.pool is not None else None
        if expects is None or expects.by not in by:
            continue
        resource = driver.DRIVER if expects.by in by[1:] else expects.resource
        # A node whose GPUs are all divided differently has no whole one to offer.
        counts = {resource: expects.count, **expects.also}
        (first, count), *others = [(one, n) for one, n in counts.items() if n]
        found[name] = {"resource": first, "count": count}
        if others:
            found[name]["also"] = dict(others)
    return found


def _machine(lock: Lock, name: str) -> MachineArgs:
    """Return how a host is reached; what is as usual is left out, but for port and user."""
    connection = lock.hosts[name].connection(name)
    machine: MachineArgs = {
        "name": name,
        "address": connection.address,
        "port": connection.port,
        "user": connection.user,
    }
    if connection.jump:
        machine["jump"] = list(connection.jump)
    if connection.keys:
        machine["keys"] = list(connection.keys)
    if connection.config is not None:
        machine["config"] = connection.config
    if connection.options:
        machine["options"] = list(connection.options)
    if (node_ip := lock.hosts[name].node_ip) is not None:
        machine["nodeIp"] = node_ip
    return machine
