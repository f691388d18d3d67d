"""Frameworks: for now one job that asks for a GPU and prints what it got."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate import stackconfig, stackrefs
from bedplate.cluster import artifact
from bedplate.frameworks.smoke import JOB, Smoke

NAMESPACE = "bedplate-smoke"

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)
cluster = stackrefs.cluster()
provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
smoke = Smoke(
    "smoke",
    {
        "namespace": NAMESPACE,
        "image": artifact.image(config.site, lock, "smoke"),
        "resource": "nvidia.com/gpu",
        "kubeconfig": cluster.kubeconfig,
    },
    pulumi.ResourceOptions(providers=[provider]),
)

pulumi.export("logs", smoke.log)
pulumi.export("read_logs", f"kubectl --namespace {NAMESPACE} logs job/{JOB}")
