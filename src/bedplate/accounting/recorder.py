"""The recorder: follows Workloads from where the last one stopped, and keeps what it sees."""

from __future__ import annotations

import http
import logging
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from bedplate.accounting import ending, measured
from bedplate.accounting.hours import Hours
from bedplate.accounting.records import API, seen, user_of
from bedplate.accounting.turns import Turns
from bedplate.pods.api import ApiError
from bedplate.pods.hub import hours
from bedplate.pods.hub.node_use import PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bedplate.accounting import turns
    from bedplate.accounting.book import Book
    from bedplate.accounting.hours import Limits
    from bedplate.accounting.records import Record, Units
    from bedplate.accounting.store import Store
    from bedplate.pods.api import Api

WORKLOADS = f"/apis/{API}/workloads"
PAGE = 500
QUIET = 150.0
PAUSE = 1.0
#: Seconds after which a change is kept at the latest, and after which `seen` is renewed.
SOON, OFTEN = 5.0, 60.0
OWNERS = {"Job": "jobs", "Pod": "pods", "JobSet": "jobsets", "Deployment": "deployments"}

log = logging.getLogger(__name__)


def listed(api: Api) -> tuple[list[dict[str, Any]], str]:
    """Return all Workloads, and the resource version that they are of. Raises ApiError."""
    items: list[dict[str, Any]] = []
    more = ""
    while True:
        page = api.call("GET", f"{WORKLOADS}?limit={PAGE}{more}")
        items += page.get("items") or []
        if not page["metadata"].get("continue"):
            return items, str(page["metadata"]["resourceVersion"])
        more = f"&continue={page['metadata']['continue']}"


