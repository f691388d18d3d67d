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
    """The cluster; `kubelet` and `kube_proxy` are configuration fields as upstream spells them.

    `control_plane_taint` keeps pods away from control planes. Left out, only those control planes
    take pods that are in a GPU pool, or all of them where pods had no node otherwise.

    `endpoint_by` is who brings the endpoint: the user (`external`), or a virtual address that
    `keepalived` moves between the control planes, with `haproxy` in front of their API servers.

    `mtu` is that of the hosts' network: pods have 50 bytes less, which flannel's VXLAN takes. Left
    out, flannel asks each host's interface.

    `etcd_data_dir` is where control planes keep etcd's data; left out, kubeadm's /var/lib/etcd. A
    cluster keeps that of its first day.

    `controller_requests` is how many requests a second each controller of kube-controller-manager
    may send, half as many more at once. Left out, the catalogue's number for a chosen add-on that
    needs more than kubeadm allows, else kubeadm's. A cluster keeps that of its first day.
    """

    version: Annotated[str, Field(pattern=r"^1\.[0-9]+(\.[0-9]+)?$")] | None = None
    endpoint: Annotated[str, Field(pattern=ENDPOINT)]
    endpoint_by: Literal["external", "keepalived", "haproxy"] = "external"
    control_plane_taint: bool | None = None
    cni: Literal["flannel", "cilium"] = "flannel"
    pod_subnet: Annotated[str, Field(pattern=CIDR)] = "10.244.0.0/16"
    service_subnet: Annotated[str, Field(pattern=CIDR)] = "10.96.0.0/12"
    mtu: Annotated[int, Field(ge=1280, le=65535)] | None = None
    etcd_data_dir: Annotated[str, Field(pattern=FOLDER)] | None = None
    kubelet: dict[str, Any] = {}
    kube_proxy: dict[str, Any] = {}
    controller_requests: Annotated[int, Field(ge=1, le=10_000)] | None = None
    ignore_preflight: list[str] = []
