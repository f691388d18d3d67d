"""Schedulers: NVIDIA's runtime by name, and what the GPUs are as labels of their nodes."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate import stackconfig, stackrefs
from bedplate.cluster.wished import gpus
from bedplate.schedulers.node_labels import NodeLabels, discovered
from bedplate.schedulers.runtime_class import GpuRuntime

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)
cluster = stackrefs.cluster()

provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
below = pulumi.ResourceOptions(providers=[provider])
GpuRuntime("nvidia", {"handler": "nvidia"}, below)
labels = NodeLabels("gpus", {"labels": discovered(config.site, gpus(lock))}, below)

pulumi.export("labels", labels.applied)
