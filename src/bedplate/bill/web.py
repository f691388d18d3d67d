"""All that is fetched from vendors or a mirror: retried where that helps, counted, explained.

Small files come whole. Large ones come in blocks, and go on where a connection broke off.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from bedplate.bill.errors import UNANSWERED, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader
    from pathlib import Path
    from threading import Event

    from bedplate.bill.errors import ResolveError

SECONDS = (10, 60)  # to connect, and between two reads
#: For the whole of a small file.
WHOLE_SECONDS = 600.0
CONNECTIONS = 16
#: How often an answer that says "later" is asked for again; the waits double from half a second,
#: unless the server names its own.
ATTEMPTS, BACKOFF = 4, 0.5
#: A server that wants a longer wait is asked again after this one, in seconds, and then given up.
LONGEST_WAIT = 20
LATER = (429, 500, 502, 503, 504)
OK, PARTIAL, UNAUTHORISED = 200, 206, 401
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
#: No small file is larger: a whole index of packages has a few megabytes.
LARGEST = 64 * 1024 * 1024
#: How often a large file that breaks off is taken up again, and how many seconds after.
RESUMED, PAUSE = 5, 0.5
#: A server that gives less than so many bytes in so many seconds does not give a large file, and
#: fewer bytes before it breaks off are no step ahead.
SLOWEST_BYTES, SLOWEST_SECONDS = 64 << 10, 60.0
#: The most that is read at once, in bytes: with less, large files take more of a CPU.
BLOCK = 1 << 18
#: What an answer fails with that breaks off.
BROKEN = (HTTPError, http.client.HTTPException, OSError)
#: Of a length: more than any file has, and than Python reads as a number.
LENGTH = re.compile("[0-9]{1,18}")
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class StoppedError(Exception):
    """Another part of the run has failed, or the user has interrupted it."""


@dataclass
class Traffic:
    """How much was asked and came."""

    requests: int = 0
    received: int = 0
    hosts: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Own:
    """Servers of the site's own: what is asked below their addresses, and only that, gets these.

    Attributes:
        below: addresses, each with a slash at its end.
        ca: certificates of their authorities; None for those of the machine.
        login: user and password.
    """

    below: tuple[str, ...]
    ca: Path | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)

    def has(self, url: str) -> bool:
        """Say whether an address is theirs."""
        return url.startswith(self.below)

    def logs_in(self, url: str, bearing: bool) -> tuple[str, str] | None:
        """Return user and password for an address of theirs that is asked without a token."""
        return self.login if not bearing and self.has(url) else None


class Web:
    """A client with connections that are kept, for several threads."""

    def __init__(self, ca: Path | None = None, own: Own | None = None) -> None:
        self._own = own or Own(())
        self._session = requests.Session()
        # What is hashed and counted is what was sent: no compression on the way.
        self._session.headers.update({"User-Agent": "bedplate", "Accept-Encoding": "identity"})
        self._authorities = str(ca) if ca is not None else _authorities()
        retry = Retry(
            total=ATTEMPTS,
            other=0,  # such as a certificate that is not trusted: it will not be the next time
            backoff_factor=BACKOFF,
            status_forcelist=LATER,
            respect_retry_after_header=True,
            retry_after_max=LONGEST_WAIT,
            raise_on_status=False,
        )
        adapter = HTTPAdapter(max_retries=retry, pool_maxsize=CONNECTIONS)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()
        self.traffic = Traffic()

    def close(self) -> None:
        """Close every connection."""
        self._session.close()

    def content(self, url: str, what: str, digest: str = "") -> bytes:
        """Return what an address gives; an anonymous login to a registry is done.

        Raises:
            ResolveError: it gives nothing, or not what has *digest* where that is named; *what*
                says what was looked for.
        """
        body = self._whole(url, lambda: self._let_in(url, what))[1]
        _expect(digest, _digest(body), what, url)
        return body

    def size(self, url: str, what: str) -> int:
        """Return how many bytes an address would give.

        Raises:
            ResolveError: there is nothing, or the server does not say how much.
        """
        with self._answer("HEAD", url) as answer:
            length = _declared(answer)
        if length is None:
            raise refused(what, url, _failure(answer) or "an answer without its length")
        return length

    def length(self, url: str) -> int | None:
        """Return how many bytes an address would give; None where there is nothing.

        Raises:
            ResolveError: no server answered.
        """
        with self._answer("HEAD", url) as answer:
            return _declared(answer)

    def put(self, url: str, file: Path) -> int:
        """Put a file at an address of the site's own, and return the server's status.

        Raises:
            ResolveError: no server answered.
        """
        with file.open("rb") as content, self._answer("PUT", url, body=content) as answer:
            status: int = answer.status_code
        return status

    def manifest(self, url: str, what: str, digest: str | None = None) -> tuple[bytes, str, str]:
        """Return an image's manifest, its media type and digest; an anonymous login is done.

        Raises:
            ResolveError: the registry does not give it, or gives another one than *digest*.
        """
        accept = {"Accept": ", ".join(INDEXES + MANIFESTS)}
        answer, body = self._whole(url, lambda: self._let_in(url, what, accept))
        found = _digest(body)
        said = answer.headers.get("Docker-Content-Digest", found)
        if said != found:
            raise refused(what, url, f"content {found} under the name {said}")
        _expect(digest, found, what, url)
        return body, answer.headers.get("Content-Type", "").partition(";")[0], found

    def blocks(
        self, url: str, name: str, size: int, offset: int = 0, stop: Event | None = None
    ) -> Iterator[bytes]:
        """Yield a large file from an offset on; it goes on where a connection broke off.

        Args:
            url: may be a registry's, whose anonymous login is done.
            name: of the file, for messages.
            size: of all of it, in bytes.
            offset: how many bytes are there already.
            stop: ends it, in a pause too.

        Raises:
            ResolveError: no server gives it, it breaks off again and again, or has another size.
            StoppedError: *stop* was set.
        """
        stop, attempts = stop or threading.Event(), 0
        while offset < size:
            begun = offset
            try:
                for block in self._from(url, name, size, offset):
                    if stop.is_set():
                        raise StoppedError
                    offset += len(block)
                    yield block
            except BROKEN as error:
                attempts = 1 if offset - begun >= SLOWEST_BYTES else attempts + 1
                if attempts >= RESUMED:
                    raise refused(f"{name} breaks off", url, reason_of(error)) from error
                if stop.wait(PAUSE * attempts):
                    raise StoppedError from error

    def _from(self, url: str, name: str, size: int, offset: int) -> Iterator[bytes]:
        """Yield what comes of a large file before its connection ends, from an offset on."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._let_in(url, f"{name} is not found", headers) as answer:
            # A server that gives no rest of a file gives all of it again.
            at = offset if answer.status_code == PARTIAL else 0
            length = _declared(answer)
            if length is not None and at + length != size:
                what, got = f"{name} has another size than listed", f"{at + length} bytes"
                fix = "find out why its publisher changed it"
                raise refused(what, url, got, f"{size} bytes", fix)
            since, came = time.monotonic(), 0
            for block in self._pieces(answer, decode=False):
                came += len(block)
                if (now := time.monotonic()) - since > SLOWEST_SECONDS:
                    if came < SLOWEST_BYTES:
                        raise TimeoutError(f"{came} bytes in {now - since:.0f} s")
                    since, came = now, 0
                if new := block[max(offset - at, 0) : size - at]:
                    yield new
                at += len(block)
                if length is None and at >= size:
                    return
        if at < size:
            raise ConnectionError("the connection ended")

    def _let_in(
        self, url: str, what: str, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Open an answer to a GET, with a registry's token where it asks for one.

        Raises:
            ResolveError: it is none with content.
        """
        repository = url.rsplit("/", 2)[0]
        for again in (True, False):
            bearing = _bearing(self._tokens.get(repository))
            answer = self._answer("GET", url, {**(headers or {}), **bearing})
            if not _failure(answer):
                return answer
            answer.close()
            if answer.status_code != UNAUTHORISED or not again:
                break
            challenge = answer.headers.get("WWW-Authenticate", "")
            self._tokens[repository] = self._token(challenge, url, what)
        raise refused(what, url, _failure(answer))

    def _token(self, challenge: str, url: str, what: str) -> str:
        """Ask for the token that a registry hands out to everybody."""
        scheme, _, rest = challenge.partition(" ")
        asked = dict(CHALLENGE.findall(rest))
        realm = asked.pop("realm", "")
        if scheme.lower() == "basic" and self._own.has(url):
            raise self._no_login(url, what)
        if scheme.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            raise refused(what, url, f"a login by {challenge or 'an unnamed way'}")
        if url.startswith("https://") and not realm.startswith("https://"):
            raise refused(what, url, f"a login over {realm}, which is not encrypted")
        query = requests.models.PreparedRequest()
        query.prepare_url(realm, asked)
        login = self._own.login if self._own.has(url) else None
        address = str(query.url)
        answer, body = self._whole(address, lambda: self._answer("GET", address, login=login))
        if answer.status_code == UNAUTHORISED and self._own.has(url):
            raise self._no_login(url, what)
        try:
            found: dict[str, Any] = json.loads(body)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, TypeError) as error:
            raise refused(what, realm, f"HTTP {answer.status_code} and no token") from error

    def _no_login(self, url: str, what: str) -> ResolveError:
        return refused(
            what,
            url,
            "a login that the server does not take" if self._own.login else "no login",
            "a user and password of this server's",
            "correct bedplate_sources_login in the site",
        )

    def _whole(
        self, url: str, opened: Callable[[], requests.Response]
    ) -> tuple[requests.Response, bytes]:
        """Return a small answer, which is opened again where it breaks off, and its bytes."""
        for left in reversed(range(ATTEMPTS)):
            body, begun = bytearray(), time.monotonic()
            try:
                with opened() as answer:
                    for block in self._pieces(answer, decode=True):
                        body += block
                        if len(body) > LARGEST:
                            raise refused("answer is too large", url, f"more than {LARGEST} bytes")
                        if time.monotonic() - begun > WHOLE_SECONDS:
                            got = f"{len(body)} bytes in {WHOLE_SECONDS:.0f} s"
                            raise refused("answer takes too long", url, got, "a whole answer")
                break
            except BROKEN as error:
                if not left:
                    raise _unanswered(url, error) from error
        return answer, bytes(body)

    def _pieces(self, answer: requests.Response, *, decode: bool) -> Iterator[bytes]:
        """Yield what has come so far, again and again: a server that drips fills no block."""
        while block := answer.raw.read1(BLOCK, decode_content=decode):
            with self._lock:
                self.traffic.received += len(block)
            yield block

    def _answer(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        login: tuple[str, str] | None = None,
        body: BufferedReader | None = None,
    ) -> requests.Response:
        bearing = "Authorization" in (headers or {})
        authorities = str(self._own.ca) if self._own.ca and self._own.has(url) else None
        try:
            # Authorities with each request: the environment wins over what a session has.
            answer = self._session.request(
                method,
                url,
                headers=headers,
                timeout=SECONDS,
                stream=True,
                data=body,
                # A sign-in page would answer for the file.
                allow_redirects=body is None,
                verify=authorities or self._authorities,
                auth=login or self._own.logs_in(url, bearing),
            )
        except (requests.RequestException, OSError) as error:
            raise _unanswered(
                url, error, "bedplate_sources.ca" if authorities else "--ca"
            ) from error
        with self._lock:
            self.traffic.requests += 1 + len(answer.history)
            self.traffic.hosts |= {urlsplit(one.url).netloc for one in (*answer.history, answer)}
        return answer


def _declared(answer: requests.Response) -> int | None:
    """Return the length that an answer names of its content; None where it names or has none."""
    length = answer.headers.get("Content-Length", "")
    return int(length) if not _failure(answer) and LENGTH.fullmatch(length) else None


def _failure(answer: requests.Response) -> str:
    """Return an answer's status as a reason; empty where it is the thing itself, or its rest."""
    good = answer.status_code in (OK, PARTIAL)
    return "" if good else f"HTTP {answer.status_code} {answer.reason}"


def _digest(content: bytes) -> str:
    """Return the digest of some bytes, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _expect(digest: str | None, found: str, what: str, url: str) -> None:
    if digest and digest != found:
        raise refused(what, url, f"content {found}", f"content {digest}")


def _unanswered(url: str, error: Exception, named: str = "--ca") -> ResolveError:
    """Return the error for a host: one a host, however many of its addresses were asked."""
    place = urlsplit(url)
    if isinstance(error, requests.exceptions.SSLError):
        return refused(
            "host is not trusted",
            place.netloc,
            reason_of(error),
            "a certificate of a known authority",
            f"where an authority of your own signs it, name its certificate with {named}",
        )
    return refused(
        UNANSWERED,
        place.netloc,
        reason_of(error),
        "an answer",
        f"see that this machine reaches it: curl -I {place.scheme}://{place.netloc}/; "
        "behind a proxy, set https_proxy",
    )


def _bearing(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _authorities() -> str | bool:
    """Return the authorities that this machine trusts, not those of a Python package."""
    paths = ssl.get_default_verify_paths()
    return os.environ.get("REQUESTS_CA_BUNDLE") or paths.cafile or paths.capath or True


def reason_of(error: BaseException) -> str:
    """Return the innermost reason: urllib3 wraps it several times."""
    while True:
        # urllib3 puts what it was connected to before its reason.
        inner = getattr(error, "reason", None) or next(
            (one for one in error.args if isinstance(one, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            return str(error).partition("): ")[2] or str(error)
        error = inner
