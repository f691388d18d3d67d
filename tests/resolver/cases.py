"""For every rule: sites that only this rule refuses, each with its nearest acceptable neighbour.

Both lie on either side of what the rule compares, so that a rule or a fact that is off by one step
is seen. Facts are those of the small world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.properties.building import ENDPOINT, Plain, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POOL = "pool_a"
UBUNTU, DEBIAN, GUESTLESS, CGROUP_1 = "ubuntu-24.04", "debian-12", "debian-13", "rocky-8"
CGROUP_1_ALLOWED = {"failCgroupV1": False}
#: The preflight check of kubeadm that takes neither its kernel nor cgroup v1.
CHECK = "SystemVerification"


@dataclass(frozen=True)
class Case:
    """A rule, a site that is accepted, one that only this rule refuses.

    `decided` is what the accepted one is decided to be: paths in the lock with their values.
    `warned` is in one of its warnings, `silent` in none.
    """

    rule: str
    name: str
    right: Plain
    wrong: Plain
    decided: Mapping[str, Any] = field(default_factory=dict)
    warned: str | None = None
    silent: str | None = None


def one(
    model: str | list[dict[str, Any]] = "a100",
    count: int = 4,
    *,
    os: str = UBUNTU,
    kubernetes: str | None = None,
    cni: str = "flannel",
    kubelet: Mapping[str, Any] | None = None,
    kube_proxy: Mapping[str, Any] | None = None,
    ignored: Sequence[str] | None = None,
    hosts: int = 1,
    parent: str = "gpu_pools",
    shared: Mapping[str, Any] | None = None,
    **wishes: Any,
) -> Plain:
    """Return a site with one pool; what is not said is as the models' defaults have it.

    On a system with cgroup v1 the check of kubeadm is ignored, which takes no such system.
    """
    cluster: dict[str, Any] = {"endpoint": ENDPOINT, "cni": cni, "kubelet": dict(kubelet or {})}
    if kube_proxy is not None:
        cluster["kube_proxy"] = dict(kube_proxy)
    if ignored is None:
        ignored = [CHECK] if os == CGROUP_1 else []
    cluster["ignore_preflight"] = list(ignored)
    if kubernetes is not None:
        cluster["version"] = kubernetes
    boards = [{"model": model, "count": count}] if isinstance(model, str) else model
    host = {"os": os, **wishes.pop("host", {})}
    pool = Pool({"gpu": boards, **wishes, "host": host}, hosts, parent)
    return Plain({"kubernetes": cluster, **(shared or {})}, {POOL: pool}, 1, {"host": {"os": os}})


def driver(branch: str | None = None, flavour: str | None = None, source: str | None = None) -> Any:
    """Return a wish for a driver."""
    said = {"branch": branch, "flavour": flavour, "source": source}
    return {key: value for key, value in said.items() if value is not None}


def share(mode: str, **parameters: Any) -> Any:
    """Return a wish for sharing."""
    return {"mode": mode, **parameters}


def pins(**versions: str) -> Any:
    """Return pins."""
    return versions
