"""Lets the requests of a team's members into the queue as far as each person's limit goes.

An admission policy makes the Workloads of such teams inactive, and marks them: the queue does not
see them. This process alone makes them active, one after the other, so that of requests made at the
same moment no more get in than one person may have. What it has not seen yet, waits. Standard
library only.
"""

from __future__ import annotations

import http
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.records import API
from bedplate.hub.shares import HELD
from bedplate.packing.api import ApiError
from bedplate.portable.quantities import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from bedplate.packing.api import Api

#: By namespace: the team, and the GPUs or shares of it that one person has at most.
Limits = dict[str, tuple[str, int]]
MERGE: Final = "merge-patch+json"
#: Somebody else has changed or deleted it meanwhile: the next event says how.
MEANWHILE: Final = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """A Workload: what it asks for, whose it is, and whether it waits to be let in."""

    path: str
    version: int
    person: tuple[str, str]
    gpus: int
    held: bool
    order: tuple[str, str]


@dataclass
class Turns:
    """The requests of teams with a limit for each person.

    Attributes:
        resources: the names of GPUs and shares.
        owner: the name of who submitted a Workload; empty where that is not known, and all those
            are one person.
    """

    api: Api
    limits: Limits
    resources: Collection[str]
    owner: Callable[[Mapping[str, Any]], str]
    _known: dict[str, _Request] = field(default_factory=dict)

    def read(self) -> None:
        """Take in all Workloads as they are. Raises ApiError."""
        self._known = {}
        for namespace in self.limits:
            for one in self.api.call("GET", f"/apis/{API}/namespaces/{namespace}/workloads")[
                "items"
            ]:
                self._take(one)
        for person in {one.person for one in self._known.values()}:
            self._give(person)

    def see(self, workload: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Take in a change of a Workload, and let in what has room by it. Raises ApiError."""
        meta = workload["metadata"]
        if meta["namespace"] not in self.limits:
            return
        before = self._known.get(meta["uid"])
        if before is not None and int(meta["resourceVersion"]) < before.version:
            return  # of before what was read
        if deleted:
            self._known.pop(meta["uid"], None)
        else:
            self._take(workload)
        now = self._known.get(meta["uid"]) or before
        if now is not None:
            self._give(now.person)

    def again(self) -> None:
        """Let in what was refused to this process before. Raises ApiError."""
        for person in {one.person for one in self._known.values() if one.held}:
            self._give(person)

    def _take(self, workload: Mapping[str, Any]) -> None:
        meta, status = workload["metadata"], workload.get("status") or {}
        held = HELD in (meta.get("annotations") or {})
        ended = any(
            (one["type"], one["status"]) == ("Finished", "True")
            for one in status.get("conditions") or []
        )
        # One that was made inactive holds its quota until its pods are gone.
        lives = held or "admission" in status or workload["spec"].get("active", True)
        if ended or not lives:
            self._known.pop(meta["uid"], None)
            return
        team, known = self.limits[meta["namespace"]][0], self._known.get(meta["uid"])
        self._known[meta["uid"]] = _Request(
            f"/apis/{API}/namespaces/{meta['namespace']}/workloads/{meta['name']}",
            int(meta["resourceVersion"]),
            known.person if known else (team, self.owner(workload)),
            sum(self._of(one) for one in workload["spec"].get("podSets") or []),
            held,
            (meta["creationTimestamp"], meta["name"]),
        )

    def _of(self, group: Mapping[str, Any]) -> int:
        """Return what all pods of a group have at most at a time, as Kueue counts it."""
        spec, together, most = group["template"]["spec"], 0, 0
        for kind in ("containers", "initContainers"):
            for one in spec.get(kind) or []:
                asked = one.get("resources") or {}
                has = {**(asked.get("requests") or {}), **(asked.get("limits") or {})}
                gpus = sum(int(parse(has.get(name, "0"))) for name in self.resources)
                if kind == "containers" or one.get("restartPolicy") == "Always":
                    together += gpus
                else:
                    most = max(most, gpus)
        return int(group.get("count", 1)) * max(together, most)

    def _give(self, person: tuple[str, str]) -> None:
        """Let in what a person has room for, in the order in which it came: nothing passes it."""
        mine = {uid: one for uid, one in self._known.items() if one.person == person}
        most = next(gpus for team, gpus in self.limits.values() if team == person[0])
        has = sum(one.gpus for one in mine.values() if not one.held)
        for uid, one in sorted(mine.items(), key=lambda pair: pair[1].order):
            if not one.held or one.gpus > most:  # as of before the limit was lowered
                continue
            if has + one.gpus > most:
                return
            meta = {"uid": uid, "resourceVersion": str(one.version), "annotations": {HELD: None}}
            body = {"metadata": meta, "spec": {"active": True}}
            try:
                changed = self.api.call("PATCH", one.path, body, MERGE)
            except ApiError as error:
                if not error.status:  # the API server is away
                    raise
                if error.status not in MEANWHILE:
                    log.warning("%s: %s; it is tried again", one.path, error)
                return
            self._take(changed)
            has += one.gpus
            log.info("%s of %s has %d of %d: %s is let in", *reversed(person), has, most, one.path)
