"""The smallest workload: one job that asks for a GPU and says what it got."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.frameworks import pod_log
from bedplate.components.refs import MANAGED

JOB = "nvidia-smi"


class SmokeArgs(TypedDict):
    """Inputs of a Smoke."""

    namespace: str
    """Namespace of the job; it is made."""
    image: str
    """Image with a C library: nvidia-smi itself comes from the host, by CDI."""
    resource: str
    """Extended resource to ask for."""
    kubeconfig: pulumi.Input[str]
    """For reading the pod's log."""
    tolerations: NotRequired[list[dict[str, str]]]
    """What the pod tolerates: the taints of the pools."""


class Smoke(pulumi.ComponentResource):  # type: ignore[misc]
    """A namespace and a job in it; the stack waits for the job and fails with it."""

    log: pulumi.Output[str]

    def __init__(
        self, name: str, args: SmokeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:frameworks:Smoke", name, None, opts)
        namespace = kubernetes.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": args["namespace"], "labels": MANAGED},
            opts=pulumi.ResourceOptions(parent=self),
        )
        container = {
            "name": JOB,
            "image": args["image"],
            "command": ["nvidia-smi", "-L"],
            "resources": {"limits": {args["resource"]: "1"}},
        }
        job = kubernetes.batch.v1.Job(
            f"{name}-job",
            metadata={"name": JOB, "namespace": namespace.metadata["name"], "labels": MANAGED},
            spec={
                "backoff_limit": 0,
                "template": {
                    "metadata": {"labels": MANAGED},
                    "spec": {
                        "restart_policy": "Never",
                        "containers": [container],
                        # Of any pool: whatever node has a GPU to spare is as good.
                        **({"tolerations": found} if (found := args.get("tolerations")) else {}),
                    },
                },
            },
            opts=pulumi.ResourceOptions(
                parent=self, custom_timeouts=pulumi.CustomTimeouts(create="5m")
            ),
        )
        # By its id, which a preview of a new job does not know: then there is no log to ask for.
        log = pulumi.Output.all(args["kubeconfig"], job.metadata["name"], job.id).apply(
            lambda found: pod_log.of_job(found[0], args["namespace"], found[1])
        )
        # The kubeconfig made it a secret; what the job printed is none.
        self.log = pulumi.Output.unsecret(log)
        self.register_outputs({"log": self.log})
