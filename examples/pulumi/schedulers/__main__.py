"""JobSet's controller and packed shares of GPUs, on a cluster that is there.

Needs: JobSet's chart and its image of the same version; for packed shares, nodes whose GPUs no
device plugin and no DRA driver offers.
Makes: the release `jobset` in `jobset-system`; where nodes are named, the scheduler
`bedplate-packing` with its policies, and a label on each node. A pod asks for thousandths of a GPU
by `bedplate.io/gpu-milli`.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.schedulers.jobset import JobSets
from bedplate.components.schedulers.packing import Packing

config = pulumi.Config()
kubeconfig = Path(config.require("kubeconfig")).expanduser().read_text(encoding="utf-8")
provider = kubernetes.Provider("cluster", kubeconfig=pulumi.Output.secret(kubeconfig))
below = pulumi.ResourceOptions(providers=[provider])

JobSets("jobset", {"chart": config.require("chart"), "image": config.require("image")}, below)
if packed := config.get_object("packed"):
    packing = Packing(
        "packing",
        {
            "scheduler_image": config.require("schedulerImage"),
            "python_image": config.require("pythonImage"),
            "nodes": packed,
        },
        below,
    )
    pulumi.export("scheduler", packing.scheduler)
