"""Kueue's unmodified chart, and the teams' queues, quotas, rights and policies."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.catalogue import catalogue_of
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.schedulers.kueue import policies, queues, tenancy, webhooks
from bedplate.components.schedulers.kueue.args import QueuesArgs, queues_args
from bedplate.components.schedulers.kueue.configuration import values
from bedplate.components.schedulers.kueue.objects import NAMESPACE, Object
from bedplate.components.schedulers.release import released

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

ADDON = "kueue"


class KueueArgs(TypedDict):
    """Inputs of Kueue."""

    chart: str
    """Kueue's chart: a path from the project's folder, or an address."""
    image: str
    """The controller, as NAME:TAG or NAME:TAG@DIGEST."""
    queues: QueuesArgs
    """Teams, pools, and how work waits."""


class Kueue(pulumi.ComponentResource):  # type: ignore[misc]
    """Kueue with the queues of all teams. Namespaces stay when it goes: they hold others' work."""

    queues: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: KueueArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Kueue", name, None, opts)
        wanted = args["queues"]
        given = values(wanted, args["image"])
        release = released((self, name), (ADDON, NAMESPACE), args["chart"], given)
        objects(self, name, wanted, release)
        self.queues = pulumi.Output.from_input(sorted(wanted.teams))
        self.register_outputs({"queues": self.queues})


def kueue_args(site: Path, lock: Lock) -> KueueArgs:
    """Return what a lock decides, with its bill. Raises StackError as `artifact.chart`."""
    return {
        "chart": str(artifact.chart(site, lock, ADDON)),
        "image": artifact.image(site, lock, ADDON),
        "queues": queues_args(lock, catalogue_of(site)),
    }


def objects(
    component: pulumi.ComponentResource, name: str, args: QueuesArgs, release: pulumi.Resource
) -> None:
    """Make all that is in a running Kueue, below a component of this name and after its release."""
    asked = webhooks.patch(args)
    # The provider compares lists of a patch by their places, and finds a change each time: what
    # really changed gives the resource another name.
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    kubernetes.admissionregistration.v1.MutatingWebhookConfigurationPatch(
        f"{name}-webhooks-{digest}",
        metadata={**asked["metadata"], "annotations": {"pulumi.com/patchForce": "true"}},
        webhooks=asked["webhooks"],
        opts=pulumi.ResourceOptions(
            parent=component, depends_on=[release], ignore_changes=["webhooks"]
        ),
    )
    made: dict[str, pulumi.CustomResource] = {}
    for found in (*tenancy.objects(args), *queues.objects(args), *policies.objects(args)):
        namespace = found["metadata"].get("namespace")
        after = [release, *([made[f"namespace-{namespace}"]] if namespace else [])]
        keep = found["kind"] == "Namespace"
        opts = pulumi.ResourceOptions(
            parent=component, depends_on=[] if keep else after, retain_on_delete=keep
        )
        place = _place(found)
        made[place] = pulumi.CustomResource(token(found), f"{name}-{place}", found, opts)


def _place(found: Object) -> str:
    metadata = found["metadata"]
    within = metadata.get("namespace")
    return "-".join(filter(None, (found["kind"].lower(), within, metadata["name"])))
