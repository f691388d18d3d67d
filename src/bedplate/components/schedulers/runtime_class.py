"""The RuntimeClass by which pods choose NVIDIA's runtime."""

from __future__ import annotations

from typing import TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.refs import MANAGED


class GpuRuntimeArgs(TypedDict):
    """Inputs of a GpuRuntime."""

    handler: str
    """Name of the runtime in containerd's configuration; the class has the same."""


class GpuRuntime(pulumi.ComponentResource):  # type: ignore[misc]
    """A RuntimeClass for workloads that want NVIDIA's runtime by name."""

    def __init__(
        self, name: str, args: GpuRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:GpuRuntime", name, None, opts)
        kubernetes.node.v1.RuntimeClass(
            f"{name}-class",
            metadata={"name": args["handler"], "labels": MANAGED},
            handler=args["handler"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
