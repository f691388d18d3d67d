"""Schedulers: what the nodes are, as their labels, and what shares their GPUs among workloads."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components import config as stackconfig
from bedplate.components import refs as stackrefs
from bedplate.components.cluster.wished import gpus
from bedplate.components.frameworks.accounting import Accounting, accounting_args
from bedplate.components.schedulers.dra import Dra, dra_args
from bedplate.components.schedulers.jobset import JobSets, jobsets_args
from bedplate.components.schedulers.kueue import Kueue, kueue_args
from bedplate.components.schedulers.nccl import (
    NcclDefaults,
    NcclDefaultsArgs,
    namespaces_of,
    settings_of,
)
from bedplate.components.schedulers.node_labels import NodeLabels, discovered
from bedplate.components.schedulers.runtime_class import GpuRuntime
from bedplate.components.schedulers.topology import node_labels
from bedplate.components.schedulers.volcano import Volcano, volcano_args

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)
cluster = stackrefs.cluster()

provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
below = pulumi.ResourceOptions(providers=[provider])
GpuRuntime("nvidia", {"handler": "nvidia"}, below)
found = discovered(config.site, gpus(lock))
labels = NodeLabels("gpus", {"labels": node_labels(lock, found)}, below)
if (classes := dra_args(lock)) is not None:
    Dra("dra", classes, below)
before: list[pulumi.Resource] = [labels]
if "jobset" in lock.addons:
    before.append(JobSets("jobset", jobsets_args(config.site, lock), below))
after = pulumi.ResourceOptions(providers=[provider], depends_on=before)
if "kueue" in lock.addons:
    queues = Kueue("kueue", kueue_args(config.site, lock), after)
    pulumi.export("teams", queues.queues)
    shared: NcclDefaultsArgs = {
        "settings": settings_of(config.site, lock),
        "namespaces": namespaces_of(lock),
    }
    NcclDefaults("nccl", shared, pulumi.ResourceOptions(providers=[provider], depends_on=[queues]))
    if (counted := accounting_args(config.site, lock)) is not None:
        within = pulumi.ResourceOptions(providers=[provider], depends_on=[queues])
        Accounting("accounting", counted, within)
if "volcano" in lock.addons:
    batch = Volcano("volcano", volcano_args(config.site, lock), after)
    pulumi.export("hypernodes", batch.hypernodes)

pulumi.export("labels", labels.applied)
