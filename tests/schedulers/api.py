"""A small client of the Kubernetes API: plain dictionaries in and out."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

Object = dict[str, Any]
THREADS = 8
LATE = 504
#: A kept connection may be closed just as it is used again: what may be repeated is, some times.
CLOSED = Retry(
    3,
    connect=0,
    status=0,
    allowed_methods={"GET", "PATCH", "PUT", "DELETE"},
    respect_retry_after_header=False,  # a busy server's 429 is an answer, for the test to see
)
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API refused; `status` is the HTTP status, the text is the API's own message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Calls as one user. Resources are named by plural and group-version: `jobs`, `batch/v1`."""

    def __init__(
        self, server: str, authority: Path, certificate: tuple[Path, Path], **headers: str
    ) -> None:
        self.server = server
        self._files = (authority, certificate)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = str(authority)
        self._session.cert = tuple(map(str, certificate))
        self._session.headers.update(headers)
        adapter = HTTPAdapter(pool_maxsize=THREADS * 4, max_retries=CLOSED)
        self._session.mount("https://", adapter)
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def acting_as(self, user: str, *groups: str) -> Api:
        """Return a client that acts as another user, by the API's own impersonation."""
        other = Api(self.server, *self._files)
        other._session.headers["Impersonate-User"] = user
        for group in groups:
            known = other._session.headers.get("Impersonate-Group")
            assert known is None, "requests sends a header once: one group at most"
            other._session.headers["Impersonate-Group"] = group
        return other

    def call(self, method: str, path: str, body: Object | None = None, **options: Any) -> Any:
        """Make one request and return its answer. Raises ApiError."""
        headers = {"Content-Type": options.pop("content_type", "application/json")}
        data = None if body is None else json.dumps(body)

        def asked() -> requests.Response:
            return self._session.request(
                method, self.server + path, data=data, headers=headers, timeout=300, **options
            )

        # A busy API server gives a request up after half a minute: what may be repeated is.
        answer = eventually(asked, until=lambda it: method == "POST" or it.status_code != LATE)
        if not answer.ok:
            try:
                message = answer.json()["message"]
            except (ValueError, KeyError):
                message = answer.text
            raise ApiError(answer.status_code, message)
        return answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.text

    @staticmethod
    def path(plural: str, version: str = "v1", namespace: str | None = None, name: str = "") -> str:
        """Return the path of a resource, or of all of a kind."""
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{within}/{plural}" + (f"/{name}" if name else "")

    def path_of(self, item: Object, *, named: bool = True) -> str:
        """Return the path of an object; its kind's plural is asked of the API once."""
        version, kind = item["apiVersion"], item["kind"]
        if (version, kind) not in self._plurals:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for one in self.call("GET", root)["resources"]:
                if "/" not in one["name"]:
                    self._plurals[version, one["kind"]] = (one["name"], one["namespaced"])
        if (version, kind) not in self._plurals:
            raise ApiError(404, f"the server has no {kind} in {version}")
        plural, namespaced = self._plurals[version, kind]
        where = item["metadata"].get("namespace", "default") if namespaced else None
        return self.path(plural, version, where, item["metadata"]["name"] if named else "")

    def create(self, item: Object) -> Object:
        """Create an object."""
        return self.call("POST", self.path_of(item, named=False), item)

    def create_all(self, items: Iterable[Object]) -> list[Object]:
        """Create many objects, several at a time; the first error is raised."""
        items = list(items)
        if items:
            self.path_of(items[0])  # asked once, before the threads ask for it
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.create, items))

    def apply(self, item: Object) -> Object:
        """Apply an object on the server's side; conflicts are overridden."""
        query = {"fieldManager": "tests", "force": "true"}
        return self.call("PATCH", self.path_of(item), item, content_type=APPLY, params=query)

    def patch(self, path: str, change: Object, subresource: str = "") -> Object:
        """Change fields of what lies at a path."""
        at = f"{path}/{subresource}" if subresource else path
        return self.call("PATCH", at, change, content_type=MERGE)

    def get(self, plural: str, version: str = "v1", namespace: str | None = None, name: str = ""):
        """Return one object by name, else the items of all, each a dictionary."""
        found = self.call("GET", self.path(plural, version, namespace, name))
        return found if name else found["items"]

    def delete(self, path: str, *, missing_ok: bool = True, **options: Any) -> None:
        """Delete what lies at a path; a path without a name deletes all in a namespace."""
        body = {"propagationPolicy": "Background", **options}
        try:
            self.call("DELETE", path, body)
        except ApiError as error:
            if error.status != 404 or not missing_ok:
                raise

    def watch(self, path: str, version: str, seconds: int = 3600) -> Iterator[Object]:
        """Yield the events after a resource version until the API ends it."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        with self._session.get(
            self.server + path, params=query, stream=True, timeout=(5, None)
        ) as answer:
            for line in answer.iter_lines(chunk_size=None):
                if line:
                    yield json.loads(line)


def eventually[T](
    look: Callable[[], T],
    patience: float = 240,
    pause: float = 0.1,
    *,
    until: Callable[[T], object] = bool,
) -> T:
    """Return the first answer of `look` that is true, or that `until` takes.

    Raises AssertionError with the last one. What a controller writes it may write again: wait for
    what is asserted, not for the first that is there.
    """
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if until(found):
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience} s; last seen: {found!r}")
        time.sleep(pause)
