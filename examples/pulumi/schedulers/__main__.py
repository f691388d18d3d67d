"""JobSet's controller, two teams' queues, and packed shares of GPUs, on a cluster that is there.

Needs: charts of JobSet and Kueue, each with its image of the same version; for queues, nodes that
have the label `bedplate.io/pool: train` and a device plugin; for packed shares, nodes whose GPUs no
device plugin and no DRA driver offers.
Makes: the release `jobset` in `jobset-system`; where GPUs are queued, the release `kueue` in
`kueue-system` with namespaces, quotas and policies of two teams, which share the pool `train`;
where nodes are named, the scheduler `bedplate-packing` with its policies, and a label on each node.
A pod asks for thousandths of a GPU by `bedplate.io/gpu-milli`.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.schedulers.jobset import JobSets
from bedplate.components.schedulers.kueue import Kueue, PoolArgs, QueuesArgs, Quota, Team
from bedplate.components.schedulers.packing import Packing

GPU = "nvidia.com/gpu"

config = pulumi.Config()
kubeconfig = Path(config.require("kubeconfig")).expanduser().read_text(encoding="utf-8")
provider = kubernetes.Provider("cluster", kubeconfig=pulumi.Output.secret(kubeconfig))
below = pulumi.ResourceOptions(providers=[provider])

jobset = {"chart": config.require("chart"), "image": config.require("image")}
sets = JobSets("jobset", jobset, below)
if gpus := config.get_int("queued"):
    half = {"train": {GPU: Quota(guaranteed=gpus // 2)}}
    teams = {
        "vision": Team(namespaces=["vision"], members=["ada"], gpus=half),
        "speech": Team(namespaces=["speech"], members=["group:speech"], gpus=half),
    }
    pools, api = {"train": PoolArgs({GPU: gpus})}, config.get("mutatingApi")
    wanted = QueuesArgs(teams, pools, jobsets=True, mutating_api=api)
    kueue = {"chart": config.require("kueueChart"), "image": config.require("kueueImage")}
    after = pulumi.ResourceOptions(providers=[provider], depends_on=[sets])
    pulumi.export("teams", Kueue("kueue", {**kueue, "queues": wanted}, after).queues)
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
