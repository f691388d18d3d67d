"""Locks for tests: as much of a decision as queues and schedulers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.catalogue import load_catalogue
from bedplate.components.schedulers.kueue.args import queues_args
from bedplate.lock.model import Lock
from tests.schedulers.nodes import GPU, node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.components.schedulers.kueue.args import QueuesArgs

ZEROS = "sha256:" + "0" * 64


def lock_of(
    pools: Mapping[str, Sequence[Mapping[str, str]]],
    teams: Mapping[str, Mapping[str, Any]],
    *,
    gpus: int = 8,
    preset: Mapping[str, Any] | None = None,
    addons: Sequence[str] = ("kueue",),
    resource: str = GPU,
) -> Lock:
    """Return a lock: pools with the topology of each of their hosts, teams as the lock has them.

    A team's `gpus` are (guaranteed, borrow) by pool.
    """
    version = {"version": "1"}
    hosts = {
        f"{pool.replace('_', '-')}-{number}": {
            "address": "192.0.2.1",
            "port": 22,
            "user": "root",
            "pool": pool,
            "groups": ["gpu_pools", pool],
            "topology": dict(topology) or None,
        }
        for pool, members in pools.items()
        for number, topology in enumerate(members)
    }
    quotas = {
        name: {
            "namespaces": [name],
            **team,
            "gpus": {
                pool: {resource: {"guaranteed": quota[0], "borrow": quota[1]}}
                for pool, quota in team["gpus"].items()
            },
        }
        for name, team in teams.items()
    }
    return Lock.model_validate(
        {
            "format": 2,
            "catalogue": ZEROS,
            "site_digest": ZEROS,
            "sources": {"mode": "upstream"},
            "cluster": {
                "kubernetes": {
                    "version": "1.36.3",
                    "endpoint": "192.0.2.1:6443",
                    "pod_subnet": "10.244.0.0/16",
                    "service_subnet": "10.96.0.0/16",
                    "kubelet": {},
                    "kube_proxy": {},
                    "ignore_preflight": [],
                },
                "etcd": {"version": "1", "image_tag": "1"},
                "coredns": {"version": "1", "image_tag": "1"},
                "pause": version,
                "cni": {"name": "flannel", "version": "1"},
                "cni_plugins": version,
                "runc": {"source": "distro"},
                "cri_tools": version,
                "nvidia_container_toolkit": {"version": "1", "source": "archive"},
                "nvidia_device_plugin": {"version": "1", "image": "i"},
                "addons": [{"name": one, "kind": "scheduler", "version": "1"} for one in addons],
                "preset": {"name": "tests", **preset} if preset is not None else None,
                "teams": quotas,
            },
            "hosts": hosts,
            "pools": {
                pool: {
                    "os": "ubuntu-24.04",
                    "kind": "bare-metal",
                    "sharing": {"mode": "none"},
                    "expects": {"resource": resource, "count": gpus, "by": "cluster"},
                }
                for pool in pools
            },
        }
    )


def queues_of(lock: Lock) -> QueuesArgs:
    """Return what a lock decides of queues, by the embedded catalogue."""
    return queues_args(lock, load_catalogue())


def nodes_of(lock: Lock) -> list[dict[str, Any]]:
    """Return the nodes of a lock's hosts, with the labels that they get."""
    found = []
    for name, host in lock.hosts.items():
        assert host.pool is not None
        labels = {"bedplate.io/pool": host.pool}
        for field, value in (host.topology.model_dump() if host.topology else {}).items():
            if value is not None:
                labels[f"topology.bedplate.io/{field.replace('_', '-')}"] = value
        expected = lock.pools[host.pool].expects
        assert expected is not None
        offered = {expected.resource: expected.count, **expected.also}
        found.append(node(name, 0, labels, {of: str(count) for of, count in offered.items()}))
    return found
