"""The images that are built here: the same bytes each time, and TensorFlow's, which is large."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from bedplate import shipped
from bedplate.frameworks import trial
from bedplate.mirror import service
from bedplate.mirror.store import Store, cache
from tests.substrate.hosts.containers import Machine
from tests.substrate.images import fill, known_tools, recipes
from tests.substrate.images.layers import Layers

if TYPE_CHECKING:
    from pathlib import Path

#: The digest of its layer before it is compressed, made on another day. It changes with
#: requirements/node.txt and package-lock.json: take what the failing test prints.
PROXY = "sha256:29b9c5aabadb27a990024de30ac8e4f490c510c371a8e786cff9f37cd20c9266"
TENSORFLOW = "quay.io/jupyter/tensorflow-notebook:cuda-2026-08-24"


def test_the_same_recipe_makes_the_same_layer(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    layers = Layers(tmp_path / "root", tmp_path / "work", print)
    assert layers._node("configurable-http-proxy", target).diff_id == PROXY


@pytest.mark.prove
def test_tensorflow_computes_in_its_image(tmp_path: Path) -> None:
    """Without a cluster: the mirror's registry and podman, the program that pods run."""
    store, tools = Store(cache() / "mirror"), known_tools()
    fill(store, tools, requested=[TENSORFLOW])
    (recipe,) = [one for one in recipes.images(tools) if one.name == TENSORFLOW]
    assert recipe.on_request
    program = (shipped.templates("jobs") / trial.PROGRAM).read_text()
    with service.writable_registry(store, tools["registry"].program("registry")) as port:
        image = f"127.0.0.1:{port}/{TENSORFLOW}"
        # runc can't set podman's own limits on every machine.
        machine = Machine.here()
        command = ["podman", "run", "--rm", "--interactive", "--tls-verify=false", "--network=none"]
        command += [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
        done = subprocess.run(
            [*command, image, "python3", "-", "tensorflow", "2.20.0", trial.CPU],
            input=program,
            capture_output=True,
            text=True,
            check=False,
        )
        subprocess.run(["podman", "image", "rm", image], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line)["cuda"] is None
    assert set(json.loads(line)["computed"].values()) == {64.0**3}
