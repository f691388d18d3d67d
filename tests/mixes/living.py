"""A site that is made for a test, with its bare hosts running, and taken down afterwards."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from tests.site import footprint
from tests.substrate.commands import ROOT, STACKS, SiteCommands
from tests.substrate.internet.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

DEMO = ROOT / "inventories/demo/group_vars"
OS = "debian-12"
GPU = {"model": "t4-16gb", "count": 2}


@dataclass(frozen=True)
class Mix:
    """A site's hosts, those with GPUs, and the groups that they are in.

    Attributes:
        name: of the site, its stacks and its network.
        subnet: the network's, with its prefix length.
        control_planes: the first ones; several have an address besides their own.
        gpus: hosts with GPUs: those of the pool `pool_gpu`.
        workers: hosts without GPUs.
        bare: hosts in no group.
        shared: whether a single control plane has an address besides its own too.
        kubernetes: settings of the cluster beside the demo's.
        gpu: model and count of each host with GPUs.
        pools: further pools, each with its hosts; they have the same GPUs.
        settings: of the whole site, beside the demo's.
    """

    name: str
    subnet: str
    control_planes: Sequence[str]
    gpus: Sequence[str]
    workers: Sequence[str] = ()
    bare: Sequence[str] = ()
    shared: bool = False
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] = field(default_factory=lambda: GPU)
    pools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def _at(self, number: int) -> str:
        return str(ip_network(self.subnet)[number])

    @property
    def hosts(self) -> dict[str, str]:
        """Addresses by name."""
        named = [*self.control_planes, *self.bare, *self.gpus, *self.workers]
        named += [name for names in self.pools.values() for name in names]
        return {name: self._at(11 + n) for n, name in enumerate(dict.fromkeys(named))}

    @property
    def address(self) -> str:
        """The cluster's."""
        shared = self.shared or len(self.control_planes) > 1
        return self._at(40) if shared else self.hosts[self.control_planes[0]]

    def write(self, folder: Path) -> SiteCommands:
        """Write inventory, settings and the description of the hardware; return its commands."""
        site = folder / self.name
        (site / "group_vars").mkdir(parents=True)
        groups = {"control_plane": self.control_planes, "workers": self.workers}
        members = {
            group: {"hosts": {name: {} for name in names}}
            for group, names in groups.items()
            if names
        }
        pools = {"pool_gpu": self.gpus, **self.pools}
        with_gpus = {name for names in pools.values() for name in names}
        pool = {group: {"hosts": {name: {} for name in names}} for group, names in pools.items()}
        inventory = {
            "hosts": {name: {"ansible_host": address} for name, address in self.hosts.items()},
            "children": {**members, "gpu_pools": {"children": pool}},
        }
        _dump(site / "hosts.yml", {"all": inventory})
        settings = yaml.safe_load((DEMO / "all/bedplate.yml").read_text())
        settings |= yaml.safe_load((DEMO / "control_plane.yml").read_text())  # keys of the run
        endpoint = {"endpoint": f"{self.address}:6443"}
        if self.address not in self.hosts.values():
            endpoint["endpoint_by"] = "keepalived"
        settings["bedplate_kubernetes"] |= endpoint | dict(self.kubernetes)
        settings["bedplate_sources"] |= {"mode": "upstream"}
        del settings["bedplate_sources"]["url"]
        # The demo's teams have parts of the demo's pools.
        for key in ("bedplate_teams", "bedplate_preset", "bedplate_schedulers"):
            settings.pop(key, None)
        _dump(site / "group_vars/all.yml", settings | dict(self.settings))
        for group in pools:
            _dump(site / f"group_vars/{group}.yml", {"bedplate_gpu": dict(self.gpu)})
        hardware = {
            name: {"address": address, "os": OS}
            | ({"gpus": dict(self.gpu)} if name in with_gpus else {})
            for name, address in self.hosts.items()
        }
        description = folder / f"{self.name}.yml"
        network = {"name": f"bedplate-{self.name}", "subnet": self.subnet}
        _dump(description, {"network": network, "hosts": hardware})
        internet = Service(network["name"], self._at(1))
        return SiteCommands(site, description, internet=internet)


def _dump(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))


class Written(Protocol):
    """A site that is written where a test has its files."""

    @property
    def name(self) -> str:
        """Of the site, its stacks and, after `bedplate-`, its network."""

    @property
    def subnet(self) -> str:
        """The network's, with its prefix length."""

    def write(self, folder: Path) -> SiteCommands:
        """Write it, and return its commands."""


@contextmanager
def living(mix: Written, folder: Path) -> Iterator[SiteCommands]:
    """Run a site's bare hosts; afterwards the machine has nothing of them any more."""
    commands, network = mix.write(folder), f"bedplate-{mix.name}"
    state = folder / "state"
    state.mkdir()
    before = os.environ.get("PULUMI_BACKEND_URL")
    os.environ["PULUMI_BACKEND_URL"] = f"file://{state}"
    commands.substrate("down")
    _forget(mix.name)
    try:
        commands.substrate("up")
        yield commands
        marks = footprint.marks_of(network)
    finally:
        commands.substrate("down")
        _forget(mix.name)
        if before is None:
            del os.environ["PULUMI_BACKEND_URL"]
        else:
            os.environ["PULUMI_BACKEND_URL"] = before
    footprint.assert_gone(network, mix.subnet, marks)


def _forget(name: str) -> None:
    """Remove the settings of a site's stacks, which one that was killed may have left."""
    for stack in STACKS:
        (ROOT / "stacks" / stack / f"Pulumi.{name}.yaml").unlink(missing_ok=True)


def installed(site: SiteCommands) -> None:
    """Take a site from bare hosts to its cluster, as a user does."""
    site.plan()
    site.resolve()
    site.playbook()
    site.select("cluster")
    site.up("cluster")
