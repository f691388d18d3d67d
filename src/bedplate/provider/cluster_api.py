"""The cluster's API, asked with kubectl on a control plane over SSH."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from bedplate.common.harmless import printable
from bedplate.portable import dra
from bedplate.provider.deadline import Deadline, to_the_end
from bedplate.provider.errors import (
    CommandFailedError,
    EtcdRefusesError,
    ProviderError,
    UnreachableError,
    message,
)
from bedplate.provider.kubeadm import Invitation, read_invitation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bedplate.provider.hosts import Hosts
    from bedplate.provider.model import Machine

    type Tell = Callable[[str], Awaitable[None]]

KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
FRESH_SECONDS = 1.0
QUERY_SECONDS = 30.0
READY_SECONDS = 10
DRAINS = 4
INVITATION_SECONDS = 600.0
UPPER_STACKS = "app.kubernetes.io/managed-by=bedplate"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


class ClusterApi:
    """One cluster as the provider sees it: shared by all resources, so that waiting for a thousand
    nodes costs one query a second and their joins one token.

    Args:
        hosts: what runs commands on hosts.
        control_plane: the one that is asked.
        others: returns the cluster's endpoint and those that are asked where it cannot be
            reached; read only then.
        tell: tells the user that another one is asked.
    """

    def __init__(
        self,
        hosts: Hosts,
        control_plane: Machine,
        others: Callable[[], tuple[str, Sequence[Machine]]] = lambda: ("", ()),
        tell: Tell | None = None,
    ) -> None:
        self._hosts = hosts
        self._control_plane = control_plane
        self._others = others
        self._tell = tell
        self.silent: list[str] = []
        self._choosing = asyncio.Lock()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._asked = 0.0
        self._query = asyncio.Lock()
        self._slices: list[dict[str, Any]] = []
        self._slices_asked = 0.0
        self._invitations: dict[bool, tuple[float, Invitation]] = {}
        self._inviting = asyncio.Lock()
        # A drain holds one of the few SSH sessions of the control plane until its pods are gone;
        # the questions that other resources ask need the rest.
        self._draining = asyncio.Semaphore(DRAINS)

    async def kubectl(self, *argv: str, deadline: Deadline) -> str:
        """Run kubectl with the administrator's credentials of the control plane."""
        return await self._run([*KUBECTL, *argv], deadline)

    async def _run(self, argv: Sequence[str], deadline: Deadline) -> str:
        return await self._on_a_member(lambda host: self._hosts.run(host, argv, deadline))

    async def _on_a_member[T](self, act: Callable[[Machine], Awaitable[T]]) -> T:
        """Act on the control plane, or on another one once that cannot be reached.

        What is done twice where a connection broke in the middle does the same as once.
        """
        tried: list[str] = []
        while True:
            host = self._control_plane
            try:
                return await act(host)
            except UnreachableError as error:
                tried.append(host.name)
                if not await self._leave(host, tried, "cannot be reached", f": {error}"):
                    raise

    async def another(self, than: str, why: str) -> bool:
        """Turn to another control plane *than* this one; False where none is in the cluster.

        *why* is for the user. `silent` names those that did not say whether they are in it.
        """
        host = self._control_plane
        return host.name != than or await self._leave(host, [than], why)

    async def _leave(self, host: Machine, tried: Sequence[str], why: str, more: str = "") -> bool:
        """Turn to another control plane that is in the cluster; False where there is none."""
        async with self._choosing:
            if self._control_plane.name not in tried:
                return True  # another question has turned to it meanwhile
            endpoint, others = self._others()
            self.silent = []
            for other in others:
                if other.name in tried:
                    continue
                deadline = Deadline(f"asking {other.name} for its cluster", QUERY_SECONDS)
                try:
                    found = await self._hosts.ask(other, {"action": "access"}, deadline)
                except ProviderError:
                    self.silent.append(other.name)
                    continue
                # A host of the lock may be in another cluster still, or in none yet.
                done = found["phase"] == "done" and found["endpoint"] == endpoint
                if done and found["kubeconfig"]:
                    self._control_plane = other
                    await self.warn(f"{host.name} {why}; {other.name} is asked in its place{more}")
                    return True
            return False

    async def nodes(self) -> dict[str, dict[str, Any]]:
        """Return all Node objects by name, at most a second old."""
        asked = time.monotonic()
        async with self._query:
            if not self._asked or self._asked < asked - FRESH_SECONDS:
                deadline = Deadline("asking the API for its nodes", QUERY_SECONDS)
                text = await self.kubectl("get", "nodes", "-o", "json", deadline=deadline)
                items = self._items(text, _has_name)
                self._nodes = {item["metadata"]["name"]: item for item in items}
                self._asked = time.monotonic()
            return self._nodes

    def _items(self, text: str, whole: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the objects in a list of the API. Raises ProviderError if it is none."""
        try:
            items: list[dict[str, Any]] = json.loads(text)["items"]
            if isinstance(items, list) and all(map(whole, items)):
                return items
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ProviderError(
            message(
                "the cluster's API gave no list",
                self._control_plane.name,
                printable(text[:200]) or "nothing",
                "a list of whole objects",
                "run `kubectl get nodes -o json` on that host",
            )
        )

    async def node(self, name: str) -> dict[str, Any] | None:
        """Return a Node object, or None if the API knows none of that name."""
        return (await self.nodes()).get(name)

    async def devices(self, name: str, driver: str) -> int:
        """Return how many devices a DRA driver has published of a node, at most a second old."""
        asked = time.monotonic()
        async with self._query:
            if not self._slices_asked or self._slices_asked < asked - FRESH_SECONDS:
                deadline = Deadline("asking the API for its slices", QUERY_SECONDS)
                text = await self.kubectl("get", dra.SLICES, "-o", "json", deadline=deadline)
                self._slices = self._items(text, _has_spec)
                self._slices_asked = time.monotonic()
            return len(dra.devices(self._slices, name, driver))

    async def invitation(self, deadline: Deadline, *, control_plane: bool = False) -> Invitation:
        """Return what a host needs to join, made now or within the last minutes.

        For a control plane that includes the key of freshly uploaded certificates: an upload makes
        earlier keys useless, so hosts that join at the same time must share one.
        """
        async with self._inviting:
            made = self._invitations.get(control_plane)
            if made is None or time.monotonic() - made[0] > INVITATION_SECONDS:
                key = await self._upload_certificates(deadline) if control_plane else None
                fresh = read_invitation(await self._join_command(deadline), key)
                made = (time.monotonic(), fresh)
                self._invitations[control_plane] = made
            return made[1]

    async def authority(self, deadline: Deadline) -> str:
        """Return the digest of the cluster's CA certificate; empty if there is no cluster."""
        return str((await self.access(deadline))["authority"])

    async def access(self, deadline: Deadline) -> dict[str, Any]:
        """Return what the control plane's disk says of the cluster; see `on_host.access`.

        One that is reached and has none may have lost its disk: the others are asked then, since
        its word alone would have all nodes leave the state.
        """

        async def ask(host: Machine) -> dict[str, Any]:
            return await self._hosts.ask(host, {"action": "access"}, deadline)

        found = await self._on_a_member(ask)
        host = self._control_plane
        if not found["kubeconfig"] and await self._leave(host, [host.name], "has no cluster"):
            return await self._on_a_member(ask)
        return found

    async def _upload_certificates(self, deadline: Deadline) -> str:
        upload = ["kubeadm", "init", "phase", "upload-certs", "--upload-certs"]
        shown = await self._run(upload, deadline)
        return shown.strip().splitlines()[-1]

    async def _join_command(self, deadline: Deadline) -> str:
        return await self._run(
            [
                "kubeadm",
                "--kubeconfig=/etc/kubernetes/admin.conf",
                "token",
                "create",
                "--ttl=30m",
                "--description=bedplate: hosts that join now",
                "--print-join-command",
            ],
            deadline,
        )

    async def drain(self, name: str, deadline: Deadline) -> None:
        """Cordon a node and evict its pods, those with GPUs and without a controller included.

        A node that cannot be drained, or whose drain is cancelled, takes pods again.
        """
        async with self._draining:
            seconds = max(1, int(deadline.left() - 5))
            try:
                await self.kubectl(
                    "drain",
                    name,
                    "--ignore-daemonsets",
                    "--delete-emptydir-data",
                    "--force",
                    f"--timeout={seconds}s",
                    deadline=deadline,
                )
            except (ProviderError, asyncio.CancelledError):
                await to_the_end(self.uncordon(name))
                raise

    async def uncordon(self, name: str) -> None:
        """Return a node to service that does not leave after all: nothing else would ever do it.

        Where that fails too, the user is told, and gets the reason why the node does not leave.
        """
        back = Deadline("returning the node to service", QUERY_SECONDS)
        try:
            await self.kubectl("uncordon", name, deadline=back)
        except ProviderError:
            await self.warn(f"{name} takes no new pods: run kubectl uncordon {name}")

    async def warn(self, text: str) -> None:
        """Show the user a warning."""
        if self._tell is not None:
            await self._tell(text)

    async def taint(self, name: str, *, wanted: bool, deadline: Deadline) -> None:
        """Set or remove the taint that keeps pods away from a control plane; others stay."""
        node = await self.node(name)
        if node is None or has_taint(node) == wanted:
            return
        taint = f"{CONTROL_PLANE_LABEL}:NoSchedule{'' if wanted else '-'}"
        await self.kubectl("taint", "nodes", name, taint, deadline=deadline)
        self._asked = 0.0

    def forget_nodes(self) -> None:
        """Ask again before the next answer about a node."""
        self._asked = 0.0

    async def forget(self, name: str, deadline: Deadline) -> None:
        """Delete a Node object; one that is gone already is fine."""
        await self.kubectl("delete", "node", name, "--ignore-not-found", deadline=deadline)
        self._asked = 0.0

    async def leave_etcd(
        self, gone: Machine, deadline: Deadline, *, for_another: bool = False
    ) -> None:
        """Take a control plane out of etcd's members; none of its own is fine.

        *for_another*: so that another machine can come under its name, or at its address.

        Raises:
            EtcdRefusesError: a quorum of those that run would not be left; nothing has changed.
            ProviderError: etcd did not answer. It may have removed it.
        """
        request = {
            "action": "leave-etcd",
            "name": gone.name,
            "for_another": for_another,
            "addresses": [gone.node_ip or gone.address, *([] if for_another else [gone.address])],
        }
        answer = await self._on_a_member(lambda host: self._hosts.ask(host, request, deadline))
        if answer["refused"]:
            refused = printable(answer["refused"])
            raise EtcdRefusesError(f"etcd does not remove {gone.name}: {refused}")

    async def addresses(self, name: str, deadline: Deadline) -> set[str]:
        """Return the addresses that a control plane resolves a name to; none where it has none."""
        try:
            shown = await self._run(["getent", "ahosts", name], deadline)
        except CommandFailedError:
            return set()
        return {line.split()[0] for line in shown.splitlines() if line.strip()}

    async def upper_resources(self, deadline: Deadline) -> list[str]:
        """Return what the upper stacks have in the cluster, as `kind/name`."""
        text = await self.kubectl(
            "get",
            "namespaces,runtimeclasses",
            f"--selector={UPPER_STACKS}",
            "-o",
            "name",
            deadline=deadline,
        )
        return sorted(text.split())

    async def answers(self, deadline: Deadline) -> bool:
        """Say whether the API is ready."""
        try:
            asked = ["get", "--raw=/readyz", f"--request-timeout={READY_SECONDS}s"]
            return (await self.kubectl(*asked, deadline=deadline)).strip() == "ok"
        except CommandFailedError:
            return False


def _has_name(node: dict[str, Any]) -> bool:
    return isinstance(node["metadata"]["name"], str)


def _has_spec(one: dict[str, Any]) -> bool:
    return isinstance(one["spec"], dict)


def not_ready_reasons(node: dict[str, Any] | None, name: str) -> list[str]:
    """Return why a node is not Ready; empty if it is."""
    if node is None:
        return [f"the API knows no node {name}"]
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is not None and ready["status"] == "True":
        return []
    if ready is None:
        return [f"node {name} has not reported yet"]
    return [f"node {name} is not Ready: {ready.get('reason')}: {ready.get('message')}"]


def allocatable(node: dict[str, Any] | None, resource: str) -> int:
    """Return how many of an extended resource pods may ask for on a node."""
    if node is None:
        return 0
    return int(node.get("status", {}).get("allocatable", {}).get(resource, 0))


def has_taint(node: dict[str, Any]) -> bool:
    """Say whether a Node object has the taint of a control plane."""
    taints = node.get("spec", {}).get("taints") or []
    return any((one["key"], one["effect"]) == (CONTROL_PLANE_LABEL, "NoSchedule") for one in taints)


def kubelet_version(node: dict[str, Any] | None) -> str | None:
    """Return the version of Kubernetes that a node runs, like 1.36.3."""
    info = (node or {}).get("status", {}).get("nodeInfo", {})
    return str(info["kubeletVersion"]).removeprefix("v") if "kubeletVersion" in info else None


def is_control_plane(node: dict[str, Any]) -> bool:
    """Say whether a Node object is a control plane's."""
    return CONTROL_PLANE_LABEL in node["metadata"].get("labels", {})
