"""Workloads as dictionaries: jobs whose pods run for as long as they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.schedulers.kubelets import SECONDS
from tests.schedulers.nodes import GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE = "registry.k8s.io/pause:3.10.2"  # never pulled


def pod_spec(
    gpus: float, selector: Mapping[str, str] | None = None, resource: str = GPU
) -> dict[str, Any]:
    """Return a pod's specification with one container that asks for GPUs."""
    resources = {"cpu": "100m", "memory": "100Mi", **({resource: str(gpus)} if gpus else {})}
    container = {
        "name": "main",
        "image": IMAGE,
        "resources": {"requests": resources, "limits": resources},
    }
    return {
        "containers": [container],
        "restartPolicy": "Never",
        **({"nodeSelector": dict(selector)} if selector else {}),
    }


def job(
    name: str,
    namespace: str,
    *,
    gpus: int = 1,
    pods: int = 1,
    seconds: float | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    resource: str = GPU,
) -> dict[str, Any]:
    """Return a Job of `pods` pods at a time; `labels` are its own, `annotations` its pods'."""
    told = {SECONDS: str(seconds)} if seconds is not None else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 1000,
            "template": {
                "metadata": {"annotations": {**told, **(annotations or {})}},
                "spec": pod_spec(gpus, selector, resource),
            },
        },
    }
