"""JobSet's unmodified chart: several kinds of jobs that are one workload, queued as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

import pulumi

from bedplate.components.cluster import artifact
from bedplate.components.schedulers.release import released

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

ADDON: Final = "jobset"
NAMESPACE: Final = "jobset-system"
#: Who the controller is to the API server, by the chart's names: it starts the Jobs of a JobSet.
CONTROLLER: Final = f"system:serviceaccount:{NAMESPACE}:{ADDON}-controller"


class JobSetsArgs(TypedDict):
    """Inputs of JobSets."""

    chart: str
    """JobSet's chart: a path from the project's folder, or an address."""
    image: str
    """The controller, as NAME:TAG or NAME:TAG@DIGEST."""


class JobSets(pulumi.ComponentResource):  # type: ignore[misc]
    """The controller of JobSets. Kueue looks for their definition when it starts."""

    def __init__(
        self, name: str, args: JobSetsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:JobSets", name, None, opts)
        released((self, name), (ADDON, NAMESPACE), args["chart"], values(args["image"]))
        self.register_outputs({})


def jobsets_args(site: Path, lock: Lock) -> JobSetsArgs:
    """Return what a site's bill has of JobSet. Raises StackError as `artifact.chart`."""
    chart, image = artifact.chart(site, lock, ADDON), artifact.image(site, lock, ADDON)
    return {"chart": str(chart), "image": image}


def values(image: str) -> dict[str, Any]:
    """Return the chart's values. `image` is NAME:TAG@DIGEST: the digest decides what is pulled.

    The chart asks for half a processor, of which a controller that mostly waits needs little.
    """
    repository, _, tag = image.partition("@")[0].rpartition(":")
    digest = image.partition("@")[2]
    return {
        "image": {
            "repository": repository,
            "tag": f"{tag}@{digest}" if digest else tag,
            "pullPolicy": "IfNotPresent",
        },
        "controller": {
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"memory": "4Gi"},
            }
        },
    }
