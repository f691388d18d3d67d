"""What every resource of the provider offers, and what it gets to work with."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from bedplate.common.errors import LockError
from bedplate.common.versions import parts
from bedplate.provider.cluster_api import ClusterApi
from bedplate.provider.deadline import Deadline
from bedplate.provider.errors import ProviderError, message
from bedplate.provider.model import Machine
from bedplate.provider.wire import UNKNOWN, Unknown
from bedplate.site.site import CONTROL_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bedplate.provider.cluster_api import Tell
    from bedplate.provider.hosts import Hosts
    from bedplate.provider.model import Inputs

POLL_SECONDS = 1.0
VERSION = "version"
VERSION_SECONDS = 30.0


@dataclass
class Context:
    """What resources work with: hosts, the clusters on them, the site's directory, a word to users.

    `tell` shows a warning to the user.
    """

    hosts: Hosts
    site: Path
    force: bool = False
    tell: Tell | None = None
    _clusters: dict[tuple[Machine, str | None], ClusterApi] = field(default_factory=dict)

    def alone(self, control_plane: Machine) -> ClusterApi:
        """Return the view of its cluster that one control plane has, and no other is asked."""
        key = (control_plane, None)
        return self._clusters.setdefault(key, ClusterApi(self.hosts, control_plane))

    def cluster(self, control_plane: Machine, without: str = "", of: str = "") -> ClusterApi:
        """Return the one view of the cluster behind a control plane.

        Where that cannot be reached, the site's others are asked, but for the host `without`. One
        that is no longer of the site has others where `of`, its endpoint, is the site's.
        """

        def others() -> tuple[str, list[Machine]]:
            endpoint, found = control_planes(self.site)
            mine = endpoint == of or any(one.name == control_plane.name for one in found)
            return endpoint, [one for one in found if mine and one.name != without]

        key = (control_plane, f"{without} {of}")
        api = ClusterApi(self.hosts, control_plane, others, self.tell)
        return self._clusters.setdefault(key, api)


def control_planes(site: Path) -> tuple[str, list[Machine]]:
    """Return the endpoint and the control planes of a site's lock; none where it cannot be read."""
    from bedplate.lock.file import load_lock  # half a second of a provider's start, and seldom used

    try:
        lock = load_lock(site)
    except LockError:
        return "", []
    return lock.cluster.kubernetes.endpoint if lock.cluster else "", [
        Machine(**host.connection(name).model_dump(), node_ip=host.node_ip)
        for name, host in sorted(lock.hosts.items())
        if CONTROL_PLANE in host.groups
    ]


@dataclass(frozen=True)
class Difference:
    """What differs between a resource's state and its inputs, as property paths."""

    updates: tuple[str, ...]
    replaces: tuple[str, ...]


class Resource(ABC):
    """One resource type. Outputs are its inputs, echoed, and what `computed` names."""

    token: ClassVar[str]
    inputs: ClassVar[type[Inputs]]
    computed: ClassVar[tuple[str, ...]] = ()
    secret: ClassVar[tuple[str, ...]] = ()
    # Property paths: a change of these makes another resource of it …
    replacing: ClassVar[frozenset[str]] = frozenset({"host.name"})
    # … of these is only read when it is made …
    at_creation: ClassVar[frozenset[str]] = frozenset()
    # … and of these is refused, because nothing could carry it out on a living cluster.
    fixed: ClassVar[frozenset[str]] = frozenset()
    create_seconds: ClassVar[float] = 900.0
    delete_seconds: ClassVar[float] = 600.0

    def __init__(self, context: Context) -> None:
        self.context = context

    @abstractmethod
    async def ensure(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Bring the resource about, from whatever is found, and return its outputs.

        Raises HalfMade when it exists and is not what was wished.
        """

    @abstractmethod
    async def read(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any] | None:
        """Return the outputs as they are now, or None if the resource is gone."""

    @abstractmethod
    async def delete(self, values: dict[str, Any], deadline: Deadline) -> None:
        """Remove the resource, from its state alone; what is gone already is fine."""

    def typed(self, values: dict[str, Any]) -> Any:
        """Return the typed inputs within a property map; state may hold more than inputs."""
        known = {info.alias or name for name, info in self.inputs.model_fields.items()}
        return self.inputs.model_validate({k: v for k, v in values.items() if k in known})

    def identity(self, values: dict[str, Any]) -> str:
        """Return the resource's id: the name of its host."""
        return str(values["host"]["name"])

    def planned(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs as far as a preview can know them."""
        return {**values, **dict.fromkeys(self.computed, UNKNOWN)}

    async def running_version(self, values: dict[str, Any], deadline: Deadline) -> str | None:
        """Return the version of Kubernetes that the host runs; None where that is not known."""
        del values, deadline
        return None

    async def compare(
        self, state: dict[str, Any], old: dict[str, Any], new: dict[str, Any]
    ) -> Difference:
        """Compare inputs as `difference` does; a changed version is compared with the host's."""
        if VERSION not in self.inputs.model_fields or old.get(VERSION) == new.get(VERSION):
            return self.difference(state, old, new)
        deadline = Deadline("asking for the version of Kubernetes", VERSION_SECONDS)
        try:
            found = await self.running_version(old, deadline)
        except ProviderError:
            found = None  # the host or its API is down: that is no upgrade
        if found != new[VERSION]:
            raise ProviderError(
                message(
                    "the host does not run the lock's Kubernetes",
                    f"{self.token.rsplit(':', 1)[1]} {self.identity(state)}",
                    found or "an unknown version",
                    new[VERSION],
                    _way_to(new[VERSION], found),
                )
            )
        return self.difference(state, old, new)

    def difference(
        self, state: dict[str, Any], old: dict[str, Any], new: dict[str, Any]
    ) -> Difference:
        """Compare inputs. Raises ProviderError for a change of what is fixed."""
        inputs = {key: value for key, value in old.items() if key not in self.computed}
        changed = sorted(set(_changed_paths(inputs, new)))
        for path in changed:
            if path in self.fixed:
                raise ProviderError(
                    message(
                        f"{path} cannot change while the cluster lives",
                        f"{self.token.rsplit(':', 1)[1]} {self.identity(state)}",
                        self._told(new, path),
                        self._told(old, path),
                        "set it back, or run pulumi destroy and pulumi up for a new cluster",
                    )
                )
        creation = {p for p in changed if p.split(".", 1)[0] in self.at_creation}
        replaces = tuple(p for p in changed if p in self.replacing)
        updates = tuple(p for p in changed if p not in creation and p not in replaces)
        return Difference(updates, replaces)

    def _told(self, values: dict[str, Any], path: str) -> Any:
        """Return what the values have at a path, or mean by not having it."""
        found = _at(values, path)
        if found is None:
            fields = self.inputs.model_fields.values()
            found = next((one.default for one in fields if one.alias == path), None)
        return found


def _way_to(version: str, found: str | None) -> str:
    """Return how a host gets a version of Kubernetes that it does not run."""
    if found is None:
        return "see that the cluster's API answers and knows the host, then run pulumi up again"
    if parts(found) > parts(version):
        return (
            f'Kubernetes is never downgraded: set bedplate_kubernetes.version: "{found}" and run '
            "bedplate plan"
        )
    return "run ansible-playbook bedplate.gpu.upgrade, then pulumi up again"


async def pause() -> None:
    """Wait between two looks at the cluster."""
    await asyncio.sleep(POLL_SECONDS)


def _changed_paths(old: Any, new: Any, path: str = "") -> Iterable[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _changed_paths(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(new, Unknown) or old != new:
        yield path


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
