"""Kueue's own configuration, and its chart's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from bedplate.components.schedulers.dra import SHARE
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object
from bedplate.lock.claims import RESOURCE

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.args import QueuesArgs

#: Fair sharing stops a workload only where its queue is left with no smaller a share than the one
#: that comes. Each such step makes the largest share smaller, so two teams can't stop each other in
#: turns; the other strategy, and the two together, have looped (kueue#7101, #14543).
STRATEGY: Final = "LessThanOrEqualToFinalShare"
#: How long pods may look for a node, pull their images and become ready, where Kueue doesn't choose
#: the node. Images of 20 GB take their time.
READY_WITHIN: Final = "30m"
#: Requests a second. A job takes ten of them (docs/proof/queues.md), so that the chart's 300 are 30
#: jobs a second at most, and a bare scheduler does more. The API server limits fairly by itself.
CLIENT: Final = {"qps": 1000, "burst": 2000}
FRAMEWORKS: Final = ("batch/job", "pod", "deployment")
JOBSET: Final = "jobset.x-k8s.io/jobset"


def configuration(args: QueuesArgs) -> Object:
    """Return the controller's configuration file."""
    found: Object = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {**CLIENT},
        # Only what lies in teams' namespaces is Kueue's: with Kueue down, all others go on.
        "managedJobsNamespaceSelector": {
            "matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]
        },
        "integrations": {"frameworks": [*FRAMEWORKS, *([JOBSET] if args.jobsets else [])]},
        # Teams have quotas of GPUs. Processors and memory are the nodes' matter.
        "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
    }
    if args.claiming:
        mapped = [{"name": RESOURCE, "deviceClassNames": [SHARE]}]
        found["resources"]["deviceClassMappings"] = mapped
    if args.preset.queue.fair_sharing:
        found["fairSharing"] = {"preemptionStrategies": [STRATEGY]}
    if not args.places_nodes:
        found["waitForPodsReady"] = {"timeout": READY_WITHIN, "blockAdmission": False}
    return found


def values(args: QueuesArgs, image: str) -> Object:
    """Return the chart's values. `image` is NAME:TAG@DIGEST: the digest decides what is pulled."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    digest = image.partition("@")[2]
    return {
        "controllerManager": {
            "replicas": args.replicas,
            "podDisruptionBudget": {"enabled": args.replicas > 1, "minAvailable": 1},
            "manager": {
                "image": {
                    "repository": repository,
                    "tag": f"{tag}@{digest}" if digest else tag,
                    "pullPolicy": "IfNotPresent",
                },
                "priorityClassName": "system-cluster-critical",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "192Mi"},
                    "limits": {"memory": "2Gi"},
                },
            },
        },
        "managerConfig": {
            "controllerManagerConfigYaml": yaml.safe_dump(configuration(args), sort_keys=False)
        },
    }
