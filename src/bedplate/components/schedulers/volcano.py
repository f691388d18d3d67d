"""Volcano's unmodified chart, and its queues, priority classes and topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

import pulumi

from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.cluster.wished import gpus
from bedplate.components.config import StackError
from bedplate.components.schedulers import topology, volcano_objects
from bedplate.components.schedulers.node_labels import discovered
from bedplate.components.schedulers.release import released
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

ADDON: Final = "volcano"
NAMESPACE: Final = "volcano-system"
#: The catalogue's names of the chart's images.
IMAGES: Final = ("volcano-scheduler", "volcano-controllers", "volcano-webhooks")


class VolcanoArgs(TypedDict):
    """Inputs of Volcano."""

    site: Path
    """The site's directory, which has the bill and the evidence."""
    lock: Lock
    """What was decided: version, teams, preset, pools, and where hosts stand."""


class Volcano(pulumi.ComponentResource):  # type: ignore[misc]
    """Volcano with a queue for each team and the topology of the nodes with GPUs."""

    hypernodes: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: VolcanoArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Volcano", name, None, opts)
        site, lock = args["site"], args["lock"]
        images = [artifact.image(site, lock, image) for image in IMAGES]
        release = released(
            (self, name),
            (ADDON, NAMESPACE),
            str(artifact.chart(site, lock, ADDON)),
            volcano_objects.values(lock, tag_of(images)),
        )
        known = topology.places(lock, discovered(site, gpus(lock)))
        made: dict[str, pulumi.CustomResource] = {}
        hypernodes = []
        for found in volcano_objects.objects(lock, known):
            kind, of = found["kind"], found["metadata"]["name"]
            within = found["metadata"].get("namespace")
            # A namespace stays when Volcano goes: it holds others' work.
            keep = kind == "Namespace"
            after = [release, *([made[within]] if within else [])]
            place = "-".join(filter(None, (kind.lower(), within, of)))
            below = pulumi.ResourceOptions(parent=self, depends_on=after, retain_on_delete=keep)
            resource = pulumi.CustomResource(token(found), f"{name}-{place}", found, below)
            made |= {of: resource} if keep else {}
            hypernodes += [of] if kind == "HyperNode" else []
        self.hypernodes = pulumi.Output.from_input(hypernodes)
        self.register_outputs({"hypernodes": self.hypernodes})


def tag_of(images: list[str]) -> str:
    """Return the tag that the images share: the chart has one value for all, and none for digests.

    Raises:
        StackError: their tags differ.
    """
    tags = sorted({image.partition("@")[0].rpartition(":")[2] for image in images})
    if len(tags) != 1:
        raise StackError(
            problem(
                "images of Volcano differ",
                "bill of materials",
                f"the tags {', '.join(tags)}",
                "one for scheduler, controllers and webhooks",
                "correct the catalogue's images of volcano, and run bedplate mirror resolve again",
            )
        )
    return tags[0]
