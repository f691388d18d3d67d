"""CPU that the programs of a control plane spend: other load changes it far less than a pace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.schedulers.control_plane import ControlPlane

CLIENTS = "clients"


def seconds(process: int) -> float:
    """Return the seconds of CPU that a process has used, its threads' too."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def so_far(plane: ControlPlane) -> dict[str, float]:
    """Return the seconds of each program of a control plane, and of this one, the clients'."""
    programs = {name: one.pid for name, one in plane.processes.items()}
    return {name: seconds(process) for name, process in (programs | {CLIENTS: os.getpid()}).items()}


def since(plane: ControlPlane, before: Mapping[str, float], count: int) -> dict[str, float]:
    """Return the milliseconds that each program has spent on one of `count` since then."""
    now = so_far(plane)
    return {name: 1000 * (now[name] - spent) / count for name, spent in before.items()}
