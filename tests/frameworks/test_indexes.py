"""Which index each package of a notebook and of a course comes from, by the real uv.

A maker's index has the framework in its variant, old versions of other packages, and no JupyterHub.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.lock.model import Sources
from bedplate.planning.containerfiles import course
from bedplate.planning.containerfiles.render import files_of
from tests.environments import python
from tests.unit.containerfiles.test_containerfiles import build_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.planning.containerfiles.render import Build

UV = Path(__file__).parents[1] / "substrate/images/requirements/uv.txt"
#: By index, package and version: what each requires.
OFFERED: dict[str, dict[str, dict[str, list[str]]]] = {
    "all": {
        "torch": {"2.14.0": ["cuda13==13.0"]},
        "cuda13": {"13.0": []},
        "torchvision": {"0.29.0": ["torch==2.14.0"]},
        "numpy": {"2.3.0": [], "2.4.0": []},
        "pandas": {"3.0.0": ["numpy"]},
        "requests": {"2.33.0": []},
        "jupyterhub": {"5.5.0": []},
        "jupyterlab": {"4.6.6": []},
        "nbgitpuller": {"1.3.0": []},
    },
    "makers": {
        "torch": {"2.14.0+cu126": ["cuda12==12.6", "numpy"]},
        "cuda12": {"12.6": []},
        "torchvision": {"0.29.0+cu126": ["torch==2.14.0"]},
        "numpy": {"2.3.0": []},
        "requests": {"2.28.0": []},
    },
}


class Quiet(SimpleHTTPRequestHandler):
    """Serves folders as indexes."""

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def indexes(folder: Path) -> Iterator[str]:
    """Serve both indexes; yield the address of the folder that has them."""
    for index, packages in OFFERED.items():
        for name, versions in packages.items():
            for version, requires in versions.items():
                wheel(folder / index / name, name, version, requires)
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def wheel(folder: Path, name: str, version: str, requires: list[str]) -> None:
    """Write a package that has nothing but its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{about}/METADATA", "\n".join(lines))
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def compiled(folder: Path, files: dict[str, str]) -> dict[str, set[str]]:
    """Run uv as a Containerfile says; return by lock what it pins."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    more = {"UV_NO_CACHE": "true", "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "true"}
    lines = files["Containerfile"].splitlines()
    for words in (shlex.split(one[4:]) for one in lines if one.startswith("#   uv ")):
        done = subprocess.run(
            [str(python(UV).parent / "uv"), *words[1:]],
            cwd=folder,
            env=os.environ | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return {
        lock.name: {one.split()[0] for one in lock.read_text().splitlines() if "==" in one[:40]}
        for lock in folder.glob("*.lock")
    }


def from_index(index: str) -> Build:
    """Return a build whose maker has this index."""
    build = build_of("pytorch", "2.14.0", "cu126")
    return replace(build, fact=build.fact.model_copy(update={"index": index}))


FRAMEWORK = {"torch==2.14.0+cu126", "cuda12==12.6", "numpy==2.3.0"}


@pytest.mark.prove
def test_the_framework_keeps_its_variant_and_the_rest_is_from_the_sites_index(
    tmp_path: Path,
) -> None:
    with indexes(tmp_path / "indexes") as url:
        build = from_index(f"{url}/makers/")
        sources = Sources(mode="mirror", url=url, pip=f"{url}/all/")
        assert compiled(tmp_path / build.name, files_of(build, sources)) == {
            "requirements.lock": FRAMEWORK,
            "notebook.lock": {"jupyterhub==5.5.0", "jupyterlab==4.6.6", "nbgitpuller==1.3.0"},
        }
        lines = ("torchvision", "pandas", "requests>=2.30")
        more = {"torchvision==0.29.0+cu126", "pandas==3.0.0", "requests==2.33.0"}
        files = course.files_of(build, sources, "mine", lines)
        assert compiled(tmp_path / "mine", files) == {"requirements.lock": FRAMEWORK | more}
        files = course.files_of(build, sources, "newer", ("numpy==2.4.0",))
        with pytest.raises(AssertionError, match=r"you require numpy==2\.4\.0"):
            compiled(tmp_path / "newer", files)


@pytest.mark.prove
def test_a_notebook_on_a_makers_index_has_the_rest_from_pypi(tmp_path: Path) -> None:
    """The makers' has no JupyterHub: as a constraint, the framework's lock names no index."""
    with indexes(tmp_path / "indexes") as url:
        build = from_index(f"{url}/makers/")
        locks = compiled(tmp_path / build.name, files_of(build, Sources(mode="upstream")))
    assert locks["requirements.lock"] == FRAMEWORK
    assert "jupyterhub==5.5.0" in locks["notebook.lock"]
