"""Places in Kueue's queue, as its visibility API has them. Pure, but for the reader it is given."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

QUEUE: Final = "default"
KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
VISIBLE: Final = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues/{}"
#: Students of one course ask for one answer.
FRESH: Final = 1.0


@dataclass(frozen=True)
class Place:
    """Where a pod waits: its place from 1, and how many wait in all."""

    number: int
    waiting: int

    def __str__(self) -> str:
        return f"place {self.number} of {self.waiting}"


def place_of(pending: Mapping[str, Any], uid: str) -> Place | None:
    """Return the place of a pod in the answer about a LocalQueue; None if it does not wait."""
    items = pending.get("items") or []
    for one in items:
        if any(owner.get("uid") == uid for owner in one["metadata"].get("ownerReferences", [])):
            # The API counts from 0 and leaves a 0 out.
            return Place(one.get("positionInLocalQueue", 0) + 1, len(items))
    return None


@dataclass(frozen=True)
class Room:
    """How much of a ClusterQueue's quota is in use, and how many workloads wait for it."""

    used: int
    quota: int
    waiting: int
    active: bool

    def describe(self, each: int) -> str:
        """Say what happens to who asks now for `each` of the resource."""
        free = (self.quota - self.used) // each
        taken, seats = self.used // each, self.quota // each
        if free > 0 and not self.waiting:
            return f"{taken} of {seats} in use: starts at once"
        return f"{taken} of {seats} in use: you would wait in place {self.waiting + 1}"


def room_of(queue: Mapping[str, Any], resource: str) -> Room:
    """Read the room of a ClusterQueue object for one resource."""
    status = queue.get("status", {})
    used = sum(
        int(one.get("total", 0))
        for flavor in status.get("flavorsReservation", [])
        for one in flavor.get("resources", [])
        if one["name"] == resource
    )
    quota = sum(
        int(one.get("nominalQuota", 0))
        for group in queue["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
        for one in flavor["resources"]
        if one["name"] == resource
    )
    active = any(
        one["type"] == "Active" and one["status"] == "True" for one in status.get("conditions", [])
    )
    return Room(used, quota, status.get("pendingWorkloads", 0), active)


class Places:
    """Reads places and room, each answer at most once a second."""

    def __init__(self, get: Callable[[str], Awaitable[Any]]) -> None:
        self._get = get
        self._kept: dict[str, tuple[float, Any]] = {}

    async def _fresh(self, path: str) -> Any:
        when, answer = self._kept.get(path, (0.0, None))
        if answer is None or time.monotonic() - when > FRESH:
            answer = await self._get(path)
            self._kept[path] = (time.monotonic(), answer)
        return answer

    async def place(self, namespace: str, uid: str) -> Place | None:
        """Return the place of a pod in the queue of its namespace."""
        path = VISIBLE.format(namespace, QUEUE) + "/pendingworkloads?limit=10000"
        return place_of(await self._fresh(path), uid)

    async def room(self, queue: str, resource: str) -> Room:
        """Return the room of a ClusterQueue."""
        return room_of(await self._fresh(f"{KUEUE}/clusterqueues/{queue}"), resource)
