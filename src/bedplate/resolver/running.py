"""A cluster that runs: no part of this version upgrades its Kubernetes, so the plan keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.errors import Problem, RefusedError
from bedplate.lock import model as locked
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock
    from bedplate.site import Site
    from bedplate.site.places import KeyPath

RULE = "kubernetes-running"


def cluster_runs(path: Path) -> bool:
    """Tell whether the site has a cluster, as far as this machine knows; no host is contacted.

    The cluster stack writes the kubeconfig when it makes the first control plane and removes it
    with that. Evidence outlives a cluster, so it says nothing. On a machine without the kubeconfig
    the stack's preview refuses what the plan could not know.
    """
    try:
        return (path / ".bedplate" / "kubeconfig").stat().st_size > 0
    except OSError:
        return False


def kubernetes_alone(lock: Lock) -> Lock:
    """Return a lock that keeps Kubernetes where it is, and nothing else."""
    if lock.cluster is None:
        return lock.model_copy(update={"pools": {}})
    parts: dict[str, Any] = dict.fromkeys(locked.Cluster.model_fields)
    parts |= {"kubernetes": lock.cluster.kubernetes, "addons": []}
    cluster = locked.Cluster.model_construct(**parts)
    return lock.model_copy(update={"cluster": cluster, "pools": {}})


def refuse_upgrade(site: Site, before: Lock, after: Lock) -> None:
    """Raise RefusedError where a plan moves the Kubernetes of a running cluster."""
    if before.cluster is None or after.cluster is None:
        return
    old, new = before.cluster.kubernetes.version, after.cluster.kubernetes.version
    if old == new:
        return
    host = next(iter(site.hosts.values()))
    path: KeyPath = ("bedplate_kubernetes", "version")
    if "kubernetes" in host.wishes.bedplate_pins:
        path = ("bedplate_pins", "kubernetes")
    place = host.places.of(path)
    raise RefusedError(
        [
            Problem(
                "this version cannot upgrade the Kubernetes of a running cluster",
                place.file,
                place.line,
                place.column,
                spelt(path),
                new,
                old,
                f'write "{old}", or take the cluster down first (pulumi destroy in stacks/cluster)',
                RULE,
            )
        ]
    )
