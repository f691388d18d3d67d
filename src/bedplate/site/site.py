"""A site: its hosts, and what is wished of each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bedplate.common.harmless import secrets_of
from bedplate.site.model import ACCESS, Wishes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bedplate.common.connection import Connection
    from bedplate.site.places import Places

CONTROL_PLANE, POOLS, WORKERS = "control_plane", "gpu_pools", "workers"
HYPERVISORS, SLURM = "hypervisors", "slurm"
GROUPS = (CONTROL_PLANE, POOLS, WORKERS, HYPERVISORS, SLURM)
#: The groups of the cluster's nodes. Those of `workers` have no GPU: no driver, no toolkit.
NODES = (CONTROL_PLANE, POOLS, WORKERS)
#: The groups that pools are in: their hosts are Kubernetes nodes, hypervisors or Slurm nodes.
PARENTS = (POOLS, HYPERVISORS, SLURM)
POOL_PREFIX = "pool_"


@dataclass(frozen=True)
class SiteHost:
    """One host: how it is reached, where it belongs, what is wished of it.

    `root` tells whether Ansible works as root there, as far as inventory and ansible.cfg say.
    """

    connection: Connection
    pool: str | None
    groups: tuple[str, ...]
    wishes: Wishes
    places: Places
    root: bool = True

    @property
    def name(self) -> str:
        """Return the host's name in the inventory."""
        return self.connection.name

    @property
    def is_node(self) -> bool:
        """Tell whether it is to be a node of the Kubernetes cluster."""
        return bool(set(NODES) & set(self.groups)) and self.wishes.bedplate_kubernetes is not None

    @property
    def by_docker(self) -> bool:
        """Tell whether it runs containers by Docker alone: a GPU host of a site without nodes."""
        return POOLS in self.groups and not self.is_node

    @property
    def by_podman(self) -> bool:
        """Tell whether it is a node of Slurm whose jobs may run containers, which Podman does."""
        runtime = self.wishes.bedplate_container_runtime.name
        return runtime == "podman" and SLURM in self.groups and self.pool is not None

    @property
    def runs_containers(self) -> bool:
        """Tell whether it has a container runtime, of a cluster or without one."""
        return self.is_node or self.by_docker or self.by_podman

    @property
    def address(self) -> str:
        """Return where other nodes reach it: its own setting, or where Ansible reaches it."""
        return self.wishes.bedplate_node_ip or self.connection.address

    @property
    def address_key(self) -> tuple[str]:
        """Return the setting that says its address."""
        return ("bedplate_node_ip" if self.wishes.bedplate_node_ip else "ansible_host",)


@dataclass(frozen=True)
class Site:
    """Every host of a site that Bedplate looks after, by name; `outside` are the others.

    `bare` are variables that are called as a setting is without its prefix, with their places.
    """

    path: Path
    hosts: Mapping[str, SiteHost]
    groups: frozenset[str]
    outside: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()

    @cached_property
    def pools(self) -> dict[str, list[SiteHost]]:
        """Return the hosts of each pool, by name."""
        found: dict[str, list[SiteHost]] = {}
        for _, host in sorted(self.hosts.items()):
            if host.pool:
                found.setdefault(host.pool, []).append(host)
        return dict(sorted(found.items()))

    @property
    def nodes(self) -> list[SiteHost]:
        """Return the hosts that are nodes of the Kubernetes cluster, by name."""
        return [host for _, host in sorted(self.hosts.items()) if host.is_node]

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Return the passwords and tokens among the wishes."""
        proxies = (host.wishes.bedplate_proxy for host in self.hosts.values())
        urls = {proxy.url for proxy in proxies if proxy is not None}
        logins = (host.wishes.bedplate_sources_login for host in self.hosts.values())
        passwords = {login.password for login in logins if login is not None}
        return frozenset(passwords).union(*map(secrets_of, urls))

    @property
    def digest(self) -> str:
        """Return the digest of the effective wishes: where they are written doesn't count."""
        wishes = {id(host.wishes): host.wishes for host in self.hosts.values()}
        dumped = {
            key: wish.model_dump(mode="json", exclude=set(ACCESS)) for key, wish in wishes.items()
        }
        content = {
            name: {
                **_way(host.connection),
                "groups": host.groups,
                "wishes": dumped[id(host.wishes)],
            }
            for name, host in self.hosts.items()
        }
        # Keys are sorted below; a team's pools are tried in their order.
        orders = {
            name: list(team.gpus)
            for wish in wishes.values()
            for name, team in wish.bedplate_teams.items()
        }
        text = json.dumps(
            {"hosts": content, "control_plane": CONTROL_PLANE in self.groups, "orders": orders},
            sort_keys=True,
            separators=(",", ":"),
        )
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _way(connection: Connection) -> dict[str, object]:
    """Return what a decision depends on: address, port and user, and the rest if there is any."""
    basic = {"address": connection.address, "port": connection.port, "user": connection.user}
    return basic | connection.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
