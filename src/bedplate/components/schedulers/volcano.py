"""Volcano's unmodified chart, and its queues, priority classes and topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

import pulumi

from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.cluster.wished import gpus
from bedplate.components.config import StackError
from bedplate.components.schedulers import topology, volcano_objects
from bedplate.components.schedulers.node_labels import discovered
from bedplate.components.schedulers.release import released
from bedplate.components.schedulers.topology import Places
from bedplate.portable.message import problem
from bedplate.site.presets.model import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bedplate.lock import Lock
    from bedplate.lock.model import Team
    from bedplate.site.presets import Preset

ADDON: Final = "volcano"
NAMESPACE: Final = "volcano-system"
#: The catalogue's names of the chart's images.
IMAGES: Final = ("volcano-scheduler", "volcano-controllers", "volcano-webhooks")


class VolcanoArgs(TypedDict):
    """Inputs of Volcano."""

    chart: str
    """Volcano's chart: a path from the project's folder, or an address."""
    tag: str
    """That of the images of scheduler, controllers and webhooks: the chart has one for all."""
    resources: list[str]
    """The resources that accelerators are given to pods as: nodes are packed by them."""
    preset: NotRequired[Preset]
    """How work waits and who makes room, where pods go, and classes of priority."""
    teams: NotRequired[Mapping[str, Team]]
    """Teams with a queue each, by name; none where Kueue keeps the queues."""
    queued_elsewhere: NotRequired[bool]
    """Whether Kueue admits workloads, and decides who has to make room."""
    places: NotRequired[Places]
    """Where the nodes with accelerators stand."""


class Volcano(pulumi.ComponentResource):  # type: ignore[misc]
    """Volcano with a queue for each team and the topology of the nodes with GPUs."""

    hypernodes: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: VolcanoArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Volcano", name, None, opts)
        preset, resources = args.get("preset", PLAIN), args["resources"]
        scheduler = volcano_objects.scheduler_config(
            preset, resources, queued_elsewhere=args.get("queued_elsewhere", False)
        )
        values = volcano_objects.values(args["tag"], scheduler)
        release = released((self, name), (ADDON, NAMESPACE), args["chart"], values)
        teams, known = args.get("teams", {}), args.get("places", Places())
        made: dict[str, pulumi.CustomResource] = {}
        hypernodes = []
        for found in volcano_objects.objects(teams, preset, resources, known):
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


def volcano_args(site: Path, lock: Lock) -> VolcanoArgs:
    """Return what a lock decides, with the site's bill and evidence.

    Raises:
        StackError: as `artifact.chart`, `topology.places` and `tag_of`.
    """
    known = topology.places(lock, discovered(site, gpus(lock)))
    expected = {name: pool.expects for name, pool in lock.pools.items() if pool.expects}
    with_gpus = {
        name: place for name, place in known.nodes.items() if lock.hosts[name].pool in expected
    }
    return {
        "chart": str(artifact.chart(site, lock, ADDON)),
        "tag": tag_of([artifact.image(site, lock, image) for image in IMAGES]),
        "resources": sorted(
            {key for one in expected.values() for key in (one.resource, *one.also)}
        ),
        "preset": lock.preset,
        # Kueue keeps queues, namespaces and rights where it is.
        "teams": {} if "kueue" in lock.addons else lock.teams,
        "queued_elsewhere": "kueue" in lock.addons,
        "places": Places(known.levels, with_gpus),
    }


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
