"""The settings of the cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bedplate.site.patterns import Wish

# Named hosts, IPv4, or IPv6 in brackets; a port is part of it.
ENDPOINT = r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$"
#: Folders whose names do not begin with a dot.
FOLDER = r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
CIDR = r"^[0-9A-Fa-f.:]+/[0-9]{1,3}$"


class Kubernetes(Wish):
    """The cluster."""

    version: Annotated[str, Field(pattern=r"^1\.[0-9]+(\.[0-9]+)?$")] | None = None
    """The release of Kubernetes, with or without its patch number. Left out: the newest compatible
    one. Example: `"1.36"`"""
    endpoint: Annotated[str, Field(pattern=ENDPOINT)]
    """Host and port at which nodes and administrators reach the API server. It never changes.
    Example: `k8s.example:6443`"""
    endpoint_by: Literal["external", "keepalived", "haproxy"] = "external"
    """Who provides the endpoint: you (`external`), a virtual address that `keepalived` moves
    between the control planes, or the same with `haproxy` in front of all API servers. Example:
    `keepalived`"""
    control_plane_taint: bool | None = None
    """Whether a taint keeps pods away from control planes. Left out: control planes that are in a
    GPU pool take pods, and all of them where there is no other node. Example: `true`"""
    cni: Literal["flannel", "cilium"] = "flannel"
    """The network of pods. `cilium` is planned and cannot be installed by this version. Example:
    `flannel`"""
    pod_subnet: Annotated[str, Field(pattern=CIDR)] = "10.244.0.0/16"
    """The addresses of pods; each node takes a /24 of them, so that more than 256 nodes need a
    larger subnet. Example: `10.128.0.0/14`"""
    service_subnet: Annotated[str, Field(pattern=CIDR)] = "10.96.0.0/12"
    """The addresses of Services. Example: `10.96.0.0/16`"""
    mtu: Annotated[int, Field(ge=1280, le=65535)] | None = None
    """The MTU of the hosts' network; pods have 50 bytes less, for flannel's VXLAN. Unit: bytes.
    Left out: flannel asks each host's interface. Example: `8950`"""
    etcd_data_dir: Annotated[str, Field(pattern=FOLDER)] | None = None
    """The folder in which control planes keep etcd's data. It never changes. Left out: kubeadm's
    /var/lib/etcd. Example: `/srv/etcd/data`"""
    kubelet: dict[str, Any] = {}
    """Fields of kubelet's configuration on all nodes, as upstream spells them. Example: `{maxPods:
    250}`"""
    kube_proxy: dict[str, Any] = {}
    """Fields of kube-proxy's configuration, as upstream spells them. Example: `{mode: nftables}`"""
    controller_requests: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many requests a second each controller of kube-controller-manager may send, half as many
    more at once. It never changes. Unit: requests per second. Left out: what a chosen add-on needs,
    else kubeadm's own. Example: `100`"""
    ignore_preflight: list[str] = []
    """Checks of kubeadm that are not made, by kubeadm's names. Example: `[SystemVerification]`"""
