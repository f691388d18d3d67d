"""A real GPU, and what is measured on it; without one every test fails in a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import nvidia
from bedplate.portable.host import Host
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
TOOLS = ["containerd", "crictl", "etcd", "kubernetes", "nvidia-container-toolkit"]
TOOLS += ["nvidia-device-plugin", "nvidia-dra-driver", "runc"]
#: The longest that a part takes.
LONGEST = 300


@pytest.fixture(scope="session", autouse=True)
def real() -> None:
    """Refuse to measure what is not there, or not real."""
    loaded = nvidia.loaded_module(Host())
    found = "no GPU" if loaded is None else "a simulated GPU" if loaded.simulated else ""
    if found or os.geteuid() != 0:
        pytest.fail(
            f"nothing to measure — tests/silicon — got {found or 'an unprivileged user'}"
            " / allowed a real NVIDIA GPU with its driver, and root — run it on a GPU's machine",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def measured(real: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Return the function that runs a part of a module once, and returns its notes.

    SILICON_OUT names a folder that keeps them; parts whose notes are there are not run again.
    """
    del real  # there is a GPU
    kept = os.environ.get("SILICON_OUT")
    out = Path(kept) if kept else tmp_path_factory.mktemp("silicon")
    out.mkdir(parents=True, exist_ok=True)
    built = [build.path(build.tools()[name]) / "bin" for name in TOOLS]
    path = [str(folder) for folder in built if folder.is_dir()]
    # Frameworks are in the environment that SILICON_PYTHON names, or in this one.
    program = os.environ.get("SILICON_PYTHON", sys.executable)
    environment = {**os.environ, "PATH": ":".join([*path, os.environ["PATH"]])}
    environment["PYTHONPATH"] = ":".join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])

    def run(module: str, *parts: str, file: str = "") -> dict[str, Any]:
        notes = out / f"{file or parts[0]}.json"
        if not notes.exists():
            words = [program, "-m", f"tests.silicon.{module}", str(out), *parts]
            subprocess.run(words, cwd=ROOT, env=environment, check=False, timeout=LONGEST)
        found: dict[str, Any] = json.loads(notes.read_text())
        assert "failed" not in found, found["failed"]
        return found

    return run
