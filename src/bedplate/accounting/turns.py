"""Lets the requests of a team's members into the queue as far as each person's limit goes.

An admission policy makes the Workloads of such teams inactive, and marks them: the queue does not
see them. This process alone makes them active, one after the other, so that of requests made at the
same moment no more get in than one person may have. What it has not seen yet, waits. What waits in
the queue of who has used up the hours of a week is marked again. Standard library only.
"""

from __future__ import annotations

import http
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.hours import OF_WEEK
from bedplate.accounting.records import API
from bedplate.pods.api import ApiError
from bedplate.pods.hub.shares import HELD
from bedplate.portable.quantities import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from bedplate.pods.api import Api

#: By namespace: the team, and the GPUs or shares of it that one person has at most at once.
Limits = dict[str, tuple[str, int | None]]
MERGE: Final = "merge-patch+json"
#: Somebody else has changed or deleted it meanwhile: the next event says how.
MEANWHILE: Final = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT)

log = logging.getLogger(__name__)


def reason(team: str, gpus: int | None) -> str:
    """Return why a request waits that came in now."""
    if gpus is None:
        return "this waits until it is counted to its person"
    return (
        f"one person has at most {gpus} GPUs or shares of team {team} at once: "
        "this waits until enough of theirs have ended"
    )


@dataclass(frozen=True)
class _Request:
    """A Workload: what it asks for, whose it is, and why it waits to be let in, if it does."""

    uid: str
    path: str
    version: int
    person: tuple[str, str]
    gpus: int
    held: str
    admitted: bool
    order: tuple[str, str]


@dataclass
class Turns:
    """The requests of teams with a limit for each person.

    Attributes:
        resources: the names of GPUs and shares.
        owner: the name of who submitted a Workload; empty where that is not known, and all those
            are one person.
        over: why a person of a team gets nothing more in this week; empty for who does.
    """

    api: Api
    limits: Limits
    resources: Collection[str]
    owner: Callable[[Mapping[str, Any]], str]
    over: Callable[[str, str], str] = lambda _team, _user: ""
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
        """Let in what was refused to this process before, or has room by time. Raises ApiError."""
        for person in {
            one.person for one in self._known.values() if one.held or self.over(*one.person)
        }:
            self._give(person)

    def _take(self, workload: Mapping[str, Any]) -> None:
        meta, status = workload["metadata"], workload.get("status") or {}
        held = (meta.get("annotations") or {}).get(HELD, "")
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
            meta["uid"],
            f"/apis/{API}/namespaces/{meta['namespace']}/workloads/{meta['name']}",
            int(meta["resourceVersion"]),
            known.person if known else (team, self.owner(workload)),
            sum(self._of(one) for one in workload["spec"].get("podSets") or []),
            held,
            "admission" in status,
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
        mine = sorted(
            (one for one in self._known.values() if one.person == person), key=lambda one: one.order
        )
        if why := self.over(*person):
            # In the queue too it would start, however long after the hours have been used up.
            for one in mine:
                if one.gpus and not one.admitted and one.held != why:
                    self._mark(one, why)
            return
        limit = next(gpus for team, gpus in self.limits.values() if team == person[0])
        most = math.inf if limit is None else limit
        has = sum(one.gpus for one in mine if not one.held)
        for one in mine:
            if not one.held or one.gpus > most:  # as of before the limit was lowered
                continue
            if has + one.gpus > most:
                self._mark_again(mine, reason(person[0], limit))
                return
            if not self._mark(one, ""):
                return
            has += one.gpus
            log.info("%s of %s has %d of %s: %s is let in", *reversed(person), has, most, one.path)

    def _mark_again(self, mine: list[_Request], why: str) -> None:
        """Give those another reason that have waited for their person's next week."""
        for one in mine:
            if OF_WEEK in self._known[one.uid].held:
                self._mark(one, why)

    def _mark(self, one: _Request, why: str) -> bool:
        """Let one wait and say why, or let it in without a reason; False where that is refused."""
        meta = {"uid": one.uid, "resourceVersion": str(one.version)}
        body: dict[str, Any] = {"metadata": {**meta, "annotations": {HELD: why or None}}}
        if bool(one.held) != bool(why):
            body["spec"] = {"active": not why}
        try:
            changed = self.api.call("PATCH", one.path, body, MERGE)
        except ApiError as error:
            if not error.status:  # the API server is away
                raise
            if error.status not in MEANWHILE:
                log.warning("%s: %s; it is tried again", one.path, error)
            return False
        self._take(changed)
        return True
