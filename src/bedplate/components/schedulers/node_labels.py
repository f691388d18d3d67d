"""What the site and the hosts say of the nodes, as labels of their Node objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components import later
from bedplate.components.config import StackError, found_in
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BY_GFD = "nvidia.com/"
# The moment of the discovery is no property of the node, and would differ after every run.
NOT_A_PROPERTY = frozenset({"nvidia.com/gfd.timestamp"})


class NodeLabelsArgs(TypedDict):
    """Inputs of NodeLabels."""

    labels: dict[str, dict[str, str]]
    """Labels by the node's name."""


class NodeLabels(pulumi.ComponentResource):  # type: ignore[misc]
    """Labels on Node objects, by server-side apply, and read back from the API's answer."""

    applied: pulumi.Output[dict[str, int]]

    def __init__(
        self, name: str, args: NodeLabelsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:NodeLabels", name, None, opts)
        counts: dict[str, pulumi.Output[int]] = {}
        for node, labels in sorted(args["labels"].items()):
            patch = kubernetes.core.v1.NodePatch(
                f"{name}-{node}",
                metadata={
                    "name": node,
                    "labels": labels,
                    "annotations": {"pulumi.com/patchForce": "true"},
                },
                # A patch is taken back by applying less of it, and an apply makes what is not
                # there: for a node that has left, that would be a Node object without a host.
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
            )
            counts[node] = patch.metadata.apply(
                lambda found, node=node, labels=labels: asserted(
                    node, labels, dict(found.labels or {})
                )
            )
        self.applied = pulumi.Output.all(**counts)
        self.register_outputs({"applied": self.applied})


def asserted(node: str, wished: dict[str, str], found: dict[str, str]) -> int:
    """Return how many labels a Node object has of the wished ones: all, or StackError."""
    wrong = {key: found.get(key) for key, value in wished.items() if found.get(key) != value}
    if wrong:
        raise StackError(
            problem(
                "labels did not reach the node",
                f"Node {node}",
                str(wrong),
                str({key: wished[key] for key in wrong}),
                "see who else manages these labels: "
                f"`kubectl get node {node} --show-managed-fields -o yaml`",
            )
        )
    return len(wished)


def discovered(site: Path, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the labels that verify has written for each GPU host, by GPU feature discovery
    and by its own look at NUMA nodes and network cards.

    Raises StackError, naming every host without any.
    """
    found: dict[str, dict[str, str]] = {}
    missing: list[str] = []
    for host in hosts:
        path = site / ".bedplate" / "evidence" / f"host-{host}.json"
        labels = found_in(path, "labels")
        found[host] = {key: str(value) for key, value in labels.items()}
        found[host] = {k: v for k, v in found[host].items() if k not in NOT_A_PROPERTY}
        if not any(key.startswith(BY_GFD) for key in found[host]):
            missing.append(host)
    if later.only_shown():
        read = {f"{BY_GFD}gpu.*": later.placeholder("by verify")}
        return found | {host: found[host] | read for host in missing}
    if missing:
        raise StackError(
            problem(
                "no labels of GPU feature discovery",
                f"{site}/.bedplate/evidence",
                f"none for {', '.join(missing)}",
                "labels for every GPU host",
                "run `ansible-playbook bedplate.gpu.verify` on the site first",
            )
        )
    return found
