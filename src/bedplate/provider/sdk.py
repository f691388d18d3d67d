"""The provider's resources as Pulumi programs see them."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pulumi


class MachineArgs(TypedDict):
    """How a host is reached."""

    name: pulumi.Input[str]
    """Name in the inventory, and of the node."""
    address: pulumi.Input[str]
    """Address or name that SSH connects to."""
    port: NotRequired[pulumi.Input[int]]
    """Port of SSH; 22 by default."""
    user: NotRequired[pulumi.Input[str]]
    """User who is root or becomes root by sudo; root by default. The site has the passwords."""
    jump: NotRequired[pulumi.Input[list[str]]]
    """Hosts to go through, as USER@HOST:PORT, the first one first."""
    keys: NotRequired[pulumi.Input[list[str]]]
    """Files of private keys for the host and those to go through; relative to the site."""
    config: NotRequired[pulumi.Input[str]]
    """SSH's configuration instead of the user's own; relative to the site."""
    options: NotRequired[pulumi.Input[list[str]]]
    """Lines of SSH's configuration that come before it, such as `HostKeyAlias gpu-1`."""
    nodeIp: NotRequired[pulumi.Input[str]]
    """Where the other nodes reach it, if not at `address`."""


class TaintArgs(TypedDict):
    """A taint of a node."""

    key: pulumi.Input[str]
    """Its key, like example.com/gpu."""
    value: NotRequired[pulumi.Input[str]]
    """Its value; empty by default."""
    effect: pulumi.Input[str]
    """NoSchedule, PreferNoSchedule or NoExecute."""


class ControlPlaneArgs(TypedDict):
    """Inputs of a ControlPlane. All but `host`, `taint` and the networks are only read once."""

    host: pulumi.Input[MachineArgs]
    """The host itself."""
    version: pulumi.Input[str]
    """Version of Kubernetes, as installed on the host."""
    endpoint: pulumi.Input[str]
    """HOST:PORT of the cluster's API, for all members and users."""
    podSubnet: pulumi.Input[str]
    """Network of the pods."""
    serviceSubnet: pulumi.Input[str]
    """Network of the services."""
    etcdImageTag: pulumi.Input[str]
    """Tag of etcd's image."""
    dnsImageTag: pulumi.Input[str]
    """Tag of CoreDNS' image."""
    etcdDataDir: NotRequired[pulumi.Input[str]]
    """Where etcd keeps its data; kubeadm's /var/lib/etcd by default."""
    kubelet: NotRequired[pulumi.Input[dict[str, Any]]]
    """Fields of KubeletConfiguration, as upstream spells them."""
    kubeProxy: NotRequired[pulumi.Input[dict[str, Any]]]
    """Fields of KubeProxyConfiguration, as upstream spells them."""
    controllerRequests: NotRequired[pulumi.Input[int]]
    """Requests a second of each controller, half as many more at once; 0 is kubeadm's own limit."""
    criSocket: NotRequired[pulumi.Input[str]]
    """Where the host's container runtime listens; containerd's by default. It never changes."""
    ignorePreflight: NotRequired[pulumi.Input[list[str]]]
    """Preflight checks of kubeadm whose errors become warnings."""
    taint: NotRequired[pulumi.Input[bool]]
    """Whether pods are kept away by kubeadm's taint; true by default. It can change at any time."""
    labels: NotRequired[pulumi.Input[dict[str, str]]]
    """Labels of the node that the site sets; those of others stay."""
    taints: NotRequired[pulumi.Input[list[TaintArgs]]]
    """Taints of the node that the site sets, likewise."""
    join: NotRequired[pulumi.Input[MachineArgs]]
    """Another control plane to join. Without it this one makes the cluster, unless one serves."""


class NodeArgs(TypedDict):
    """Inputs of a Node."""

    host: pulumi.Input[MachineArgs]
    """The host that joins."""
    controlPlane: pulumi.Input[MachineArgs]
    """The control plane that invites it."""
    version: pulumi.Input[str]
    """Version of Kubernetes, as installed on the host."""
    endpoint: pulumi.Input[str]
    """HOST:PORT of the cluster's API."""
    criSocket: NotRequired[pulumi.Input[str]]
    """Where the host's container runtime listens; containerd's by default. It never changes."""
    ignorePreflight: NotRequired[pulumi.Input[list[str]]]
    """Preflight checks of kubeadm whose errors become warnings."""
    labels: NotRequired[pulumi.Input[dict[str, str]]]
    """Labels of the node that the site sets; those of others stay."""
    taints: NotRequired[pulumi.Input[list[TaintArgs]]]
    """Taints of the node that the site sets, likewise; the node registers with them."""


class GpuReadyArgs(TypedDict):
    """Inputs of a GpuReady."""

    host: pulumi.Input[MachineArgs]
    """The node's host."""
    controlPlane: pulumi.Input[MachineArgs]
    """The control plane that is asked."""
    resource: NotRequired[pulumi.Input[str]]
    """Extended resource to wait for; nvidia.com/gpu by default."""
    count: pulumi.Input[int]
    """How many of it the node must offer."""


class DeletionGuardArgs(TypedDict):
    """Inputs of a DeletionGuard."""

    host: pulumi.Input[MachineArgs]
    """The first control plane."""
    endpoint: pulumi.Input[str]
    """HOST:PORT of the cluster's API."""


class Provider(pulumi.ProviderResource):  # type: ignore[misc]
    """The connection of the resources to a site's hosts."""

    def __init__(
        self,
        name: str,
        *,
        site: pulumi.Input[str],
        private_key: pulumi.Input[str] | None = None,
        known_hosts: pulumi.Input[str] | None = None,
        force: pulumi.Input[bool] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "site": site,
            "privateKey": private_key,
            "knownHosts": known_hosts,
            "force": None if force is None else pulumi.Output.json_dumps(force),
        }
        super().__init__("bedplate", name, props, opts)


class ControlPlane(pulumi.CustomResource):  # type: ignore[misc]
    """A host on which kubeadm runs the cluster's API."""

    host: pulumi.Output[dict[str, Any]]
    kubeconfig: pulumi.Output[str]
    authority: pulumi.Output[str]

    def __init__(
        self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        computed = {"kubeconfig": None, "authority": None}
        super().__init__("bedplate:index:ControlPlane", name, {**args, **computed}, opts)


class Node(pulumi.CustomResource):  # type: ignore[misc]
    """A worker of the cluster."""

    host: pulumi.Output[dict[str, Any]]

    def __init__(
        self, name: str, args: NodeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:index:Node", name, dict(args), opts)


class GpuReady(pulumi.CustomResource):  # type: ignore[misc]
    """The moment at which a node offers its GPUs."""

    allocatable: pulumi.Output[int]

    def __init__(
        self, name: str, args: GpuReadyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:index:GpuReady", name, {**args, "allocatable": None}, opts)


class DeletionGuard(pulumi.CustomResource):  # type: ignore[misc]
    """Refuses to be deleted while upper stacks use the cluster; let it depend on all of that."""

    def __init__(
        self, name: str, args: DeletionGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:index:DeletionGuard", name, dict(args), opts)