def owner_of(api: Api, workload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a Workload was made for; None where it is gone, or of a kind not known here."""
    owners = workload["metadata"].get("ownerReferences") or []
    # Nobody controls a group of pods: it is known by its first one.
    for one in [one for one in owners if one.get("controller")] or owners[:1]:
        if one["kind"] not in OWNERS:
            continue
        version, namespace = one["apiVersion"], workload["metadata"]["namespace"]
        root = "apis" if "/" in version else "api"
        path = f"/{root}/{version}/namespaces/{namespace}/{OWNERS[one['kind']]}/{one['name']}"
        try:
            found = api.call("GET", path)
        except ApiError as error:
            if error.status in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.FORBIDDEN):
                return None
            raise
        return found if found["metadata"]["uid"] == one["uid"] else None
    return None


def look(api: Api, book: Book, units: Units, now: int) -> tuple[set[str], str]:
    """Take in all Workloads as they are. Returns their UIDs and the resource version."""
    items, version = listed(api)
    for one in items:
        take(api, book, one, units, now)
    return {one["metadata"]["uid"] for one in items}, version


def take(
    api: Api,
    book: Book,
    workload: Mapping[str, Any],
    units: Units,
    now: int,
    *,
    deleted: bool = False,
) -> None:
    """Take in one Workload."""
    said = seen(workload, units, deleted_at=now if deleted else None)
    known = book.of(said.uid)

    def user() -> str:
        before = next((one.user for one in known if one.user), "")
        return before or user_of(owner_of(api, workload), workload)

    book.see(said, now, user)


class Recorder:
    """One at a time: a second one is refused by the store, and starts again from what is kept."""

    def __init__(
        self,
        api: Api,
        store: Store,
        units: Units,
        clock: Callable[[], float] = time.time,
        *,
        use_port: int = PORT,
        use_every: float = measured.EVERY,
        idle: ending.Limits | None = None,
        per_user: turns.Limits | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._api, self._store, self._units, self._clock = api, store, units, clock
        self._use_port, self._use_every = use_port, use_every
        self._idle = idle or {}
        self._hours = Hours(limits or {})
        #: Of this week what has ended, by key, of queues with a limit of hours.
        self._past: dict[tuple[str, int], Record] = {}
        self._table: dict[str, str] = {}
        self._turns = Turns(
            api,
            per_user or {},
            {resource for of in units.values() for resource in of},
            lambda one: user_of(owner_of(api, one), one),
            self._hours.over,
        )
        self._measured_at: float | None = None
        self._events: queue.Queue[dict[str, Any] | ApiError] = queue.Queue()
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self._gone: set[str] = set()
        self._saved = 0.0
        #: Until when the book is known to be right: the last answer of the API server.
        self._known = 0

    def stop(self) -> None:
        """End `run` soon; nothing more is kept."""
        self._stopped.set()
        if self._socket is not None:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                log.debug("the watch has ended already")

    def run(self) -> None:
        """Record until stopped. What fails is tried again from what is kept."""
        while not self._stopped.is_set():
            try:
                self._once()
            except ApiError as error:
                log.warning("%s; reading again what is kept", error)
                self._api.drop()
                self._stopped.wait(PAUSE)

    def _once(self) -> None:
        book, version, last = self._store.load()
        self._gone, self._known = set(), last or 0
        if version is None:
            version = self._list(book)
        now = self._clock()
        self._past = {}
        if self._hours.limits:
            self._remember(self._store.since(self._hours.since(now), now))
        self._save(book, version)
        self._count(book, now)
        self._turns.read()
        while not self._stopped.is_set():
            self._events = queue.Queue()
            reader = threading.Thread(target=self._watch, args=(version,), daemon=True)
            reader.start()
            try:
                version = self._follow(book, version)
            except ApiError as error:
                if error.status != http.HTTPStatus.GONE:
                    raise
                version = self._list(book)
                self._save(book, version)
                self._turns.read()

    def _remember(self, ended: Iterable[Record]) -> None:
        self._past |= {one.key: one for one in ended if one.queue in self._hours.limits}

    def _count(self, book: Book, now: float) -> None:
        """Sum up the week, and write the table where it has changed. Raises ApiError."""
        if not self._hours.limits:
            return
        start = self._hours.since(now)
        self._past = {key: one for key, one in self._past.items() if (one.end or start) >= start}
        self._hours.count((self._past | {one.key: one for one in book}).values(), now)
        if self._table != (table := self._hours.table()):
            self._store.write(hours.NAME, table)
            self._table = table

    def _list(self, book: Book) -> str:
        now = int(self._clock())
        alive, version = look(self._api, book, self._units, now)
        book.lose(alive, self._known)
        self._known = now
        self._gone |= {one.uid for one in book} - alive
        return version

    def _watch(self, version: str) -> None:
        """Put the events after a version into the queue, and in the end the reason for the end."""
        events = self._events
        path = f"{WORKLOADS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        try:
            for change in self._api.stream(path, QUIET, self._opened):
                found = change.get("object") or {}
                if change.get("type") in ("ERROR", None):
                    events.put(ApiError(int(found.get("code", 0)), str(found.get("message"))))
                    return
                events.put(change)
            events.put(ApiError(0, "the watch has ended"))
        except ApiError as error:
            events.put(error)

    def _opened(self, opened: socket.socket) -> None:
        self._socket = opened

    def _follow(self, book: Book, version: str) -> str:
        """Take in events until the watch ends; a watch that ends as it should goes on."""
        dirty: float | None = None
        while not self._stopped.is_set():
            try:
                change = self._events.get(timeout=0.2)
            except queue.Empty:
                change = None
            now = self._clock()
            self._measure(book, now)
            if isinstance(change, ApiError):
                self._save(book, version)
                if change.status:
                    raise change
                self._stopped.wait(PAUSE)
                return version
            if change is not None:
                found = change["object"]
                version = str(found["metadata"]["resourceVersion"])
                self._known = int(now)
                if change["type"] != "BOOKMARK":
                    deleted = change["type"] == "DELETED"
                    self._turns.see(found, deleted=deleted)
                    take(self._api, book, found, self._units, int(now), deleted=deleted)
                    if deleted:
                        self._gone.add(found["metadata"]["uid"])
                    dirty = dirty or now
            idle = change is None and dirty is not None
            if idle or (dirty is not None and now - dirty > SOON) or now - self._saved > OFTEN:
                self._save(book, version)
                dirty = None
        return version

    def _measure(self, book: Book, now: float) -> None:
        """Add what the GPUs did since the last look; without an answer nothing is added."""
        last = self._measured_at
        if last is not None and 0 <= now - last < self._use_every:
            return
        self._measured_at = now
        self._count(book, now)
        self._turns.again()
        lasted = 0.0 if last is None else max(0.0, now - last)
        try:
            found = measured.look(self._api, book, lasted, now, self._use_port)
        except ApiError as error:
            log.warning("the use of GPUs is not known: %s", error)
            return
        for uid, one in found.items():
            book.measure(uid, one.known, one.idle, one.why)
        ending.look(self._api, self._idle, book, found, now)

    def _save(self, book: Book, version: str) -> None:
        if self._stopped.is_set():
            return
        ended = [one for one in book if one.end is not None and one.key in book.changed]
        alive = [one for one in book if one.uid not in self._gone]
        self._store.save(ended, alive, version, self._known)
        self._remember(ended)
        book.changed.clear()
        book.forget(self._gone)
        self._gone = set()
        self._saved = self._clock()
