"""ControlPlane: a host on which kubeadm runs the cluster's API."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar

from bedplate.common import kubeconfig
from bedplate.portable import encryption_keys
from bedplate.provider import cluster_api, kubeadm, node_marks, secrets_key
from bedplate.provider.deadline import Deadline, to_the_end
from bedplate.provider.deletion_guard import refuse_if_used
from bedplate.provider.errors import (
    EtcdRefusesError,
    HalfMade,
    ProviderError,
    UnreachableError,
    message,
)
from bedplate.provider.model import ControlPlaneInputs, Inputs, Machine
from bedplate.provider.resource import Resource, control_planes, pause
from bedplate.provider.succession import is_still, make_room, refuse_if_elsewhere
from bedplate.provider.wire import Secret

if TYPE_CHECKING:
    from bedplate.provider.cluster_api import ClusterApi

# How long the API may be away while its address moves: keepalived misses a host after 3 s.
SERVED_SECONDS = 60.0
# What a drain leaves of the time to leave: for the address, etcd, the reset and the Node object.
AFTER_DRAIN_SECONDS = 180.0
BACK_SECONDS = 30.0


class ControlPlane(Resource):
    """A control plane joins the cluster that another one has; without any, it makes the cluster.

    The one without `join` makes it. Once it stands, that one is a control plane like the others.
    """

    token = "bedplate:index:ControlPlane"  # noqa: S105 - a type token, not a credential
    inputs: ClassVar[type[Inputs]] = ControlPlaneInputs
    computed = ("kubeconfig", "authority")
    secret = ("kubeconfig",)
    fixed = frozenset({"endpoint", "podSubnet", "serviceSubnet", "etcdDataDir", "criSocket"})
    at_creation = frozenset(
        {
            "etcdImageTag",
            "dnsImageTag",
            "kubelet",
            "kubeProxy",
            "controllerRequests",
            "ignorePreflight",
            "join",
        }
    )

    async def ensure(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Initialise or join, or take the control plane that the host already is."""
        wished: ControlPlaneInputs = self.typed(values)
        request = {
            "name": wished.host.name,
            "endpoint": wished.endpoint,
            "version": wished.version,
            "cri_socket": wished.cri_socket,
            "ignore_preflight": list(wished.ignore_preflight),
        }
        through = await self._through(wished, deadline)
        if through is None:
            request |= {
                "action": "init",
                "config": kubeadm.init_config(wished),
                "encryption": encryption_keys.for_a_new_cluster(),
                "etcd_data_dir": wished.etcd_data_dir,
            }
        else:
            invitation = await through.invitation(deadline, control_plane=True)
            config = kubeadm.join_config(
                wished.host,
                wished.endpoint,
                invitation,
                cri_socket=wished.cri_socket,
                taint=wished.taint,
            )
            found = await through.access(deadline)
            secrets_key.refuse_a_lost_one(wished.host.name, found)
            known = {name: found[name] for name in ("authority", "encryption")}
            request |= {"action": "join", "config": config, **known}
        answer = await self.context.hosts.ask(wished.host, request, deadline)
        kubeconfig.write(self.context.site, answer["kubeconfig"])
        outputs = self._outputs(values, answer)
        await self._until_it_answers(wished, outputs, deadline)
        if through is not None:
            late = secrets_key.of_another_time(answer, await through.access(deadline))
            if late:
                raise HalfMade(wished.host.name, outputs, late)
        # kubeadm has set it on a new node; one that was there already may have another.
        api = self.context.alone(wished.host)
        await api.taint(wished.host.name, wanted=wished.taint, deadline=deadline)
        await node_marks.apply(api, wished.host.name, wished.labels, wished.taints, deadline)
        return outputs

    async def _through(self, wished: ControlPlaneInputs, deadline: Deadline) -> ClusterApi | None:
        """Return the cluster that the host is to join; None where it makes or keeps its own."""
        host = wished.host
        found = await self.context.alone(host).access(deadline)
        api = self.context.cluster(wished.join or host, without=host.name)
        if wished.join is None:
            whole = found["member"] and found["phase"] != "begun"
            if whole or found["restoring"]:
                return None
            if not await api.another(host.name, "has no cluster"):
                self._refuse_a_second(wished, found, api.silent)
                return None
        await make_room(api, host, wished.endpoint, found, deadline, control_plane=True)
        return api

    def _refuse_a_second(
        self, wished: ControlPlaneInputs, found: dict[str, Any], silent: list[str]
    ) -> None:
        """Refuse to make a cluster where the site has one that may be there still."""
        begun = (found["phase"], found["endpoint"]) == ("begun", wished.endpoint)
        if self.context.force:
            return
        if silent:
            raise ProviderError(
                message(
                    "a new cluster would be made while other control planes cannot be asked",
                    wished.host.name,
                    f"no answer from {', '.join(silent)}, which may have the site's cluster",
                    "an answer of each control plane",
                    "start them, then run pulumi up again; if all are lost for ever, restore the "
                    "cluster with ansible-playbook bedplate.gpu.restore, or set "
                    "BEDPLATE_FORCE=true to begin with an empty one",
                )
            )
        known = kubeconfig.path_in(self.context.site)
        if not begun and known.exists():
            raise ProviderError(
                message(
                    "a new cluster would be made while the site has one",
                    wished.host.name,
                    f"{known}, while no control plane of the inventory is in its cluster",
                    "one that is, or no such file",
                    "put one of that cluster into control_plane; if all are lost, restore it with "
                    "ansible-playbook bedplate.gpu.restore; if it may go or is destroyed already, "
                    f"delete {known} and run pulumi up again",
                )
            )

    async def running_version(self, values: dict[str, Any], deadline: Deadline) -> str | None:
        """Return the version of the host's kubelet, which kubeadm upgrades last."""
        del deadline
        known: ControlPlaneInputs = self.typed(values)
        node = await self.context.cluster(known.host).node(known.host.name)
        return cluster_api.kubelet_version(node)

    async def read(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any] | None:
        """Look at the host: without an administrator's configuration it is no control plane."""
        known: ControlPlaneInputs = self.typed(values)
        found = await self.context.alone(known.host).access(deadline)
        if found["restoring"]:
            raise ProviderError(
                message(
                    "the cluster is being restored from a backup, or a restore was cut off",
                    known.host.name,
                    "no end of bedplate.gpu.restore",
                    "a restore that has ended well",
                    "run ansible-playbook bedplate.gpu.restore again, then pulumi refresh",
                )
            )
        if not found["kubeconfig"]:
            return None
        kubeconfig.write(self.context.site, found["kubeconfig"])
        return self._outputs(values, found)

    async def delete(self, values: dict[str, Any], deadline: Deadline) -> None:
        """Reset the host; refuse while something still stands on the cluster."""
        known: ControlPlaneInputs = self.typed(values)
        host = known.host
        api = self.context.cluster(host, without=host.name, of=known.endpoint)
        # The last one takes the cluster with it.
        remains = await api.another(host.name, "is to leave")
        site_endpoint, planes = control_planes(self.context.site)
        if not remains and known.join is not None and site_endpoint != known.endpoint:
            # No lock says which are left.
            api, remains = self.context.cluster(known.join, without=host.name), True
        elif not remains and api.silent and not self.context.force:
            raise ProviderError(
                message(
                    "whether this is the last control plane is not known",
                    host.name,
                    f"no answer from {', '.join(api.silent)}",
                    "an answer of each control plane of the site",
                    "start them, then run it again; BEDPLATE_FORCE=true takes this one for the "
                    "last, and the cluster goes with it",
                )
            )
        if remains and host.name not in {one.name for one in planes}:
            # When all is destroyed, the site still has it.
            await self._refuse_its_own_endpoint(api, known, deadline)
        try:
            found = await self.context.alone(host).access(deadline)
            if not remains:
                if found["kubeconfig"] and found["phase"] == "done" and not self.context.force:
                    await self._refuse_if_used(known, deadline)
            elif found["member"] and is_still(host.name, found):
                await self._leave_in_order(api, known, {one.name for one in planes}, deadline)
            elif not self.context.force:
                await refuse_if_elsewhere(api, host.name, found, deadline)
            request = {
                "action": "reset",
                "name": host.name,
                "endpoint": known.endpoint,
                "cri_socket": known.cri_socket,
            }
            await self.context.hosts.ask(host, request, deadline)
            if host.name in {one.name for one in planes}:
                # It is to come again, and nothing else would start it.
                await self._serves(host, deadline, on=True)
        except UnreachableError:
            if not self.context.force:
                raise
        if not remains:
            self._remove_kubeconfig(known, site_endpoint)
        elif await self._served(api, known, deadline):
            await api.leave_etcd(host, deadline)
            await api.forget(host.name, deadline)

    def _remove_kubeconfig(self, known: ControlPlaneInputs, site_endpoint: str) -> None:
        """Remove the kubeconfig of the cluster that has gone; by force the site may have a next."""
        path = kubeconfig.path_in(self.context.site)
        another = site_endpoint not in ("", known.endpoint) and path.exists()
        if not (another and f"https://{site_endpoint}" in path.read_text()):
            kubeconfig.remove(self.context.site)

    async def _refuse_its_own_endpoint(
        self, api: ClusterApi, known: ControlPlaneInputs, deadline: Deadline
    ) -> None:
        """Refuse that the address goes by which all others reach the cluster."""
        if self.context.force:
            return
        own = {known.host.name, known.host.address, known.host.node_ip}
        own |= await api.addresses(known.host.address, deadline)
        name = known.endpoint.rpartition(":")[0].strip("[]")
        # Several addresses of a name are a balancer's, or of several control planes.
        if name in own or ((found := await api.addresses(name, deadline)) and found <= own):
            raise ProviderError(
                message(
                    "the cluster's endpoint is this control plane's own address",
                    known.host.name,
                    known.endpoint,
                    "an endpoint that another control plane can have",
                    "keep this control plane in the site: each node reaches the API there; or have "
                    "the name lead to another one first, where it is a name",
                )
            )

    async def _leave_in_order(
        self, api: ClusterApi, known: ControlPlaneInputs, planes: set[str], deadline: Deadline
    ) -> None:
        """Drain a control plane in service and take it out of etcd, before anything is reset.

        Whether those that are left are enough, etcd itself knows best: a kubelet may be Ready above
        an etcd that is not, and kubeadm resets a host although etcd refuses to let it go.
        """
        host = known.host
        if self.context.force and not await self._served(api, known, deadline):
            return  # without an API nothing can be drained
        await self._keep_a_quorum(api, host, planes, deadline)
        if await api.node(host.name) is not None:
            left = max(deadline.left() - AFTER_DRAIN_SECONDS, 60.0)
            await api.drain(host.name, Deadline(f"draining {host.name}", left))
        asked = False
        try:
            # Its API server does not answer without etcd: nobody is to wait for it.
            await self._serves(host, deadline, on=False)
            await self._served(api, known, deadline)
            asked = True
            await self._leave_etcd(api, host, deadline)
        except (ProviderError, asyncio.CancelledError) as error:
            if self.context.force and isinstance(error, ProviderError):
                return
            # It may be no member any more, with an API server that never answers again.
            if not asked or isinstance(error, EtcdRefusesError):
                await to_the_end(self._stays(api, host))
            raise

    async def _stays(self, api: ClusterApi, host: Machine) -> None:
        """Return to service what does not leave after all."""
        back, lost = Deadline("returning the address", BACK_SECONDS), ""
        try:
            await self._serves(host, back, on=True)
        except ProviderError as error:
            lost = str(error)  # the run ends with the reason why it does not leave
        await api.uncordon(host.name)
        if lost:
            await api.warn(
                f"whether {host.name} takes part in the cluster's address is not known ({lost}): "
                "run ansible-playbook bedplate.gpu.site for the control planes"
            )

    async def _serves(self, host: Machine, deadline: Deadline, *, on: bool) -> None:
        """Have a host take part in the cluster's address, or no more."""
        await self.context.hosts.ask(host, {"action": "serve-endpoint", "on": on}, deadline)

    async def _leave_etcd(self, api: ClusterApi, host: Machine, deadline: Deadline) -> None:
        look = "see `crictl ps --all --name etcd` on the others"
        try:
            await api.leave_etcd(host, deadline)
        except EtcdRefusesError as error:
            raise EtcdRefusesError(
                message(
                    "etcd refuses to remove this control plane",
                    host.name,
                    str(error),
                    "a quorum of members that run without it",
                    f"{look}, start what is down, and run pulumi up again; until then it stays in "
                    "service",
                )
            ) from error
        except ProviderError as error:
            raise ProviderError(
                message(
                    "whether etcd has removed this control plane is not known",
                    host.name,
                    str(error),
                    "an answer of etcd on another control plane",
                    f"{look}, and run pulumi up again; until then it is drained and takes no part "
                    "in the cluster's address. To keep it, see the page on removing a node",
                )
            ) from error

    async def _keep_a_quorum(
        self, api: ClusterApi, host: Machine, planes: set[str], deadline: Deadline
    ) -> None:
        """See that a control plane in service is not taken from etcd while another one is down.

        By force, those that are down and no longer of the site leave etcd first: without them the
        others are enough.
        """
        down = [
            name
            for name, node in (await api.nodes()).items()
            if cluster_api.is_control_plane(node)
            and name != host.name
            and cluster_api.not_ready_reasons(node, name)
        ]
        if down and not self.context.force:
            raise ProviderError(
                message(
                    "etcd could lose its quorum",
                    host.name,
                    f"{', '.join(sorted(down))} not Ready",
                    "all other control planes Ready before one leaves",
                    "start it; or, if it is lost and no longer in the site, set "
                    "BEDPLATE_FORCE=true, and it leaves first",
                )
            )
        for name in sorted(set(down) - planes):
            await api.leave_etcd(Machine(name=name, address=name), deadline)

    async def _refuse_if_used(self, known: ControlPlaneInputs, deadline: Deadline) -> None:
        api = self.context.alone(known.host)
        await refuse_if_used(api, known.endpoint, deadline)
        others = [
            name
            for name, node in (await api.nodes()).items()
            if not cluster_api.is_control_plane(node)
        ]
        if others:
            raise ProviderError(
                message(
                    "the cluster still has workers",
                    f"cluster at {known.endpoint}",
                    ", ".join(sorted(others)),
                    "control planes only",
                    "drain and delete those nodes first (pulumi destroy does it for its own), or "
                    "set BEDPLATE_FORCE=true",
                )
            )

    async def _served(self, api: ClusterApi, known: ControlPlaneInputs, deadline: Deadline) -> bool:
        """Wait for the API: the cluster's address may have been on the host that has left.

        False where it does not answer and is left by force.
        """
        until = time.monotonic() + SERVED_SECONDS
        while not await api.answers(deadline):
            if time.monotonic() > until:
                if self.context.force:
                    return False
                raise ProviderError(
                    message(
                        "the cluster's API does not answer while a control plane leaves",
                        known.endpoint,
                        f"no answer in {SERVED_SECONDS:.0f} s",
                        "an API that is ready",
                        "see the other control planes, then run it again",
                    )
                )
            await pause()
        return True

    async def _until_it_answers(
        self, wished: ControlPlaneInputs, outputs: dict[str, Any], deadline: Deadline
    ) -> None:
        api = self.context.alone(wished.host)
        try:
            while not await api.answers(deadline):
                if deadline.over():
                    raise HalfMade(
                        wished.host.name,
                        outputs,
                        [f"the API on {wished.host.name} does not answer at /readyz"],
                    )
                await pause()
        except asyncio.CancelledError:
            raise HalfMade(
                wished.host.name, outputs, ["cancelled while waiting for the API to answer"]
            ) from None

    def _outputs(self, values: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        return {
            **values,
            "kubeconfig": Secret(found["kubeconfig"]),
            "authority": found["authority"],
        }
