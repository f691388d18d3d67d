"""Calls to the API server with the standard library, over kept connections: from pods, and here."""

from __future__ import annotations

import http.client
import json
import os
import select
import ssl
import threading
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Callable, Iterator, Mapping

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ApiError(Exception):
    """An answer that is none of success. `status` 0: no answer came, the outcome is unknown."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Access:
    """Where the API server is, and who asks it."""

    server: str
    ca: Path | None = None
    token: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def of_pod() -> Access | None:
    """Return how the account of this pod asks; None outside of one."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host:
        return None
    address = f"[{host}]" if ":" in host else host
    return Access(f"https://{address}:{port}", ACCOUNT / "ca.crt", ACCOUNT / "token")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a program that asks the API server: in a pod none is needed."""
    inside = of_pod()
    parser.add_argument("--server", required=inside is None, help="API server")
    for name in ("ca", "token", "certificate", "key"):
        parser.add_argument(f"--{name}", type=Path)
    parser.set_defaults(**vars(inside) if inside else {})


def chosen(given: argparse.Namespace) -> Access:
    """Return what those options say."""
    return Access(given.server, given.ca, given.token, given.certificate, given.key)


class Api:
    """One connection a thread, opened when it is needed. All bodies are JSON."""

    def __init__(self, access: Access, timeout: float = 5.0) -> None:
        address = urllib.parse.urlsplit(access.server)
        self._host, self._port = address.hostname or "", address.port or 443
        self._plain = address.scheme == "http"
        self._token = access.token
        self._timeout = timeout
        self._own = threading.local()
        self._tls = ssl.create_default_context(cafile=str(access.ca) if access.ca else None)
        if access.certificate:
            self._tls.load_cert_chain(access.certificate, access.key)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "json"
    ) -> dict[str, Any]:
        """Return the answer's document. Raises ApiError."""
        return _document(self._answer(method, path, body, kind))

    def text(self, path: str) -> str:
        """Return the text at a path, such as a pod's log. Raises ApiError."""
        return self._answer("GET", path).decode(errors="replace")

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "json"
    ) -> bytes:
        try:
            connection = self._kept()
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, self._headers(f"application/{kind}"))
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.drop()
            raise ApiError(0, f"{method} {path}: {error!r}") from error
        if status >= http.HTTPStatus.BAD_REQUEST:
            message = _document(text).get("message")
            raise ApiError(status, str(message or f"{method} {path}: {status}"))
        return text

    def _kept(self) -> http.client.HTTPConnection:
        """Return this thread's connection; a new one where the server has closed it, being idle."""
        found: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if found is not None and found.sock is not None:
            looking = select.poll()
            looking.register(found.sock, select.POLLIN)
            if looking.poll(0):  # nothing was asked: what can be read is the end
                self.drop()
                found = None
        if found is None:
            found = self._own.connection = self._connect(self._timeout)
        return found

    def drop(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def stream(
        self, path: str, quiet: float, opened: Callable[[socket.socket], None]
    ) -> Iterator[dict[str, Any]]:
        """Yield a watch's events until it ends. Raises ApiError, after `quiet` silent seconds too.

        The connection is the stream's own; who shuts its socket down ends the stream.
        """
        connection = self._connect(quiet)
        try:
            connection.connect()
            opened(connection.sock)
            connection.request("GET", path, headers=self._headers("application/json"))
            answer = connection.getresponse()
            if answer.status >= http.HTTPStatus.BAD_REQUEST:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield _document(line)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"GET {path}: {error!r}") from error
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._plain:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._tls
        )

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._token is not None:  # read every time: kubelet renews it
            headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        return headers


def _document(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text or b"{}")
    except ValueError:
        return {"message": text[:200].decode(errors="replace")}
    return document if isinstance(document, dict) else {}
