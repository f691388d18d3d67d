"""What is built and installed once for all tests here."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.install import environments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Runs = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return environments.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection's archive, as Galaxy takes it."""
    return environments.collection(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with ansible-core alone."""
    return environments.environment(tmp_path_factory.mktemp("bare") / "env", ["ansible-core"])


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The programs of an environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    programs = environments.environment(folder, environments.requirements(wheel))
    environments.install(programs / "python", wheel)
    return programs


@pytest.fixture
def user(tmp_path: Path) -> Runs:
    """Run a command as a user without this checkout: a home of his own, nothing else set."""
    home = tmp_path / "home"
    home.mkdir()

    def run(
        programs: Path, *command: object, cwd: Path = tmp_path, status: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={
                "HOME": str(home),
                "PATH": f"{programs}:{more.pop('PATH', '')}:/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_NOCOLOR": "1",
                **more,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run
