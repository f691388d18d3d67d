"""kubeadm's configuration documents (v1beta4), rendered from typed inputs. Pure functions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.portable import encryption_keys
from bedplate.provider.errors import ProviderError, message
from bedplate.provider.model import CRI_SOCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.provider.model import ControlPlaneInputs, Machine, Taint

DEFAULT_PORT = 6443
API = "kubeadm.k8s.io/v1beta4"


@dataclass(frozen=True)
class Invitation:
    """What a host needs to join: made when used, never kept in state."""

    token: str
    ca_hash: str
    certificate_key: str | None = None


def init_config(inputs: ControlPlaneInputs) -> str:
    """Return the documents for `kubeadm init` on the first control plane."""
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": API,
            "kind": "InitConfiguration",
            "localAPIEndpoint": _api_address(inputs.host, inputs.endpoint),
            "nodeRegistration": _registration(
                inputs.host.name, inputs.cri_socket, taint=inputs.taint
            ),
        },
        {
            "apiVersion": API,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": f"v{inputs.version}",
            "controlPlaneEndpoint": inputs.endpoint,
            "networking": {
                "podSubnet": inputs.pod_subnet,
                "serviceSubnet": inputs.service_subnet,
            },
            "etcd": {"local": {"imageTag": inputs.etcd_image_tag, "dataDir": inputs.etcd_data_dir}},
            "dns": {"imageTag": inputs.dns_image_tag},
            "apiServer": {
                "extraArgs": [{"name": encryption_keys.OPTION, "value": encryption_keys.FILE}]
            },
            **_controllers(inputs.controller_requests),
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # The runtime's cgroups are systemd's; what the site wishes comes on top.
            "cgroupDriver": "systemd",
            **inputs.kubelet,
        },
    ]
    if inputs.kube_proxy:
        documents.append(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                **inputs.kube_proxy,
            }
        )
    return yaml.safe_dump_all(documents, sort_keys=False)


def join_config(
    host: Machine,
    endpoint: str,
    invitation: Invitation,
    *,
    cri_socket: str = CRI_SOCKET,
    taint: bool = True,
    taints: Sequence[Taint] = (),
) -> str:
    """Return the document for `kubeadm join`; with a certificate key as a control plane.

    *cri_socket* is where the host's container runtime listens.

    Without *taint* a control plane takes pods; a worker has none in any case. *taints* are a
    worker's own: with them it registers, so that no pod comes before them.
    """
    document: dict[str, Any] = {
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": endpoint,
                "token": invitation.token,
                "caCertHashes": [invitation.ca_hash],
            }
        },
        "nodeRegistration": _registration(host.name, cri_socket, taint=taint),
    }
    if taints:
        document["nodeRegistration"]["taints"] = [one.model_dump() for one in taints]
    if invitation.certificate_key:
        document["controlPlane"] = {
            "certificateKey": invitation.certificate_key,
            "localAPIEndpoint": _api_address(host, endpoint),
        }
    return yaml.safe_dump(document, sort_keys=False)


def read_invitation(join_command: str, certificate_key: str | None = None) -> Invitation:
    """Read `kubeadm token create --print-join-command`'s line.

    Raises ProviderError when it is none: kubeadm may have printed only warnings.
    """
    words = join_command.split()
    try:
        token = words[words.index("--token") + 1]
        ca_hash = words[words.index("--discovery-token-ca-cert-hash") + 1]
    except (ValueError, IndexError):
        raise ProviderError(
            message(
                "no join command from kubeadm",
                "first control plane",
                f"{len(words)} words without --token",
                "`kubeadm join …`",
                "see `kubeadm token create --print-join-command` on that host",
            )
        ) from None
    return Invitation(token, ca_hash, certificate_key)


def _controllers(requests: int) -> dict[str, Any]:
    """Return a limit of requests for each controller; 0 leaves kubeadm's own."""
    if not requests:
        return {}
    # At once half as many more may leave, as by kubeadm's own limits of 20 and 30.
    flags = {"kube-api-qps": requests, "kube-api-burst": requests * 3 // 2}
    return {
        "controllerManager": {
            "extraArgs": [{"name": name, "value": str(value)} for name, value in flags.items()]
        }
    }


def _registration(node: str, cri_socket: str, *, taint: bool) -> dict[str, Any]:
    # Only an empty list says "none": without the field kubeadm sets its own taint.
    return {"name": node, "criSocket": cri_socket} | ({} if taint else {"taints": []})


def _api_address(host: Machine, endpoint: str) -> dict[str, Any]:
    """Return where this control plane's own API server listens.

    Behind a load balancer that is kubeadm's default port, whatever the balancer's; kubeadm finds an
    address itself where the host is known by name only.
    """
    name, port = endpoint.rsplit(":", 1)
    own = name.strip("[]") in (host.address, host.node_ip)
    listen: dict[str, Any] = {"bindPort": int(port) if own else DEFAULT_PORT}
    with suppress(ValueError):
        listen["advertiseAddress"] = str(ip_address(host.node_ip or host.address))
    return listen
