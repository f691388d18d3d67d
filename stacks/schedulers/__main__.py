"""Schedulers: NVIDIA's runtime by name, and what the nodes are as their labels."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate import stackconfig, stackrefs
from bedplate.cluster.wished import gpus
from bedplate.schedulers.node_labels import NodeLabels, discovered
from bedplate.schedulers.runtime_class import GpuRuntime
from bedplate.schedulers.topology import node_labels

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)
cluster = stackrefs.cluster()

provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
below = pulumi.ResourceOptions(providers=[provider])
GpuRuntime("nvidia", {"handler": "nvidia"}, below)
found = discovered(config.site, gpus(lock))
labels = NodeLabels("gpus", {"labels": node_labels(lock, found)}, below)

pulumi.export("labels", labels.applied)
