"""Images of notebooks on the nodes of their courses before the first student starts one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.components.frameworks import hub_objects as hub
from bedplate.components.frameworks import volumes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.lock import Lock


def daemons(lock: Lock, settings: Mapping[str, Any]) -> Iterator[hub.Object]:
    """Yield a DaemonSet for each pool with courses; `settings` are those of the hub.

    Its containers sleep: kubelet pulls their images, and keeps them while they are in use.
    """
    courses = lock.cluster.courses if lock.cluster else {}
    for pool in sorted({pool for one in courses.values() for pool in one.pools}):
        images = {
            profile["image"]
            for name, course in courses.items()
            if pool in course.pools
            for profile in settings["courses"][name]["profiles"]
        }
        if images:  # a course whose only image is refused has none
            yield daemon(pool, sorted(images), volumes.nodes(lock, pool))


def daemon(pool: str, images: list[str], hosts: list[str]) -> hub.Object:
    """Return the DaemonSet that keeps images on hosts."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    about = f"Keeps the images of courses' notebooks on the nodes of {pool}."
    labels = hub.app(f"images-{pool.replace('_', '-')}")
    made = hub.deployment(
        f"images-{pool.replace('_', '-')}",
        about,
        "",
        automountServiceAccountToken=False,
        tolerations=[{"operator": "Exists"}],
        terminationGracePeriodSeconds=1,
        affinity={"nodeAffinity": {required: volumes.terms(hosts)}},
        containers=[
            {
                "name": f"image-{number}",
                "image": image,
                "command": ["sleep", "infinity"],
                "resources": {"requests": {"cpu": "1m", "memory": "2Mi"}},
                "securityContext": hub.restricted(),
            }
            for number, image in enumerate(images)
        ],
    )
    made["kind"] = "DaemonSet"
    # A pull of 20 GB holds up nothing else of the stack.
    made["metadata"]["annotations"]["pulumi.com/skipAwait"] = "true"
    template = made["spec"]["template"]
    made["spec"] = {
        "selector": {"matchLabels": labels},
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
        "template": template,
    }
    return made
