"""Frameworks: for now one job that asks for a GPU and prints what it got."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate import stackrefs
from bedplate.frameworks.smoke import JOB, Smoke

NAMESPACE = "bedplate-smoke"

cluster = stackrefs.cluster()
provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
smoke = Smoke(
    "smoke",
    {
        "namespace": NAMESPACE,
        "image": "docker.io/library/debian:12-slim",
        "resource": "nvidia.com/gpu",
        "kubeconfig": cluster.kubeconfig,
    },
    pulumi.ResourceOptions(providers=[provider]),
)

pulumi.export("logs", smoke.log)
pulumi.export("read_logs", f"kubectl --namespace {NAMESPACE} logs job/{JOB}")
