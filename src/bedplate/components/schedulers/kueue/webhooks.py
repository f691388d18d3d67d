"""What Kueue's webhooks are asked about: work with GPUs, and work that names a queue.

Kueue gives the queue `default` to whatever is submitted in a team's namespace. Where it chooses
nodes, it never admits a pod without requests (`no TAS flavor assigned`, seen with 0.19.2); in a
queue of strict order one such pod holds up its whole team. What asks for no GPU would wait behind
what does, too. Processors and memory are the nodes' matter: this work starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.components.schedulers.kueue.devices import gpus
from bedplate.components.schedulers.kueue.objects import QUEUE_LABEL, Object

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.args import QueuesArgs

#: The names that Kueue's chart gives them, and where the pod is in what they see.
CONFIGURATION: Final = "kueue-mutating-webhook-configuration"
HOOKS: Final = {
    "mpod.kb.io": "object.spec",
    "mjob.kb.io": "object.spec.template.spec",
    "mdeployment.kb.io": "object.spec.template.spec",
    "mstatefulset.kb.io": "object.spec.template.spec",
}


def patch(args: QueuesArgs) -> Object:
    """Return the fields that the chart's object gets in addition."""
    named = f"(has(object.metadata.labels) && '{QUEUE_LABEL}' in object.metadata.labels)"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [
            {
                "name": name,
                "matchConditions": [
                    {
                        "name": "asks-for-gpus-or-names-a-queue",
                        "expression": f"{named} || {gpus(where, args)}",
                    }
                ],
            }
            for name, where in HOOKS.items()
        ],
    }
