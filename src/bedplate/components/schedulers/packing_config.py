"""Configuration of the kube-scheduler that asks the packing extender."""

from __future__ import annotations

from typing import Any

from bedplate.pods.packing.shares import SCHEDULER

NAME = SCHEDULER
"""Name of the scheduler, which pods give as schedulerName, and of its Lease."""

NAMESPACE = "kube-system"
QUESTIONS = 10270
"""Port of the extender on the loopback address that the pod's containers share."""

TIMEOUT = "30s"
"""The extender sends a binding up to three times, five seconds each, and looks what came of it."""


def configuration(namespace: str = NAMESPACE, port: int = QUESTIONS) -> dict[str, Any]:
    """Return the fields of KubeSchedulerConfiguration that packing needs.

    The extender sees every node that fits (no sample), answers with one, and binds. It is asked
    for pods without GPUs too: they take the CPU that GPUs need. Preemption is off, because
    kube-scheduler chooses victims by the node's sum and not by GPU; queues preempt.
    """
    return {
        "leaderElection": {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceNamespace": namespace,
            "resourceName": NAME,
        },
        "profiles": [
            {
                "schedulerName": NAME,
                "percentageOfNodesToScore": 100,
                "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
        ],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{port}",
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "httpTimeout": TIMEOUT,
                "ignorable": False,
            }
        ],
    }
