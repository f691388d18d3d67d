"""DRA without hosts: slices as NVIDIA's driver 0.5.0 publishes them, and pods that claim."""

from __future__ import annotations

from typing import Any

from bedplate.components.schedulers.dra import SHARE
from bedplate.portable.dra import DRIVER

VERSION = "resource.k8s.io/v1"


def gpu(number: int, memory: str) -> dict[str, Any]:
    """Return one GPU with shares by memory."""
    policy = {"default": memory, "validRange": {"min": "1Mi", "max": memory, "step": "1Mi"}}
    return {
        "name": f"gpu-{number}",
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{number}"}},
        "capacity": {"memory": {"value": memory, "requestPolicy": policy}},
    }


def resource_slice(node: str, gpus: int, memory: str = "15Gi") -> dict[str, Any]:
    """Return the slice of a node."""
    return {
        "apiVersion": VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [gpu(number, memory) for number in range(gpus)],
        },
    }


def template(
    namespace: str, name: str, memory: str | None, device_class: str = SHARE
) -> dict[str, Any]:
    """Return a template of claims on one GPU, or on a share of one."""
    exactly: dict[str, Any] = {"deviceClassName": device_class}
    if memory is not None:
        exactly["capacity"] = {"requests": {"memory": memory}}
    return {
        "apiVersion": VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def claim(of: dict[str, Any]) -> dict[str, Any]:
    """Return a claim of its own, with what a template asks for."""
    return {**of, "kind": "ResourceClaim", "spec": of["spec"]["spec"]}


def pod(namespace: str, name: str, *templates: str, **env: str) -> dict[str, Any]:
    """Return a pod with one container that has a claim by each template."""
    names = [f"gpu{number}" for number in range(len(templates))]
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.invalid/none",
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"claims": [{"name": one} for one in names]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [container],
            "resourceClaims": [
                {"name": one, "resourceClaimTemplateName": of}
                for one, of in zip(names, templates, strict=True)
            ],
        },
    }
