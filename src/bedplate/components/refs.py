"""What the stacks pass to each other, in one typed contract.

The cluster stack exports it, the upper stacks read it; nothing else crosses between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypedDict

import pulumi

from bedplate.components.config import StackError
from bedplate.portable.message import problem

CLUSTER_PROJECT: Final = "bedplate-cluster"
# What the upper stacks make carries this label: the cluster refuses to go while it finds any.
MANAGED: Final = {"app.kubernetes.io/managed-by": "bedplate"}


class ClusterOutputs(TypedDict):
    """Outputs of the cluster stack."""

    kubeconfig: pulumi.Output[str]
    """The administrator's kubeconfig; a secret."""
    endpoint: pulumi.Output[str]
    """HOST:PORT of the API."""
    nodes: pulumi.Output[list[str]]
    """Names of the workers that have joined."""


@dataclass(frozen=True)
class ClusterRef:
    """The cluster as the upper stacks see it."""

    kubeconfig: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    nodes: pulumi.Output[list[str]]


def export_cluster(outputs: ClusterOutputs) -> None:
    """Export the cluster stack's part of the contract."""
    for key, value in outputs.items():
        pulumi.export(key, value)


def cluster(name: str | None = None) -> ClusterRef:
    """Return the outputs of the cluster stack of the same site.

    An output that is missing ends the program with the stack that must be brought up first.
    """
    stack = name or f"{pulumi.get_organization()}/{CLUSTER_PROJECT}/{pulumi.get_stack()}"
    reference = pulumi.StackReference(stack)
    return ClusterRef(
        kubeconfig=pulumi.Output.secret(_required(reference, stack, "kubeconfig")),
        endpoint=_required(reference, stack, "endpoint"),
        nodes=_required(reference, stack, "nodes"),
    )


def _required(reference: pulumi.StackReference, stack: str, key: str) -> pulumi.Output[Any]:
    def check(value: object) -> object:
        if value is None:
            raise StackError(
                problem(
                    "an output is missing",
                    f"stack {stack}",
                    f"no `{key}`",
                    "the outputs of a cluster that is up",
                    "run `pulumi up` in stacks/cluster first",
                )
            )
        return value

    return reference.get_output(key).apply(check)
