"""A notebook's image, built from the files of `bedplate frameworks` by the commands in them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from bedplate.bill.needs import Starts
from bedplate.bill.notebook import of_image
from bedplate.bill.places import Places
from bedplate.bill.web import Web
from bedplate.containerfiles import course
from bedplate.containerfiles.render import files_of
from bedplate.lock.builds import notebook_of
from bedplate.lock.model import Sources
from bedplate.mirror import made, service
from bedplate.mirror.store import Store
from tests.environments import python
from tests.frameworks.hub import PACKAGES as HUB
from tests.frameworks.hub import course as hub_course
from tests.frameworks.hub import hub_of
from tests.frameworks.notebooks import CLIENT
from tests.schedulers.api import eventually
from tests.schedulers.kubelets import KubeletDouble
from tests.schedulers.processes import free_port
from tests.substrate.hosts import image
from tests.substrate.hosts.containers import Machine
from tests.substrate.images import known_tools
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
NOTEBOOK = notebook_of("jax", "0.12.0.1", "cuda12")
OWN, ADDED = "localhost/bedplate-tests/mycourse:1", "tabulate==0.9.0"
CELL = "import jax, os, tabulate\nprint(jax.__version__, tabulate.__version__, os.getcwd())"
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
FREEZE = """
import json, subprocess, sys
run = subprocess.run([sys.executable, "-m", "pip", "freeze"], capture_output=True, check=True)
print(json.dumps(run.stdout.decode().splitlines()))
"""


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


@dataclass(frozen=True)
class Built:
    """A notebook and a course's own image on it, their folders, and what was left out of it."""

    notebook: Path
    course: Path
    left_out: frozenset[str]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Build JAX's CPU build, which has the same packages less CUDA's, and a course on it.

    The course has what `pip freeze` prints in the notebook, and what a student of it has installed.
    """
    above = tmp_path_factory.mktemp("images")
    build = build_of("jax", "0.12.0.1", "cuda12")
    package = build.package.model_copy(update={"requirement": "jax=={version}", "python": "3.13"})
    build = replace(build, package=package)
    folder, taught, base = above / build.name, above / "mycourse", above / "base"
    try:
        write(base, {"Containerfile": BASE.format(host=image.ensure(SYSTEM))})
        built(["buildah", "build", "--tag", NAMED, "."], base)
        write(folder, files_of(build, Sources(mode="upstream"), NAMED))
        pinned(folder)
        (make,) = [one for one in commands(folder) if "--target" in one and NOTEBOOK in one]
        built(make, folder)
        asked = above / "requirements.txt"
        asked.write_text("\n".join([*json.loads(printed(NOTEBOOK, FREEZE)), ADDED, ""]))
        found = course.added(build, asked)
        write(taught, course.files_of(build, Sources(mode="upstream"), "mycourse", found.lines))
        pinned(taught)
        built(["buildah", "build", "--timestamp", "0", "--tag", OWN, "."], taught)
        yield Built(folder, taught, frozenset(found.there))
    finally:
        for one in (OWN, NOTEBOOK, NAMED):
            subprocess.run(["buildah", "rmi", one], capture_output=True, check=False)


@pytest.mark.prove
def test_jax_and_a_course_on_it_compute(images: Built, tmp_path: Path) -> None:
    """By the commands that their Containerfiles begin with."""
    for name in (NOTEBOOK, OWN):
        told = json.loads(printed(name, COMPUTES))
        assert told == [64.0**3, "0.12.0.1", "5.5.0", 1000, 100, "/home/jovyan", True]
    steps, store = commands(images.notebook), Store(tmp_path / "mirror")
    (push,) = [one for one in steps if one[:2] == ["buildah", "push"]]
    ran(push, images.notebook)
    (add,) = [one for one in steps if one[:3] == ["bedplate", "mirror", "add"]]
    source = add[5].replace(":", f":{images.notebook}/")
    assert made.add(store, add[4], source) == store.images.tagged(*NOTEBOOK.rsplit(":", 1))


@pytest.mark.prove
def test_a_course_adds_to_its_notebook_and_replaces_nothing(images: Built, tmp_path: Path) -> None:
    assert printed(OWN, "import tabulate; print(tabulate.__version__)") == "0.9.0"
    assert {"jax==0.12.0.1", "jupyterhub==5.5.0"} <= images.left_out
    assert "\njax==" not in (images.course / "requirements.lock").read_text()
    store = Store(tmp_path / "mirror")
    made.add(store, OWN, f"containers-storage:{OWN}")
    web = Web()
    with service.writable_registry(store, known_tools()["registry"].program("registry")) as port:
        places = Places(f"http://127.0.0.1:{port}", {})
        versions, wrong = of_image(web, places, OWN, Starts("5.5.0", material=True))
    web.close()
    assert wrong == []
    assert (versions["python"], versions["jupyterhub"]) == ("3.13", "5.5.0")
    # Without the constraints a lock may replace what the notebook has: the build refuses it.
    shutil.copytree(images.course, other := tmp_path / "other")
    (other / "other.in").write_text("idna==3.7")
    compiled = ["pip", "compile", "--generate-hashes", "other.in", "--output-file"]
    ran([str(python(UV).parent / "uv"), *compiled, "requirements.lock"], other)
    with pytest.raises(AssertionError, match="No matching distribution found for idna=="):
        built(["buildah", "build", "."], other)


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


@pytest.mark.prove
@pytest.mark.usefixtures("images")
def test_the_hub_starts_a_teachers_own_image() -> None:
    """The real hub, Kueue and API server, and the image's own notebook in a container."""
    teams = {"intro": {"gpus": {"pool_class": (1, 0)}, "members": ["ada"]}}
    own = {"slug": "intro--mycourse", "title": "intro", "about": "Mycourse.", "image": OWN}
    courses = {"intro": hub_course("intro", members=["eve"], profiles=[own])}
    with hub_of(teams, courses, gpus=1, kubelets_of=lambda plane: Containers(plane.api)) as hub:
        hub.settings["service"]["notebook_port"] = port = free_port(Containers.ADDRESS)
        hub.secret("account-ada", "a-password-of-ada")
        hub.start()
        hub.api("POST", "users", {"usernames": ["eve"]})
        hub.api("POST", "users/eve/server", {"profile": "intro--mycourse"})
        eventually(lambda: hub.servers().get("eve", {}).get("ready"), 300)
        token = hub.api("POST", "users/eve/tokens", {"scopes": ["access:servers!user=eve"]})[
            "token"
        ]
        url = f"http://{Containers.ADDRESS}:{port}/user/eve/api"
        headers = {"Authorization": f"token {token}"}
        kernel = requests.post(f"{url}/kernels", headers=headers, timeout=120).json()["id"]
        socket = f"{url.replace('http:', 'ws:')}/kernels/{kernel}/channels"
        client = [str(python(HUB)), "-c", CLIENT]
        done = subprocess.run(
            client,
            input=json.dumps([[socket, token, CELL]]),
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == ["0.12.0.1 0.9.0 /home/jovyan\n"]
        hub.api("DELETE", "users/eve/server")
        eventually(lambda: "eve" not in hub.servers(), 120)
