"""The cluster: control planes, network, workers and their GPUs."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.cluster import flannel
from bedplate.components.cluster.manifest import Manifest
from bedplate.components.config import StackError
from bedplate.portable.message import problem
from bedplate.provider import sdk


class GpuArgs(TypedDict):
    """What a node must offer."""

    resource: str
    """Extended resource, like nvidia.com/gpu."""
    count: int
    """How many of it."""
    also: NotRequired[dict[str, int]]
    """Further resources and how many of each: MIG devices of GPUs that are divided differently."""


class MarksArgs(TypedDict):
    """What the site says of a node."""

    labels: NotRequired[dict[str, str]]
    """Labels of the Node object."""
    taints: NotRequired[list[sdk.TaintArgs]]
    """Its taints."""


class RuntimeArgs(TypedDict):
    """What members of a cluster with another container runtime than containerd are told."""

    criSocket: NotRequired[str]
    """Where it listens."""


class ClusterArgs(TypedDict):
    """Inputs of a Cluster."""

    kubernetes: dict[str, Any]
    """The lock's `cluster.kubernetes`."""
    etcd_image_tag: str
    """Tag of etcd's image."""
    dns_image_tag: str
    """Tag of CoreDNS' image."""
    control_planes: list[sdk.MachineArgs]
    """Hosts of the control plane; the first by name makes the cluster where none has it yet."""
    workers: list[sdk.MachineArgs]
    """Hosts that join as workers, all at the same time."""
    gpus: dict[str, GpuArgs]
    """What is waited for on each host, control planes included, by its name."""
    gpu_seconds: int
    """How long a node's GPUs are waited for."""
    cni_manifest: str
    """flannel's manifest."""
    marks: NotRequired[dict[str, MarksArgs]]
    """Labels and taints by the host's name."""
    cri_socket: NotRequired[str]
    """Where the hosts' container runtime listens; containerd's by default."""


class Cluster(pulumi.ComponentResource):  # type: ignore[misc]
    """A Kubernetes cluster on hosts that Ansible has prepared."""

    kubeconfig: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    nodes: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:cluster:Cluster", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        first, *others = args["control_planes"]
        control_plane = sdk.ControlPlane(
            f"{name}-{first['name']}", control_plane_args(args, first), below
        )
        members: list[pulumi.Resource] = [control_plane]
        for host in others:
            # One after the other: etcd takes in one new member at a time.
            after = pulumi.ResourceOptions(parent=self, depends_on=members[-1:])
            api: sdk.ControlPlaneArgs = {
                **control_plane_args(args, host),
                "join": control_plane.host,
            }
            members.append(sdk.ControlPlane(f"{name}-{host['name']}", api, after))

        provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=control_plane.kubeconfig,
            # The administrator's rights are enough; what a wrong kubeconfig reaches is an error.
            suppress_deprecation_warnings=False,
            opts=below,
        )
        network = Manifest(
            f"{name}-flannel",
            {
                "objects": _network(args),
                "cluster": control_plane,
            },
            pulumi.ResourceOptions(parent=self, provider=provider),
        )

        control_planes = list(members)
        for host, member in zip(args["control_planes"], control_planes, strict=True):
            # After the network: a device plugin needs none, and pods that ask for its GPUs do.
            members += self._gpus(name, host, control_plane, [member, network], args)
        joined: list[pulumi.Output[str]] = []
        for host in args["workers"]:
            # After the network, so that nodes leave before it when all is destroyed.
            after = pulumi.ResourceOptions(parent=self, depends_on=[network, *control_planes])
            node = sdk.Node(
                f"{name}-{host['name']}",
                {
                    **_marks(args, host),
                    **_runtime(args),
                    "host": host,
                    "controlPlane": control_plane.host,
                    "version": args["kubernetes"]["version"],
                    "endpoint": args["kubernetes"]["endpoint"],
                    "ignorePreflight": args["kubernetes"].get("ignore_preflight", []),
                },
                after,
            )
            joined.append(node.id)
            members += [node, *self._gpus(name, host, control_plane, [node], args)]
        sdk.DeletionGuard(
            f"{name}-guard",
            {"host": first, "endpoint": args["kubernetes"]["endpoint"]},
            pulumi.ResourceOptions(parent=self, depends_on=[network, *members]),
        )

        self.kubeconfig = pulumi.Output.secret(control_plane.kubeconfig)
        self.endpoint = pulumi.Output.from_input(args["kubernetes"]["endpoint"])
        self.nodes = pulumi.Output.all(*joined)
        self.register_outputs(
            {"kubeconfig": self.kubeconfig, "endpoint": self.endpoint, "nodes": self.nodes}
        )

    def _gpus(
        self,
        name: str,
        host: sdk.MachineArgs,
        control_plane: sdk.ControlPlane,
        after: list[pulumi.Resource],
        args: ClusterArgs,
    ) -> list[pulumi.Resource]:
        """Wait for a node's GPUs, if it has any; the node's resource is the first of *after*."""
        expected = args["gpus"].get(str(host["name"]))
        if expected is None:
            return []
        wanted = [("", expected["resource"], expected["count"])]
        for resource, count in expected.get("also", {}).items():
            wanted.append((f"-{resource.rpartition('/')[2]}", resource, count))
        return [
            sdk.GpuReady(
                f"{name}-{host['name']}-gpus{suffix}",
                {
                    "host": host,
                    "controlPlane": control_plane.host,
                    "resource": resource,
                    "count": count,
                },
                pulumi.ResourceOptions(
                    parent=self,
                    depends_on=after,
                    # With the node go its GPUs: then there is nothing to ask any more.
                    deleted_with=after[0],
                    custom_timeouts=pulumi.CustomTimeouts(
                        create=f"{args['gpu_seconds']}s", update=f"{args['gpu_seconds']}s"
                    ),
                ),
            )
            for suffix, resource, count in wanted
        ]


