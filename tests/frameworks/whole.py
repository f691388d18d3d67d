"""Kueue, JobSet and Volcano, the real ones, over Node objects, for the jobs of a team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.frameworks import jobsets
from tests.frameworks.examples import QUEUED, lock
from tests.schedulers.kueue import RunningKueue
from tests.schedulers.locks import nodes_of
from tests.schedulers.nodes import add_nodes
from tests.schedulers.volcano import JOBS, Volcano

if TYPE_CHECKING:
    from tests.schedulers.control_plane import ControlPlane

PATIENCE = 240


class Site:
    """A control plane with 16 GPUs on four nodes, all three add-ons, and the team `vision`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.api = plane, plane.api
        self.lock = lock(*QUEUED)
        jobsets.start(plane)
        self.kueue = RunningKueue(plane, self.lock)
        add_nodes(plane.api, nodes_of(self.lock))
        self.kueue.configure(self.lock)
        self.volcano = Volcano(plane)
        preset = self.lock.cluster.preset if self.lock.cluster else None
        assert preset is not None
        self.volcano.configure(preset)

    def pods(self) -> list[dict[str, Any]]:
        """Return the team's pods."""
        found: list[dict[str, Any]] = self.api.get("pods", "v1", "vision")
        return found

    def placed(self) -> int:
        """Return how many of the team's pods have a node."""
        return sum("nodeName" in pod["spec"] for pod in self.pods())

    def clear(self) -> None:
        """Delete all work of the team."""
        for plural, version in (("jobs", JOBS), ("services", "v1"), ("configmaps", "v1")):
            self.api.delete(self.api.path(plural, version, "vision"))
        self.kueue.clear("vision")
        for plural, namespace in (
            ("persistentvolumeclaims", "vision"),
            ("persistentvolumes", None),
        ):
            self.api.delete(self.api.path(plural, "v1", namespace))
