"""A team's job on GPUs, through its queue, on a cluster that is there.

Needs: Kueue with the team `vision` and a quota of the pool `train`, as the program `schedulers`
makes them; an image by its digest, with the program and PyTorch.
Makes: in the namespace `vision` the Job `train`, whose pods torchrun joins, and a Service with
their names. `pulumi up` is done when the job is in the queue.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.frameworks.jobs import JobPool, JobsArgs
from bedplate.components.frameworks.training import TrainingJob
from bedplate.components.schedulers.kueue import Quota, Team

GPU = "nvidia.com/gpu"

config = pulumi.Config()
kubeconfig = Path(config.require("kubeconfig")).expanduser().read_text(encoding="utf-8")
provider = kubernetes.Provider("cluster", kubeconfig=pulumi.Output.secret(kubeconfig))

quota = {"train": {GPU: Quota(guaranteed=config.require_int("quota"))}}
teams = {"vision": Team(namespaces=["vision"], gpus=quota)}
pools = {"train": JobPool({GPU: config.require_int("gpus")}, config.require_int("nodes"))}
job = TrainingJob(
    "train",
    {
        "cluster": JobsArgs(teams, pools),
        "team": "vision",
        "form": "torchrun",
        "image": config.require("image"),
        "command": config.require_object("command"),
        "pods": config.require_int("nodes"),
        "gpus": config.require_int("gpus"),
        "time_limit": "8h",
    },
    pulumi.ResourceOptions(providers=[provider]),
)

pulumi.export("job", job.job)
