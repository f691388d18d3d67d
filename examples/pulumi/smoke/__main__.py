"""A job that asks for a GPU and says what it got, on a cluster that is there.

Needs: a node with a free GPU that a device plugin offers, whose container runtime brings nvidia-smi
into containers by CDI; `kubectl logs` is not needed, since the program reads the pod's log itself.
Makes: a namespace and in it the Job `nvidia-smi`; `pulumi up` waits for it and fails with it.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.frameworks.smoke import Smoke

config = pulumi.Config()
kubeconfig = pulumi.Output.secret(
    Path(config.require("kubeconfig")).expanduser().read_text(encoding="utf-8")
)
provider = kubernetes.Provider("cluster", kubeconfig=kubeconfig)

smoke = Smoke(
    "smoke",
    {
        "namespace": config.get("namespace") or "gpu-smoke",
        "image": config.require("image"),
        "resource": config.get("resource") or "nvidia.com/gpu",
        "kubeconfig": kubeconfig,
        # Taints of GPU nodes, in the form of a pod's tolerations.
        "tolerations": config.get_object("tolerations") or [],
    },
    pulumi.ResourceOptions(providers=[provider]),
)

pulumi.export("logs", smoke.log)