def _network(args: ClusterArgs) -> list[dict[str, Any]]:
    """Return flannel's objects. Raises StackError where it cannot be configured."""
    subnet = args["kubernetes"]["pod_subnet"]
    try:
        mtu = args["kubernetes"].get("mtu")
        return flannel.objects(args["cni_manifest"], subnet, evicting=_evicting(args), mtu=mtu)
    except ValueError as error:
        raise StackError(
            problem(
                "flannel cannot be configured",
                f"bedplate_kubernetes.pod_subnet {subnet}",
                str(error),
                "flannel's own manifest and an IPv4 subnet",
                "correct the subnet, and plan the site again",
            )
        ) from error


def _evicting(args: ClusterArgs) -> bool:
    found = [taint for marks in args.get("marks", {}).values() for taint in marks.get("taints", [])]
    return any(taint["effect"] == "NoExecute" for taint in found)


def _marks(args: ClusterArgs, host: sdk.MachineArgs) -> MarksArgs:
    return args.get("marks", {}).get(str(host["name"]), {})


def _runtime(args: ClusterArgs) -> RuntimeArgs:
    """Return the container runtime's input. Members of older stacks have none, and keep it so."""
    socket = args.get("cri_socket")
    return {"criSocket": socket} if socket else {}


def control_plane_args(args: ClusterArgs, host: sdk.MachineArgs) -> sdk.ControlPlaneArgs:
    """Return what one control plane of the cluster is made from."""
    wished = args["kubernetes"]
    found: sdk.ControlPlaneArgs = {
        "host": host,
        "version": wished["version"],
        "endpoint": wished["endpoint"],
        "podSubnet": wished["pod_subnet"],
        "serviceSubnet": wished["service_subnet"],
        "etcdImageTag": args["etcd_image_tag"],
        "dnsImageTag": args["dns_image_tag"],
        "kubelet": wished.get("kubelet") or {},
        "kubeProxy": wished.get("kube_proxy") or {},
        "ignorePreflight": wished.get("ignore_preflight") or [],
        "taint": host["name"] not in wished.get("untainted", ()),
    }
    marks = _marks(args, host)
    if "labels" in marks:
        found["labels"] = marks["labels"]
    if "taints" in marks:
        found["taints"] = marks["taints"]
    if socket := args.get("cri_socket"):
        found["criSocket"] = socket
    if folder := wished.get("etcd_data_dir"):
        found["etcdDataDir"] = folder
    if requests := wished.get("controller_requests"):
        found["controllerRequests"] = requests
    return found
