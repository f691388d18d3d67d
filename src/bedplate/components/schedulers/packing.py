"""Shares of GPUs that Bedplate's extender counts: its scheduler, its policies, its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.cluster.manifest import token
from bedplate.components.schedulers.packing_config import NAME
from bedplate.components.schedulers.packing_objects import REPLICAS, objects
from bedplate.pods.packing.state import LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping


class PackingArgs(TypedDict):
    """Inputs of a Packing."""

    scheduler_image: str
    """kube-scheduler of the cluster's version."""
    python_image: str
    """An image with Python 3.10 or newer as `python3`; nothing else of it is used."""
    nodes: Mapping[str, int]
    """GPUs by node. No device plugin and no DRA driver may offer them too."""
    replicas: NotRequired[int]
    """Instances, two by default; one decides."""


class Packing(pulumi.ComponentResource):  # type: ignore[misc]
    """The scheduler `bedplate-packing`; pods that ask for bedplate.io/gpu-milli are its own."""

    scheduler: pulumi.Output[str]

    def __init__(
        self, name: str, args: PackingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Packing", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        replicas = args.get("replicas", REPLICAS)
        for found in objects(args["scheduler_image"], args["python_image"], replicas):
            kind, called = found["kind"].lower(), found["metadata"]["name"]
            pulumi.CustomResource(token(found), f"{name}-{kind}-{called}", found, below)
        for node, gpus in sorted(args["nodes"].items()):
            kubernetes.core.v1.NodePatch(
                f"{name}-{node}",
                metadata={
                    "name": node,
                    "labels": {LABEL: str(gpus)},
                    "annotations": {"pulumi.com/patchForce": "true"},
                },
                # As for all labels of nodes: less of a patch would make the Node of one that left.
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
            )
        self.scheduler = pulumi.Output.from_input(NAME)
        self.register_outputs({"scheduler": self.scheduler})
