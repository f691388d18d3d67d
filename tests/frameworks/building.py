"""Notebooks' images as users build them: by the commands in the files of `bedplate frameworks`."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from bedplate.lock.builds import notebook_of
from bedplate.lock.model import Sources
from bedplate.planning.containerfiles.render import files_of
from tests.environments import python
from tests.frameworks import notebooks
from tests.frameworks.hub import course, hub_of
from tests.schedulers.api import eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.processes import free_port
from tests.substrate.hosts import image
from tests.substrate.hosts.containers import Machine
from tests.unit.containerfiles.test_containerfiles import build_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.planning.containerfiles.render import Build
    from tests.frameworks.hub import RunningHub

SYSTEM, PYTHON = "debian-13", "3.13"
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


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a folder."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)


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


def commands(folder: Path) -> list[list[str]]:
    """Return the commands that a Containerfile begins with."""
    lines = (folder / "Containerfile").read_text().splitlines()
    return [shlex.split(one[4:]) for one in lines if one.startswith("#   ")]


def pinned(folder: Path) -> None:
    """Run the commands of uv that a Containerfile begins with."""
    for command in (one for one in commands(folder) if one[0] == "uv"):
        ran([str(python(UV).parent / "uv"), *command[1:]], folder)


def printed(image: str, program: str) -> str:
    """Return the last line that a program prints in an image, as the user that the image has."""
    machine = Machine.here()
    run = ["podman", "run", "--rm", "--network=none"]
    run += [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
    return ran([*run, image, "python", "-c", program], Path("/")).splitlines()[-1]


@contextmanager
def base() -> Iterator[None]:
    """Make the image that builds stand on; afterwards it goes."""
    with tempfile.TemporaryDirectory(prefix="bedplate-base-") as folder:
        try:
            Path(folder, "Containerfile").write_text(BASE.format(host=image.ensure(SYSTEM)))
            built(["buildah", "build", "--tag", NAMED, "."], Path(folder))
            yield
        finally:
            removed(NAMED)


def removed(*images: str) -> None:
    """Remove images, where they are."""
    for one in images:
        subprocess.run(["buildah", "rmi", one], capture_output=True, check=False)


def as_here(*identity: str, requirement: str = "") -> Build:
    """Return a build of the catalogue for the Python of the base, and of *requirement* if given."""
    build = build_of(*identity)
    changed = {"python": PYTHON} | ({"requirement": requirement} if requirement else {})
    return replace(build, package=build.package.model_copy(update=changed))


def notebook(build: Build, folder: Path) -> str:
    """Write a build's files to a folder, run their commands for a notebook, return its name."""
    name = notebook_of(build.fact.framework, build.fact.version, build.fact.variant)
    write(folder, files_of(build, Sources(mode="upstream"), NAMED))
    pinned(folder)
    (make,) = [one for one in commands(folder) if "--target" in one and name in one]
    built(make, folder)
    return name


class Containers(KubeletDouble):
    """Kubelets that run the notebook's container of a pod by podman, on an address of loopback."""

    ADDRESS = "127.1.0.1"

    def begins(self, pod: dict[str, Any]) -> str:
        """Start the container as the pod has it: image, user, program and environment."""
        (container,) = (one for one in pod["spec"]["containers"] if one["name"] == "notebook")
        context, machine = container["securityContext"], Machine.here()
        command = ["podman", "run", "--detach", "--rm", "--network=host", "--cap-drop=all"]
        command += [f"--name={pod['metadata']['name']}", "--security-opt=no-new-privileges"]
        command += [f"--user={context['runAsUser']}:{context['runAsGroup']}"]
        command += [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
        for one in container["env"]:
            # A pod has an address space of its own, and may listen on all of it.
            value = one.get("value", "").replace("//0.0.0.0:", f"//{self.ADDRESS}:")
            command.append(f"--env={one['name']}={value}")
        ran([*command, container["image"], *container["args"]], Path("/"))
        return self.ADDRESS

    def ends(self, meta: dict[str, Any]) -> None:
        """End the container."""
        subprocess.run(["podman", "rm", "--force", meta["name"]], capture_output=True, check=False)


@contextmanager
def class_of(profiles: Sequence[dict[str, Any]]) -> Iterator[RunningHub]:
    """Run a hub with a course of these profiles, whose notebooks are containers of podman."""
    teams = {"intro": {"gpus": {"pool_class": (1, 0)}, "members": ["ada"]}}
    courses = {"intro": course("intro", members=["eve"], profiles=list(profiles))}
    with hub_of(teams, courses, gpus=1, kubelets_of=lambda plane: Containers(plane.api)) as hub:
        hub.settings["service"]["notebook_port"] = free_port(Containers.ADDRESS)
        hub.secret("account-ada", "a-password-of-ada")
        hub.start()
        hub.api("POST", "users", {"usernames": ["eve"]})
        yield hub


def cell(hub: RunningHub, profile: str, code: str) -> str:
    """Start a profile for a student by the hub, return what a cell prints there, and stop it."""
    hub.api("POST", "users/eve/server", {"profile": profile})
    eventually(lambda: hub.servers().get("eve", {}).get("ready"), 300)
    asked = {"scopes": ["access:servers!user=eve"]}
    token = hub.api("POST", "users/eve/tokens", asked)["token"]
    url = f"http://{Containers.ADDRESS}:{hub.settings['service']['notebook_port']}/user/eve/api"
    headers = {"Authorization": f"token {token}"}
    kernel = requests.post(f"{url}/kernels", headers=headers, timeout=120).json()["id"]
    socket = f"{url.replace('http:', 'ws:')}/kernels/{kernel}/channels"
    (text,) = notebooks.printed([[socket, token, code]])
    hub.api("DELETE", "users/eve/server")
    eventually(lambda: "eve" not in hub.servers(), 120)
    return text
