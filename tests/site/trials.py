"""The images of frameworks that were built here, each tried in a pod of the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.frameworks import trial
from tests.site.cluster import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NAMESPACE = "trials"
#: The name of each trial, the catalogue's name of its image, and the CUDA that is asked for.
CPU_BUILDS = {"jax": ("notebook-jax", trial.CPU), "paddle": ("notebook-paddle", trial.CPU)}
ANOTHER_BUILD = {"jax-with-cuda": ("notebook-jax", "12.6")}


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
        listed = site.kubectl("get", "jobs", "-n", NAMESPACE, "-o", "json").stdout
        return all(
            one["status"].get("succeeded") or one["status"].get("failed")
            for one in json.loads(listed)["items"]
        )

    wait_for("every trial of an image ends", ended, 600)
    said = {name: site.kubectl("logs", "-n", NAMESPACE, f"job/{name}").stdout for name in trials}
    site.kubectl("delete", "namespace", NAMESPACE)
    return said


def _trial(name: str, image: str, cuda: str) -> list[trial.Object]:
    reference = load_catalogue().images[image].value.reference
    framework, _, version = reference.rpartition("/notebook-")[2].partition(":")
    return trial.objects(name, NAMESPACE, reference, (framework, version, cuda))
