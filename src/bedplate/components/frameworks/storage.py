"""Homes and datasets of all courses, made before the hub that mounts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

import pulumi

from bedplate.components.cluster.manifest import token
from bedplate.components.frameworks import volumes

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.objects import Object
    from bedplate.lock import Lock


#: What stays as it was made. A size says what a course was planned with and limits nothing; a claim
#: that is bound can't get another, so that more students would stop every later run.
KEPT: Final = {
    "PersistentVolume": ["spec.capacity"],
    "PersistentVolumeClaim": ["spec.resources"],
}


class StorageArgs(TypedDict):
    """Inputs of a Storage."""

    lock: Lock
    """Courses, and where their data lies. Their namespaces are the schedulers stack's."""
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
        for found in volumes.objects(args["lock"], args["image"], args.get("cache", "")):
            metadata = found["metadata"]
            parts = (found["kind"].lower(), metadata.get("namespace"), metadata["name"])
            place = "-".join(filter(None, parts))
            after = [before[one] for one in _needs(found, args["lock"]) if one in before]
            kept = KEPT.get(found["kind"])
            below = pulumi.ResourceOptions(parent=self, depends_on=after, ignore_changes=kept)
            before[place] = pulumi.CustomResource(token(found), f"{name}-{place}", found, below)
        self.courses = pulumi.Output.from_input(sorted(volumes.courses_of(args["lock"])))
        self.register_outputs({"courses": self.courses})


def _needs(found: Object, lock: Lock) -> list[str]:
    """Name what an object must not come before."""
    metadata = found["metadata"]
    match found["kind"]:
        case "Job" | "DaemonSet":
            return [f"namespace-{metadata['namespace']}"]
        case "PersistentVolumeClaim":
            # Whoever finds the claim bound finds its folder made, and the policies in force.
            course = volumes.courses_of(lock)[metadata["namespace"]]
            name = course.of or metadata["namespace"]
            folder = f"job-{volumes.NAMESPACE}-{volumes.HOMES}-{name}"
            policies = (f"validatingadmissionpolicybinding-{name}" for name in volumes.POLICIES)
            return [f"persistentvolume-{found['spec']['volumeName']}", folder, *policies]
        case _:
            return []
