"""GpuReady: the moment at which a node offers the GPUs that the lock expects of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from bedplate.portable import dra
from bedplate.provider.cluster_api import ClusterApi, allocatable, not_ready_reasons
from bedplate.provider.deadline import Deadline
from bedplate.provider.errors import HalfMade, ProviderError
from bedplate.provider.model import GpuReadyInputs, Inputs
from bedplate.provider.resource import Difference, Resource, pause

PLUGIN = "nvidia-device-plugin"
LOG_LINES = 10
LOOK_SECONDS = 5.0
# A plugin that ended this often will not come up by waiting: kubelet's back-off grows from here on.
# At least one of these times is to be ours, for what made it end may have been mended before.
HOPELESS_ATTEMPTS = 3


class GpuReady(Resource):
    """Waits until pods may ask for `count` of `resource` on a node.

    A `resource` without a slash names a DRA driver: then its devices of the node count.
    """

    token = "bedplate:index:GpuReady"  # noqa: S105 - a type token, not a credential
    inputs: ClassVar[type[Inputs]] = GpuReadyInputs
    computed = ("allocatable",)
    create_seconds = 300.0

    async def ensure(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Wait; when it is in vain, the plugin's own last words are the reason."""
        wished: GpuReadyInputs = self.typed(values)
        api = self.context.cluster(wished.control_plane)
        found, hopeless, looked = 0, False, time.monotonic()
        before: int | None = None
        not_ready: list[str] = []
        try:
            while True:
                try:
                    node = await api.node(wished.host.name)
                    found = await _offered(api, node, wished)
                    # kubelet offers them before the network lets any pod in.
                    not_ready = not_ready_reasons(node, wished.host.name)
                except ProviderError:
                    # The API may be away for a moment (a control plane that restarts).
                    if deadline.over():
                        raise
                if found >= wished.count and not not_ready:
                    return {**values, "allocatable": found}
                if deadline.over() or hopeless:
                    break
                await pause()
                if time.monotonic() - looked > LOOK_SECONDS:
                    ended, looked = await self._ended(wished, deadline), time.monotonic()
                    before = ended if before is None else before
                    hopeless = ended >= HOPELESS_ATTEMPTS and ended > before
        except asyncio.CancelledError:
            raise HalfMade(
                wished.host.name,
                {**values, "allocatable": found},
                [f"cancelled while {wished.resource} was {found} of {wished.count}"],
            ) from None
        enough = found >= wished.count
        reasons = not_ready if enough else await self._reasons(wished, found)
        raise HalfMade(wished.host.name, {**values, "allocatable": found}, reasons)

    async def read(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any] | None:
        """Look at the Node object; without one there is nothing to be ready."""
        known: GpuReadyInputs = self.typed(values)
        api = self.context.cluster(known.control_plane)
        if not (await api.access(deadline))["kubeconfig"]:
            return None
        node = await api.node(known.host.name)
        if node is None:
            return None
        return {**values, "allocatable": await _offered(api, node, known)}

    async def delete(self, values: dict[str, Any], deadline: Deadline) -> None:
        """Do nothing: the GPUs go with the node."""

    def difference(
        self, state: dict[str, Any], old: dict[str, Any], new: dict[str, Any]
    ) -> Difference:
        """Compare inputs, and what was found at the last look with what is wished."""
        found = super().difference(state, old, new)
        if state.get("allocatable", 0) < (new["count"] if isinstance(new["count"], int) else 0):
            return Difference((*found.updates, "allocatable"), found.replaces)
        return found

    async def _ended(self, wished: GpuReadyInputs, deadline: Deadline) -> int:
        """Return how often the plugin has ended; 0 while it runs, or cannot be asked.

        A DRA driver is a unit, which systemd starts again at once: the deadline decides.
        """
        if dra.is_driver(wished.resource):
            return 0
        try:
            plugin = await self._plugin(wished, deadline)
        except ProviderError:
            return 0  # no host, no judgement: the deadline decides
        return int(plugin["attempts"]) if plugin["state"] == "CONTAINER_EXITED" else 0

    async def _reasons(self, wished: GpuReadyInputs, found: int) -> list[str]:
        name = wished.host.name
        short = f"{name} offers {found} {wished.resource}, the lock expects {wished.count}"
        if dra.is_driver(wished.resource):
            return [short, await self._driver_log(wished)]
        try:
            plugin = await self._plugin(wished, Deadline("reading the plugin's log", 30.0))
        except ProviderError as error:
            return [short, f"its device plugin cannot be asked: {error}"]
        if not plugin["found"]:
            fix = (
                "run ansible-playbook bedplate.gpu.site for it, then see "
                "`journalctl -u kubelet` there"
            )
            return [short, f"no {PLUGIN} container has run on {name}: {fix}"]
        state = plugin["state"].removeprefix("CONTAINER_").lower()
        return [
            short,
            f"{PLUGIN} on {name} is {state} (attempt {plugin['attempts']}), its last log lines:\n"
            + plugin["log"],
        ]

    async def _plugin(self, wished: GpuReadyInputs, deadline: Deadline) -> dict[str, Any]:
        request = {"action": "container-log", "container": PLUGIN, "lines": LOG_LINES}
        return await self.context.hosts.ask(wished.host, request, deadline)

    async def _driver_log(self, wished: GpuReadyInputs) -> str:
        """Return the last log lines of a host's DRA driver, or why they cannot be had."""
        name = wished.host.name
        command = ["journalctl", f"--unit={dra.UNIT}", f"--lines={LOG_LINES}", "--output=cat"]
        deadline = Deadline("reading the driver's log", 30.0)
        try:
            log = await self.context.hosts.run(wished.host, command, deadline)
        except ProviderError as error:
            return f"its DRA driver cannot be asked: {error}"
        return f"{dra.UNIT} on {name}, its last log lines:\n{log.rstrip()}"


async def _offered(api: ClusterApi, node: dict[str, Any] | None, wished: GpuReadyInputs) -> int:
    """Return how many of the wished resource a node offers."""
    if node is not None and dra.is_driver(wished.resource):
        return await api.devices(wished.host.name, wished.resource)
    return allocatable(node, wished.resource)
