"""GPU nodes of a cluster that is there: runtime, labels, NCCL's variables, DRA's classes.

Needs: Kubernetes 1.34 or newer; on the nodes NVIDIA's driver and containerd with the container
toolkit's runtime `nvidia`; the namespaces; for claims of devices, NVIDIA's DRA driver.
Makes: the RuntimeClass `nvidia`, the labels, a ConfigMap `nccl-POOL` in each namespace, and the
DeviceClasses `gpu.nvidia.com` and `gpu-memory.nvidia.com`.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.schedulers.dra import Dra
from bedplate.components.schedulers.nccl import NcclDefaults
from bedplate.components.schedulers.node_labels import NodeLabels
from bedplate.components.schedulers.runtime_class import GpuRuntime

config = pulumi.Config()
kubeconfig = Path(config.require("kubeconfig")).expanduser().read_text(encoding="utf-8")
provider = kubernetes.Provider("cluster", kubeconfig=pulumi.Output.secret(kubeconfig))
below = pulumi.ResourceOptions(providers=[provider])

GpuRuntime("nvidia", {"handler": "nvidia"}, below)
labels = NodeLabels("gpus", {"labels": config.require_object("labels")}, below)
NcclDefaults(
    "nccl",
    {
        "settings": config.get_object("nccl") or {},
        "namespaces": config.get_object("namespaces") or [],
    },
    below,
)
# Limits of memory need a driver and a container toolkit that hold them: see docs/sharing.md.
Dra("dra", {"limited": False}, below)

pulumi.export("labels", labels.applied)
