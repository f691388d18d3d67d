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
from bedplate.components.schedulers.kueue.configuration import values
from bedplate.components.schedulers.kueue.objects import NAMESPACE, Object
from bedplate.components.schedulers.release import released

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

ADDON = "kueue"


class KueueArgs(TypedDict):
    """Inputs of Kueue."""

    site: Path
    """The site's directory, which has the bill."""
    lock: Lock
    """What was decided: version, teams, preset and pools."""


class Kueue(pulumi.ComponentResource):  # type: ignore[misc]
    """Kueue with the queues of all teams. Namespaces stay when it goes: they hold others' work."""

    queues: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: KueueArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Kueue", name, None, opts)
        site, lock = args["site"], args["lock"]
        release = released(
            (self, name),
            (ADDON, NAMESPACE),
            str(artifact.chart(site, lock, ADDON)),
            values(lock, artifact.image(site, lock, ADDON)),
        )
        objects(self, name, (site, lock), release)
        self.queues = pulumi.Output.from_input(sorted(queues.teams_of(lock)))
        self.register_outputs({"queues": self.queues})


def objects(
    component: pulumi.ComponentResource,
    name: str,
    decided: tuple[Path, Lock],
    release: pulumi.Resource,
) -> None:
    """Make all that a lock has in a running Kueue, below a component and after its release.

    Args:
        component: the parent.
        name: of the component.
        decided: the site's directory, and its lock.
        release: what has to be there first.
    """
    site, lock = decided
    asked = webhooks.patch(lock)
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
    facts = catalogue_of(site)
    wanted = (
        *tenancy.objects(lock),
        *queues.objects(lock, facts),
        *policies.objects(lock, facts),
    )
    for found in wanted:
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
