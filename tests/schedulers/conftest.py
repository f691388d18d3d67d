"""A control plane for the tests of a worker, and nodes that go after each test."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.schedulers.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def start_control_plane() -> Iterator[Callable[..., ControlPlane]]:
    """Start control planes with a configuration of their own; they end with the session."""
    started: list[ControlPlane] = []
    folders: list[tempfile.TemporaryDirectory[str]] = []

    def start(**options: Any) -> ControlPlane:
        folders.append(tempfile.TemporaryDirectory(prefix="bedplate-schedulers-"))
        started.append(ControlPlane(Path(folders[-1].name), **options).__enter__())
        return started[-1]

    yield start
    for one in reversed(started):
        one.stop()
    for folder in folders:
        folder.cleanup()


@pytest.fixture(scope="session")
def control_plane(start_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """Return the control plane with the default scheduler that the tests of a worker share."""
    return start_control_plane()
