"""The images of frameworks that were built here, each tried in a pod of the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bedplate.lock import builds
from tests.frameworks import trial
from tests.site.cluster import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NAMESPACE = "trials"
JAX = builds.notebook_of("jax", "0.12.0.1", "cuda12")
PADDLE = builds.notebook_of("paddle", "3.3.1", "cu126")
#: The name of each trial, its image, and the CUDA that is asked for.
CPU_BUILDS = {"jax": (JAX, trial.CPU), "paddle": (PADDLE, trial.CPU)}
ANOTHER_BUILD = {"jax-with-cuda": (JAX, "12.6")}


def tried(site: SiteCommands, folder: Path, trials: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Run trials beside each other in a namespace that goes afterwards; return what each said."""
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(one for name, (image, cuda) in trials.items() for one in _trial(name, image, cuda)),
    ]
    path = folder / "trials.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    done = site.kubectl("create", "-f", str(path))
    assert done.returncode == 0, done.stdout

    def ended() -> bool:
        listed = site.kubectl("get", "jobs", "-n", NAMESPACE, "-o", "json")
        # An API server that is away for a moment ends nothing: kubectl lists what it had by then.
        return listed.returncode == 0 and all(
            one["status"].get("succeeded") or one["status"].get("failed")
            for one in json.loads(listed.stdout)["items"]
        )

    wait_for("every trial of an image ends", ended, 600)
    said = {name: site.kubectl("logs", "-n", NAMESPACE, f"job/{name}").stdout for name in trials}
    site.kubectl("delete", "namespace", NAMESPACE)
    return said


def _trial(name: str, image: str, cuda: str) -> list[trial.Object]:
    framework, _, tag = image.rpartition("/notebook-")[2].partition(":")
    return trial.objects(name, NAMESPACE, image, (framework, tag.partition("-")[0], cuda))
