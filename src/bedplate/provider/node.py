"""Node: a worker of the cluster, from joining until it is Ready, and its orderly end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from bedplate.provider import kubeadm, node_marks
from bedplate.provider.cluster_api import kubelet_version, not_ready_reasons
from bedplate.provider.errors import HalfMade, ProviderError, UnreachableError
from bedplate.provider.model import Inputs, NodeInputs
from bedplate.provider.resource import Resource, pause
from bedplate.provider.succession import is_still, make_room, refuse_if_elsewhere

if TYPE_CHECKING:
    from bedplate.provider.deadline import Deadline


class Node(Resource):
    """A host that joins as a worker. No other version is taken than the one that it runs."""

    token = "bedplate:index:Node"  # noqa: S105 - a type token, not a credential
    inputs: ClassVar[type[Inputs]] = NodeInputs
    fixed = frozenset({"criSocket"})
    at_creation = frozenset({"endpoint", "ignorePreflight"})

    async def ensure(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Join, or take the membership that is there, and wait until the node is Ready."""
        wished: NodeInputs = self.typed(values)
        api = self.context.cluster(wished.control_plane)
        if await api.node(wished.host.name) is not None:
            found = await self.context.hosts.ask(wished.host, {"action": "access"}, deadline)
            await make_room(api, wished.host, wished.endpoint, found, deadline)
        invitation, authority = await asyncio.gather(
            api.invitation(deadline), api.authority(deadline)
        )
        request = {
            "action": "join",
            "name": wished.host.name,
            "endpoint": wished.endpoint,
            "authority": authority,
            "version": wished.version,
            "cri_socket": wished.cri_socket,
            "ignore_preflight": list(wished.ignore_preflight),
            "config": kubeadm.join_config(
                wished.host,
                wished.endpoint,
                invitation,
                cri_socket=wished.cri_socket,
                taints=wished.taints,
            ),
        }
        await self.context.hosts.ask(wished.host, request, deadline)
        await self._until_ready(wished, values, deadline)
        await node_marks.apply(api, wished.host.name, wished.labels, wished.taints, deadline)
        return dict(values)

    async def running_version(self, values: dict[str, Any], deadline: Deadline) -> str | None:
        """Return the version of the node's kubelet, as the API knows it."""
        del deadline
        known: NodeInputs = self.typed(values)
        return kubelet_version(
            await self.context.cluster(known.control_plane).node(known.host.name)
        )

    async def read(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any] | None:
        """Look at the API, then at the host: a node that either does not know has left."""
        known: NodeInputs = self.typed(values)
        api = self.context.cluster(known.control_plane)
        if not (await api.access(deadline))["kubeconfig"]:
            return None
        if await api.node(known.host.name) is None:
            return None
        try:
            found = await self.context.hosts.ask(known.host, {"action": "access"}, deadline)
        except UnreachableError:
            return dict(values)  # down, and still a member: the API's NotReady tells of that
        return dict(values) if found["member"] else None

    async def delete(self, values: dict[str, Any], deadline: Deadline) -> None:
        """Cordon, drain, reset the host, delete the Node object; each step may be done already."""
        known: NodeInputs = self.typed(values)
        name = known.host.name
        api = self.context.cluster(known.control_plane)
        cluster = await self._cluster_is_there(known, deadline)
        try:
            # First a look at the host: draining a node whose host is dead would never end.
            found = await self.context.hosts.ask(known.host, {"action": "access"}, deadline)
            if cluster and await api.node(name) is not None:
                await refuse_if_elsewhere(api, name, found, deadline)
                if is_still(name, found):
                    await api.drain(name, deadline)
            request = {
                "action": "reset",
                "name": name,
                "endpoint": known.endpoint,
                "cri_socket": known.cri_socket,
            }
            await self.context.hosts.ask(known.host, request, deadline)
        except UnreachableError:
            if not self.context.force:
                raise
        if cluster:
            await api.forget(name, deadline)

    async def _cluster_is_there(self, known: NodeInputs, deadline: Deadline) -> bool:
        try:
            found = await self.context.cluster(known.control_plane).access(deadline)
        except UnreachableError:
            if not self.context.force:
                raise
            return False
        if self.context.force and not await self.context.cluster(known.control_plane).answers(
            deadline
        ):
            return False  # the host is there and its API is not: nothing can be drained
        return bool(found["kubeconfig"])

    async def _until_ready(
        self, wished: NodeInputs, outputs: dict[str, Any], deadline: Deadline
    ) -> None:
        name = wished.host.name
        api = self.context.cluster(wished.control_plane)
        reasons = [f"node {name} has not been looked at"]
        try:
            while reasons:
                try:
                    reasons = not_ready_reasons(await api.node(name), name)
                except ProviderError as error:
                    reasons = [str(error)]
                if reasons and deadline.over():
                    raise HalfMade(name, outputs, reasons)
                if reasons:
                    await pause()
        except asyncio.CancelledError:
            raise HalfMade(name, outputs, ["cancelled while waiting for it", *reasons]) from None
