"""A notebook's image, built from the files of `bedplate frameworks` by the commands in them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.containerfiles.render import files_of
from bedplate.lock.builds import notebook_of
from bedplate.lock.model import Sources
from bedplate.mirror import made
from bedplate.mirror.store import Store
from tests.environments import python
from tests.substrate.hosts import image
from tests.substrate.hosts.containers import Machine
from tests.unit.containerfiles.test_containerfiles import build_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEM = "debian-13"
#: Stands for the image that the catalogue names: a Python whose packages are not the system's.
BASE = """
FROM {host}
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends python3-venv \\
 && python3 -m venv /opt/python
ENV PATH=/opt/python/bin:$PATH
ENTRYPOINT []
"""
NAMED = "localhost/bedplate-tests/python:3"
#: How this machine reaches its package indexes.
REACH = ("/etc/pip.conf", "/etc/apt/apt.conf.d", "/etc/ssl/certs")
UV = Path(__file__).parents[1] / "substrate/images/requirements/uv.txt"
COMPUTES = """
import json, os, subprocess, jax, jax.numpy as jnp
hub = subprocess.run(["jupyterhub-singleuser", "--version"], capture_output=True, text=True)
subprocess.run(["jupyter", "lab", "--version"], check=True, stdout=subprocess.DEVNULL)
ones = jnp.ones((64, 64))
print(json.dumps([float((ones @ ones).sum()), jax.__version__, hub.stdout.strip(), os.getuid(),
                  os.getgid(), os.path.expanduser("~"), os.access(os.getcwd(), os.W_OK)]))
"""


def ran(command: list[str], folder: Path) -> str:
    """Run a command in a folder, and return what it printed."""
    environment = os.environ | {"UV_NATIVE_TLS": "true"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def built(command: list[str], folder: Path) -> None:
    """Run `buildah build` as this machine can: it cannot set up containers' own networks."""
    there = [f"--volume={path}:{path}:ro" for path in REACH if Path(path).exists()]
    ran([*command[:2], "--isolation=chroot", "--network=host", *there, *command[2:]], folder)


@pytest.fixture
def base(tmp_path: Path) -> Iterator[str]:
    """Build the base; remove it afterwards."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "Containerfile").write_text(BASE.format(host=image.ensure(SYSTEM)))
    built(["buildah", "build", "--tag", NAMED, "."], folder)
    yield NAMED
    subprocess.run(["buildah", "rmi", NAMED], capture_output=True, check=False)


@pytest.mark.prove
def test_jax_is_built_from_its_files_and_computes(base: str, tmp_path: Path) -> None:
    """Its CPU build, which has the same packages less CUDA's: JAX's extra is left out."""
    build = build_of("jax", "0.12.0.1", "cuda12")
    package = build.package.model_copy(update={"requirement": "jax=={version}", "python": "3.13"})
    files = files_of(replace(build, package=package), Sources(mode="upstream"), base)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    lines = files["Containerfile"].splitlines()
    said = [shlex.split(one[4:]) for one in lines if one.startswith("#   ")]
    for command in (one for one in said if one[0] == "uv"):
        ran([str(python(UV).parent / "uv"), *command[1:]], tmp_path)
    named = notebook_of("jax", "0.12.0.1", "cuda12")
    try:
        (make,) = [one for one in said if one[:2] == ["buildah", "build"] and named in one]
        built(make, tmp_path)
        machine = Machine.here()
        run = ["podman", "run", "--rm", "--network=none"]
        run += [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
        told = ran([*run, named, "python", "-c", COMPUTES], tmp_path).splitlines()[-1]
        home = "/home/jovyan"
        assert json.loads(told) == [64.0**3, "0.12.0.1", "5.5.0", 1000, 100, home, True]
        (push,) = [one for one in said if one[:2] == ["buildah", "push"]]
        ran(push, tmp_path)
        (add,) = [one for one in said if one[:3] == ["bedplate", "mirror", "add"]]
        store = Store(tmp_path / "mirror")
        source = add[5].replace(":", f":{tmp_path}/")
        assert made.add(store, add[4], source) == store.images.tagged(*named.rsplit(":", 1))
    finally:
        subprocess.run(["buildah", "rmi", named], capture_output=True, check=False)
