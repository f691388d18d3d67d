"""A notebook's image, built from the files of `bedplate frameworks` by the commands in them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.needs import Starts
from bedplate.bill.notebook import of_image
from bedplate.bill.places import Places
from bedplate.bill.web import Web
from bedplate.lock.builds import notebook_of
from bedplate.lock.model import Sources
from bedplate.mirror import made
from bedplate.mirror.store import Store
from bedplate.planning.containerfiles import course
from tests.environments import python
from tests.frameworks.building import (
    UV,
    as_here,
    base,
    built,
    cell,
    class_of,
    commands,
    notebook,
    pinned,
    printed,
    ran,
    removed,
    write,
)
from tests.substrate.images import known_tools, registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTEBOOK = notebook_of("jax", "0.12.0.1", "cuda12")
OWN, ADDED = "localhost/bedplate-tests/mycourse:1", "tabulate==0.9.0"
CELL = "import jax, os, tabulate\nprint(jax.__version__, tabulate.__version__, os.getcwd())"
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
    build = as_here("jax", "0.12.0.1", "cuda12", requirement="jax=={version}")
    folder, taught = above / build.name, above / "mycourse"
    try:
        with base():
            assert notebook(build, folder) == NOTEBOOK
            asked = above / "requirements.txt"
            asked.write_text("\n".join([*json.loads(printed(NOTEBOOK, FREEZE)), ADDED, ""]))
            found = course.added(build, asked)
            files = course.files_of(build, Sources(mode="upstream"), "mycourse", found.lines)
            write(taught, files)
            pinned(taught)
            built(["buildah", "build", "--timestamp", "0", "--tag", OWN, "."], taught)
            yield Built(folder, taught, frozenset(found.there))
    finally:
        removed(OWN, NOTEBOOK)


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
    with registry.writable(store, known_tools()["registry"].program("registry")) as port:
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


@pytest.mark.prove
@pytest.mark.usefixtures("images")
def test_the_hub_starts_a_teachers_own_image() -> None:
    """The real hub, Kueue and API server, and the image's own notebook in a container."""
    own = {"slug": "intro--mycourse", "title": "intro", "about": "Mycourse.", "image": OWN}
    with class_of([own]) as hub:
        assert cell(hub, own["slug"], CELL) == "0.12.0.1 0.9.0 /home/jovyan\n"
