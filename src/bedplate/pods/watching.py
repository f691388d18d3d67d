"""A list and the watch that follows it, kept up in a thread."""

from __future__ import annotations

import contextlib
import http
import logging
import socket
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

from bedplate.pods.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedplate.pods.api import Api

QUIET = 90.0
"""Seconds without an event or bookmark after which a watch counts as broken."""

PAUSE = 1.0
"""Seconds between attempts."""

LASTING = 600
"""Seconds after which the API server ends a watch."""


class Watched:
    """Objects of one path. Its handlers are called under the lock that is passed."""

    def __init__(
        self,
        api: Api,
        path: str,
        lock: threading.RLock,
        clock: Callable[[], float],
        *,
        listed: Callable[[list[dict[str, Any]], float], None],
        event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._api, self._path, self._lock, self._clock = api, path, lock, clock
        self._listed, self._event = listed, event
        self._again = threading.Event()
        self._socket: socket.socket | None = None
        self._broken: float | None = clock()
        self._listed_at = float("-inf")
        self.error = "nothing was listed yet"

    def start(self) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self._run, name=self._path, daemon=True).start()

    def fresh(self, since: float, grace: float) -> bool:
        """Return whether objects were listed after a moment and the watch holds.

        A watch that broke less than `grace` seconds ago holds still.
        """
        broken = self._broken
        holds = broken is None or self._clock() - broken < grace
        return holds and self._listed_at >= since

    def again(self) -> None:
        """End the watch, so that everything is listed again."""
        self._again.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed already
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _run(self) -> None:
        while True:
            try:
                self._follow(self._list())
            except ApiError as error:
                if self._again.is_set():
                    continue
                self.error = str(error)
                if error.status != http.HTTPStatus.GONE and self._broken is None:
                    self._broken = self._clock()
                self._api.drop()
                threading.Event().wait(PAUSE)
            except Exception as error:  # an object that nobody foresaw: what is seen has a hole
                logging.getLogger(__name__).exception("watch of %s", self._path)
                self.error = repr(error)
                self._listed_at = float("-inf")
                threading.Event().wait(PAUSE)

    def _list(self) -> str:
        """List all objects from the API server's store and return their version."""
        self._again.clear()
        asked = self._clock()
        items: list[dict[str, Any]] = []
        query = {"limit": "2000"}
        while True:
            page = self._api.call("GET", f"{self._path}{_joined(self._path, query)}")
            items += page.get("items") or []
            more = page["metadata"].get("continue")
            if not more:
                break
            query["continue"] = more
        with self._lock:
            self._listed(items, asked)
            self._listed_at = asked
            self._broken = None
        return str(page["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        while not self._again.is_set():
            query = {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(LASTING),
                "resourceVersion": version,
            }
            path = f"{self._path}{_joined(self._path, query)}"
            for change in self._api.stream(path, QUIET, self._opened):
                kind, found = change.get("type"), change.get("object") or {}
                if kind == "ERROR" or kind is None:
                    raise ApiError(int(found.get("code", 0)), str(found.get("message", change)))
                version = found["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    with self._lock:
                        self._event(kind, found)

    def _opened(self, opened: socket.socket) -> None:
        self._socket = opened
        if self._again.is_set():  # asked for in the moment before
            self.again()


def _joined(path: str, query: dict[str, str]) -> str:
    return ("&" if "?" in path else "?") + urllib.parse.urlencode(query)
