"""kubeadm's documents from typed inputs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bedplate.provider import kubeadm
from bedplate.provider.errors import ProviderError
from bedplate.provider.model import ControlPlaneInputs, Machine

CP1 = Machine(name="cp1", address="192.0.2.1")


def inputs(**more: Any) -> ControlPlaneInputs:
    """Return inputs of a first control plane."""
    plain: dict[str, Any] = {
        "host": CP1,
        "version": "1.36.3",
        "endpoint": "192.0.2.1:6443",
        "pod_subnet": "10.244.0.0/16",
        "service_subnet": "10.96.0.0/12",
        "etcd_image_tag": "3.6.8-0",
        "dns_image_tag": "v1.14.2",
    }
    return ControlPlaneInputs(**(plain | more))


def documents(text: str) -> dict[str, dict[str, Any]]:
    """Return documents by kind."""
    return {found["kind"]: found for found in yaml.safe_load_all(text)}


def test_init_says_what_the_lock_says() -> None:
    found = documents(kubeadm.init_config(inputs()))
    assert found.keys() == {"InitConfiguration", "ClusterConfiguration", "KubeletConfiguration"}
    assert found["InitConfiguration"]["localAPIEndpoint"] == {
        "bindPort": 6443,
        "advertiseAddress": "192.0.2.1",
    }
    assert found["InitConfiguration"]["nodeRegistration"] == {
        "name": "cp1",
        "criSocket": "unix:///run/containerd/containerd.sock",
    }
    assert found["ClusterConfiguration"] == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": "v1.36.3",
        "controlPlaneEndpoint": "192.0.2.1:6443",
        "networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/12"},
        "etcd": {"local": {"imageTag": "3.6.8-0", "dataDir": "/var/lib/etcd"}},
        "dns": {"imageTag": "v1.14.2"},
        "apiServer": {
            "extraArgs": [
                {
                    "name": "encryption-provider-config",
                    "value": "/etc/kubernetes/pki/encryption.json",
                }
            ]
        },
    }
    assert found["KubeletConfiguration"]["cgroupDriver"] == "systemd"


def test_kubelet_is_led_to_the_sites_container_runtime() -> None:
    crio = "unix:///run/crio/crio.sock"
    found = documents(kubeadm.init_config(inputs(cri_socket=crio)))
    assert found["InitConfiguration"]["nodeRegistration"]["criSocket"] == crio
    text = kubeadm.join_config(
        CP1, "k8s.example:6443", kubeadm.Invitation("a.b", "sha256:00"), cri_socket=crio
    )
    assert yaml.safe_load(text)["nodeRegistration"]["criSocket"] == crio


def test_etcd_keeps_its_data_where_the_site_says() -> None:
    found = documents(kubeadm.init_config(inputs(etcd_data_dir="/srv/etcd")))
    assert found["ClusterConfiguration"]["etcd"]["local"]["dataDir"] == "/srv/etcd"


@pytest.mark.parametrize("endpoint", ["10.0.0.1:7443", "192.0.2.1:7443"])
def test_a_control_plane_listens_where_the_other_nodes_reach_it(endpoint: str) -> None:
    host = Machine(name="cp1", address="192.0.2.1", node_ip="10.0.0.1")
    found = documents(kubeadm.init_config(inputs(host=host, endpoint=endpoint)))
    assert found["InitConfiguration"]["localAPIEndpoint"] == {
        "bindPort": 7443,
        "advertiseAddress": "10.0.0.1",
    }


def test_controllers_may_send_what_the_lock_says_and_half_as_much_more_at_once() -> None:
    (document,) = [
        one
        for one in yaml.safe_load_all(kubeadm.init_config(inputs(controller_requests=40)))
        if one["kind"] == "ClusterConfiguration"
    ]
    assert document["controllerManager"]["extraArgs"] == [
        {"name": "kube-api-qps", "value": "40"},
        {"name": "kube-api-burst", "value": "60"},
    ]


def test_the_sites_kubelet_and_proxy_fields_come_through() -> None:
    found = documents(
        kubeadm.init_config(
            inputs(kubelet={"failSwapOn": False}, kube_proxy={"conntrack": {"min": 0}})
        )
    )
    assert found["KubeletConfiguration"]["failSwapOn"] is False
    assert found["KubeProxyConfiguration"] == {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "conntrack": {"min": 0},
    }


def test_a_control_plane_that_takes_pods_is_registered_without_a_taint() -> None:
    found = documents(kubeadm.init_config(inputs(taint=False)))
    assert found["InitConfiguration"]["nodeRegistration"]["taints"] == []
    invited = kubeadm.Invitation("a.b", "sha256:00", "f" * 64)
    text = kubeadm.join_config(CP1, "k8s.example:6443", invited, taint=False)
    assert yaml.safe_load(text)["nodeRegistration"]["taints"] == []
    text = kubeadm.join_config(CP1, "k8s.example:6443", invited)
    assert "taints" not in yaml.safe_load(text)["nodeRegistration"]


def test_behind_a_balancer_the_api_keeps_its_own_port() -> None:
    found = documents(kubeadm.init_config(inputs(endpoint="k8s.example:443")))
    assert found["InitConfiguration"]["localAPIEndpoint"]["bindPort"] == 6443


def test_a_worker_joins_with_token_and_pinned_authority() -> None:
    (found,) = yaml.safe_load_all(
        kubeadm.join_config(CP1, "k8s.example:6443", kubeadm.Invitation("a.b", "sha256:00"))
    )
    assert found["discovery"]["bootstrapToken"] == {
        "apiServerEndpoint": "k8s.example:6443",
        "token": "a.b",
        "caCertHashes": ["sha256:00"],
    }
    assert "controlPlane" not in found


def test_another_control_plane_joins_with_the_certificates_key() -> None:
    host = Machine(name="cp2", address="cp2.example")
    text = kubeadm.join_config(
        host, "k8s.example:6443", kubeadm.Invitation("a.b", "sha256:00", "f" * 64)
    )
    assert yaml.safe_load(text)["controlPlane"] == {
        "certificateKey": "f" * 64,
        "localAPIEndpoint": {"bindPort": 6443},
    }


def test_invitation_is_read_from_kubeadms_line() -> None:
    line = "W1121 warning\nkubeadm join x:6443 --token a.b --discovery-token-ca-cert-hash sha256:1"
    assert kubeadm.read_invitation(line) == kubeadm.Invitation("a.b", "sha256:1")


def test_no_invitation_is_an_error_that_says_so() -> None:
    with pytest.raises(ProviderError) as caught:
        kubeadm.read_invitation("W1121 nothing else")
    assert str(caught.value) == (
        "no join command from kubeadm — first control plane — got 3 words without --token / "
        "allowed `kubeadm join …` — see `kubeadm token create --print-join-command` on that host"
    )
