"""Where the recorder keeps its records: ConfigMaps, which every cluster keeps without a volume.

`open` has the records of the Workloads that are there, and the resource version up to which they
are known. What has ended is in a ConfigMap of the day of its end, or in several of one day. The
days are written first: a recorder that is killed in between writes the same records again, under
the same keys.
"""

from __future__ import annotations

import base64
import gzip
import http
import itertools
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.book import Book, lines, read_lines
from bedplate.accounting.records import Record, seconds, written
from bedplate.pods.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.pods.api import Api

NAMESPACE: Final = "bedplate-accounting"
OPEN: Final = "open"
CONTENT: Final = "records.jsonl.gz"
PART: Final = "bedplate.io/usage"
#: Records in one ConfigMap: some 60 bytes each once packed, of the MiB that an object may have.
MOST: Final = 8000
DAY: Final = 86400


class Store:
    """The ConfigMaps of one namespace."""

    def __init__(self, api: Api, namespace: str = NAMESPACE) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._namespace = namespace
        self._version: str | None = None

    def load(self) -> tuple[Book, str | None, int | None]:
        """Return the open records, the resource version, and when it was written; or nothing."""
        found = self._read(OPEN)
        if found is None:
            return Book(), None, None
        self._version = found["metadata"]["resourceVersion"]
        data = found.get("data") or {}
        return Book(_records(found)), data.get("resourceVersion"), seconds(data.get("seen"))

    def save(
        self, ended: Iterable[Record], alive: Iterable[Record], version: str, now: int
    ) -> None:
        """Keep what has ended by its day, then what is open, with the version they are known at.

        Raises:
            ApiError: 409 where another recorder has written since.
        """
        by_day: dict[str, list[Record]] = {}
        for one in ended:
            by_day.setdefault(str(written(one.end))[:10], []).append(one)
        for day, records in sorted(by_day.items()):
            self._add(day, records)
        data = {"resourceVersion": version, "seen": str(written(now))}
        body = self._object(OPEN, alive, data)
        if self._version is None:
            made = self._api.call("POST", self._path, body)
        else:
            body["metadata"]["resourceVersion"] = self._version
            made = self._api.call("PUT", f"{self._path}/{OPEN}", body)
        self._version = made["metadata"]["resourceVersion"]

    def everything(self) -> Book:
        """Return all records, open ones too."""
        query = f"{self._path}?labelSelector={PART}"
        return Book(one for item in self._api.call("GET", query)["items"] for one in _records(item))

    def since(self, start: int, now: float) -> Iterator[Record]:
        """Yield what has ended from the day on that began at a time, in seconds since 1970."""
        for moment in range(start, int(now) + 1, DAY):
            for number in itertools.count():
                found = self._read(f"{str(written(moment))[:10]}-{number}")
                if found is None:
                    break
                yield from _records(found)

    def write(self, name: str, data: dict[str, str]) -> None:
        """Keep a table under a name, whatever was there before. Raises ApiError."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self._namespace},
            "data": data,
        }
        try:
            self._api.call("PUT", f"{self._path}/{name}", body)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            self._api.call("POST", self._path, body)

    def names(self) -> list[str]:
        """Return the names of the ConfigMaps that have records."""
        found = self._api.call("GET", f"{self._path}?labelSelector={PART}")["items"]
        return [str(one["metadata"]["name"]) for one in found]

    def _add(self, day: str, records: list[Record]) -> None:
        """Write records into the ConfigMaps of a day; each has one place, and keeps it."""
        left = {one.key: one for one in records}
        for number in range(1000):
            name = f"{day}-{number}"
            found = self._read(name)
            kept = Book(_records(found)) if found is not None else Book()
            before = {one.key for one in kept}
            room = MOST - len(before)
            mine = [one for key, one in left.items() if key in before]
            mine += [one for key, one in left.items() if key not in before][: max(0, room)]
            kept.add(mine)
            if kept.changed:
                body = self._object(name, kept, {})
                if found is None:
                    self._api.call("POST", self._path, body)
                else:
                    body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                    self._api.call("PUT", f"{self._path}/{name}", body)
            for one in mine:
                del left[one.key]
            if not left or found is None:
                break
        if left:
            self._add(day, list(left.values()))

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            return self._api.call("GET", f"{self._path}/{name}")
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def _object(self, name: str, records: Iterable[Record], data: dict[str, str]) -> dict[str, Any]:
        packed = gzip.compress(lines(records).encode(), mtime=0)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {PART: "open" if name == OPEN else "ended"},
            },
            "data": data,
            "binaryData": {CONTENT: base64.b64encode(packed).decode()},
        }


def _records(found: dict[str, Any]) -> list[Record]:
    packed = (found.get("binaryData") or {}).get(CONTENT)
    if packed is None:
        return []
    return read_lines(gzip.decompress(base64.b64decode(packed)).decode())
