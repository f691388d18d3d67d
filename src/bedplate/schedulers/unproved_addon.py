"""The chart of a scheduler that nobody has run here, with what the lock decides for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.cluster import artifact
from bedplate.cluster.manifest import token
from bedplate.schedulers.unproved import RENDERED

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

PATIENCE: Final = 600


class UnprovedAddonArgs(TypedDict):
    """Inputs of an UnprovedAddon."""

    site: Path
    """The site's directory, which has the bill."""
    lock: Lock
    """What was decided."""
    addon: str
    """Its name in the catalogue."""


class UnprovedAddon(pulumi.ComponentResource):  # type: ignore[misc]
    """A chart of the bill; without one in the bill nothing is made, and the message says so."""

    def __init__(
        self, name: str, args: UnprovedAddonArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:UnprovedAddon", name, None, opts)
        addon = args["addon"]
        what = RENDERED[addon](args["lock"])
        release = kubernetes.helm.v3.Release(
            f"{name}-release",
            name=addon,
            chart=str(artifact.chart(args["site"], args["lock"], addon)),
            namespace=what.namespace,
            create_namespace=True,
            values=dict(what.values),
            atomic=True,
            timeout=PATIENCE,
            opts=pulumi.ResourceOptions(parent=self),
        )
        below = pulumi.ResourceOptions(parent=self, depends_on=[release])
        for found in what.objects:
            place = f"{found['kind'].lower()}-{found['metadata']['name']}"
            pulumi.CustomResource(token(found), f"{name}-{place}", found, below)
        self.register_outputs({})
