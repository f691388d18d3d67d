"""A lock to hold machines against."""

from __future__ import annotations

from typing import Any

from bedplate.lock.model import Lock


def lock(**driver: Any) -> Lock:
    """Return a lock of one pool with host h1 and one control plane."""
    driver = {
        "version": "535.261.03", "branch": "535", "flavour": "proprietary", "source": "distro",
        "packages": {"nvidia-kernel-dkms": "535.261.03-1", "libcuda1": "535.261.03-1"},
    } | driver  # fmt: skip
    host = {"port": 22, "user": "root"}
    image = {"version": "0.20.0", "image": "i:1"}
    return Lock.model_validate({
        "format": 2, "catalogue": "c", "site_digest": "d", "sources": {"mode": "upstream"},
        "cluster": {
            "kubernetes": {
                "version": "1.36.3", "endpoint": "k8s.example:6443", "pod_subnet": "p",
                "service_subnet": "s", "kubelet": {}, "kube_proxy": {}, "ignore_preflight": [],
            },
            "etcd": {"version": "3", "image_tag": "3"},
            "coredns": {"version": "1", "image_tag": "1"},
            "pause": {"version": "3"}, "cni": {"name": "flannel", "version": "1"},
            "cni_plugins": {"version": "1"},
            "containerd": {"version": "2.1.4", "source": "archive"},
            "runc": {"source": "distro"}, "cri_tools": {"version": "1"},
            "nvidia_container_toolkit": {"version": "1.16.2", "source": "archive"},
            "nvidia_device_plugin": image,
        },
        "hosts": {
            "h1": host | {"address": "192.0.2.1", "pool": "pool_x", "groups": ["gpu_pools"]},
            "cp": host | {"address": "192.0.2.9", "pool": None, "groups": ["control_plane"]},
        },
        "pools": {"pool_x": {
            "os": "debian-12", "kind": "bare-metal", "kernel": "6.1.0-50-amd64",
            "nvidia_driver": driver, "sharing": {"mode": "none"},
        }},
    })  # fmt: skip
