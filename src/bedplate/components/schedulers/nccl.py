"""NCCL's settings of each pool, where pods can take them from.

NCCL reads /etc/nccl.conf, which is the host's and no pod sees. So each namespace of a team has a
ConfigMap `nccl-POOL` for every pool with RDMA, for `envFrom` of a container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components import later
from bedplate.components.config import StackError, found_in
from bedplate.components.refs import MANAGED
from bedplate.lock.rdma import resources, settings_name
from bedplate.portable.message import problem
from bedplate.site.site import NODES

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

ABOUT = "bedplate.io/about"
#: A file and network interfaces of the host's: no pod sees them.
OF_HOSTS = {"NCCL_TOPO_FILE", "NCCL_SOCKET_IFNAME"}


class NcclDefaultsArgs(TypedDict):
    """Inputs of NcclDefaults."""

    settings: dict[str, dict[str, str]]
    """NCCL's variables by pool."""
    namespaces: list[str]
    """Where they are to be had."""


class NcclDefaults(pulumi.ComponentResource):  # type: ignore[misc]
    """A ConfigMap for each pool in each namespace."""

    def __init__(
        self, name: str, args: NcclDefaultsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:NcclDefaults", name, None, opts)
        for namespace in sorted(args["namespaces"]):
            for pool, variables in sorted(args["settings"].items()):
                place = settings_name(pool)
                about = f"NCCL's variables for pods on nodes of {pool}: use it with envFrom."
                kubernetes.core.v1.ConfigMap(
                    f"{name}-{namespace}-{place}",
                    metadata={
                        "name": place,
                        "namespace": namespace,
                        "labels": MANAGED,
                        "annotations": {ABOUT: about},
                    },
                    data=variables,
                    opts=pulumi.ResourceOptions(parent=self),
                )
        self.register_outputs({})


def settings_of(site: Path, lock: Lock) -> dict[str, dict[str, str]]:
    """Return NCCL's variables of each pool of nodes with RDMA, as the hosts have them.

    A pool whose pods get RDMA devices is there without variables too: its jobs name the ConfigMap.

    Raises:
        StackError: a host has no evidence of them, or hosts of one pool differ.
    """
    found: dict[str, dict[str, str]] = {}
    first: dict[str, str] = {}
    waiting: set[str] = set()
    for name, host in sorted(lock.hosts.items()):
        pool = host.pool
        if pool is None or lock.pools[pool].rdma is None or not set(NODES) & set(host.groups):
            continue
        variables = _of_host(site, name)
        if variables is None:
            waiting.add(pool)
            continue
        if found.setdefault(pool, variables) != variables:
            raise StackError(
                problem(
                    "NCCL's settings differ in one pool",
                    pool,
                    f"{_shown(found[pool])} on {first[pool]}, {_shown(variables)} on {name}",
                    "the same on all hosts of a pool",
                    "correct rdma_devices, rdma_roce and rdma_nccl, and run "
                    "`ansible-playbook bedplate.gpu.site`",
                )
            )
        first.setdefault(pool, name)
    found = {pool: {"NCCL_*": later.placeholder("by verify")} for pool in waiting} | found
    return {
        pool: variables
        for pool, variables in found.items()
        if variables or resources(lock.pools[pool])
    }


def namespaces_of(lock: Lock) -> list[str]:
    """Return the namespaces of all teams."""
    return sorted({namespace for team in lock.teams.values() for namespace in team.namespaces})


def _of_host(site: Path, name: str) -> dict[str, str] | None:
    path = site / ".bedplate" / "evidence" / f"host-{name}.json"
    settings = found_in(path, "facts").get("nccl")
    if not isinstance(settings, dict):
        if later.only_shown():
            return None
        raise StackError(
            problem(
                "no evidence of NCCL's settings",
                str(path),
                f"none for {name}",
                "what the host has",
                "run `ansible-playbook bedplate.gpu.verify` on the site first",
            )
        )
    return {key: str(value) for key, value in settings.items() if key not in OF_HOSTS}


def _shown(variables: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(variables.items())) or "nothing"
