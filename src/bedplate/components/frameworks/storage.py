"""Homes and datasets of all courses, made before the hub that mounts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

import pulumi

from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.frameworks import data_cache, volumes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bedplate.components.schedulers.kueue.objects import Object
    from bedplate.lock import Lock
    from bedplate.lock.courses import Course


#: What stays as it was made. A size says what a course was planned with and limits nothing; a claim
#: that is bound can't get another, so that more students would stop every later run.
KEPT: Final = {
    "PersistentVolume": ["spec.capacity"],
    "PersistentVolumeClaim": ["spec.resources"],
}


class StorageArgs(TypedDict):
    """Inputs of a Storage."""

    data: volumes.VolumesArgs
    """Courses, and where their data lies. Their namespaces are there before."""
    image: str
    """Image with a shell, for the jobs that make the courses' folders."""
    cache: NotRequired[str]
    """Image with rclone, where a dataset lies elsewhere."""


class Storage(pulumi.ComponentResource):  # type: ignore[misc]
    """Volumes, claims and policies. When it goes, all files stay where they are."""

    courses: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:frameworks:Storage", name, None, opts)
        before: dict[str, pulumi.Resource] = {}
        courses = args["data"].courses
        for found in volumes.objects(args["data"], args["image"], args.get("cache", "")):
            metadata = found["metadata"]
            parts = (found["kind"].lower(), metadata.get("namespace"), metadata["name"])
            place = "-".join(filter(None, parts))
            after = [before[one] for one in _needs(found, courses) if one in before]
            kept = KEPT.get(found["kind"])
            below = pulumi.ResourceOptions(parent=self, depends_on=after, ignore_changes=kept)
            before[place] = pulumi.CustomResource(token(found), f"{name}-{place}", found, below)
        self.courses = pulumi.Output.from_input(sorted(courses))
        self.register_outputs({"courses": self.courses})


def storage_args(site: Path, lock: Lock) -> StorageArgs:
    """Return what a lock decides, with its bill. Raises StackError as `artifact.image`."""
    data, image = volumes.volumes_args(lock), artifact.image(site, lock, "smoke")
    args: StorageArgs = {"data": data, "image": image}
    if any(map(data.cached, data.storage.datasets)):
        args["cache"] = artifact.image(site, lock, data_cache.IMAGE)
    return args


def _needs(found: Object, courses: Mapping[str, Course]) -> list[str]:
    """Name what an object must not come before."""
    metadata = found["metadata"]
    match found["kind"]:
        case "Job" | "DaemonSet":
            return [f"namespace-{metadata['namespace']}"]
        case "PersistentVolumeClaim":
            # Whoever finds the claim bound finds its folder made, and the policies in force.
            course = courses[metadata["namespace"]]
            name = course.of or metadata["namespace"]
            folder = f"job-{volumes.NAMESPACE}-{volumes.HOMES}-{name}"
            policies = (f"validatingadmissionpolicybinding-{name}" for name in volumes.POLICIES)
            return [f"persistentvolume-{found['spec']['volumeName']}", folder, *policies]
        case _:
            return []
