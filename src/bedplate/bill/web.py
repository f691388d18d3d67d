"""Small requests to vendors or a mirror: retried where that helps, counted, failures explained."""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from bedplate.bill.errors import UNANSWERED, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader
    from pathlib import Path

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
#: No small file is larger: a whole index of packages has a few megabytes.
LARGEST = 64 * 1024 * 1024
#: Of a length: more than any file has, and than Python reads as a number.
LENGTH = re.compile("[0-9]{1,18}")
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Answer:
    """What a server answered in the end: its status with reason, headers and bytes."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def failure(self) -> str:
        """Return the status as a reason; empty where the answer is the thing itself."""
        return "" if self.status == OK else f"HTTP {self.status} {self.reason}"


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

    def read(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to a GET, whatever its status.

        Raises:
            ResolveError: nobody answered, or the answer is too large to be a small file.
        """
        return self._ask("GET", url, headers)

    def content(self, url: str, what: str) -> bytes:
        """Return what an address gives; an anonymous login to a registry is done.

        Raises:
            ResolveError: it gives nothing; *what* says what was looked for.
        """
        return self._let_in(url, {}, what).body

    def size(self, url: str, what: str) -> int:
        """Return how many bytes an address would give.

        Raises:
            ResolveError: there is nothing, or the server does not say how much.
        """
        answer = self._ask("HEAD", url, None)
        length = declared(answer.headers)
        if answer.failure or length is None:
            raise refused(what, url, answer.failure or "an answer without its length")
        return length

    def length(self, url: str) -> int | None:
        """Return how many bytes an address would give; None where there is nothing.

        Raises:
            ResolveError: no server answered.
        """
        answer = self._ask("HEAD", url, None)
        return None if answer.failure else declared(answer.headers)

    def put(self, url: str, file: Path) -> int:
        """Put a file at an address of the site's own, and return the server's status.

        Raises:
            ResolveError: no server answered.
        """
        with file.open("rb") as content, self._answer("PUT", url, None, body=content) as answer:
            self._count(answer, 0)
            status: int = answer.status_code
        return status

    def manifest(self, url: str, accept: str, what: str) -> tuple[bytes, str, str]:
        """Return an image's manifest, its media type and digest; an anonymous login is done.

        Raises:
            ResolveError: the registry does not give it.
        """
        answer = self._let_in(url, {"Accept": accept}, what)
        found = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        said = answer.headers.get("Docker-Content-Digest", found)
        if said != found:
            raise refused(what, url, f"content {found} under the name {said}")
        return answer.body, answer.headers.get("Content-Type", "").partition(";")[0], found

    def _let_in(self, url: str, headers: Mapping[str, str], what: str) -> Answer:
        """Return the answer to a GET, with a registry's token where it asks for one."""
        repository = url.rsplit("/", 2)[0]
        token = self._tokens.get(repository)
        answer = self.read(url, {**headers, **_bearing(token)})
        if answer.status == UNAUTHORISED:
            token = self._token(answer.headers.get("WWW-Authenticate", ""), url, what)
            self._tokens[repository] = token
            answer = self.read(url, {**headers, **_bearing(token)})
        if answer.failure:
            raise refused(what, url, answer.failure)
        return answer

    @contextmanager
    def opened(self, url: str, what: str, offset: int = 0) -> Iterator[requests.Response]:
        """Open a large file from an offset on; an anonymous login to a registry is done.

        The answer is 200 with all of the file, or 206 with the rest of it; its bytes are in `raw`.

        Raises:
            ResolveError: no server gives it; *what* says what was looked for.
        """
        repository = url.rsplit("/", 2)[0]
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        for again in (True, False):
            token = self._tokens.get(repository)
            with self._answer("GET", url, {**headers, **_bearing(token)}) as answer:
                if answer.status_code == UNAUTHORISED and again:
                    challenge = answer.headers.get("WWW-Authenticate", "")
                    self._tokens[repository] = self._token(challenge, url, what)
                    continue
                if answer.status_code not in (OK, PARTIAL):
                    raise refused(what, url, f"HTTP {answer.status_code} {answer.reason}")
                self._count(answer, 0)
                yield answer
                return

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
        answer = self._ask("GET", str(query.url), None, login)
        if answer.status == UNAUTHORISED and self._own.has(url):
            raise self._no_login(url, what)
        try:
            found: dict[str, Any] = json.loads(answer.body)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, TypeError) as error:
            raise refused(what, realm, f"HTTP {answer.status} and no token") from error

    def _no_login(self, url: str, what: str) -> ResolveError:
        return refused(
            what,
            url,
            "a login that the server does not take" if self._own.login else "no login",
            "a user and password of this server's",
            "correct bedplate_sources_login in the site",
        )

    def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        login: tuple[str, str] | None = None,
    ) -> Answer:
        for left in reversed(range(ATTEMPTS)):
            try:
                answer, body = self._whole(method, url, headers, login)
                break
            except requests.RequestException as error:  # broken off on the way
                if not left:
                    raise _unanswered(url, error) from error
        self._count(answer, len(body))
        return Answer(answer.status_code, str(answer.reason), answer.headers, bytes(body))

    def _count(self, answer: requests.Response, size: int) -> None:
        with self._lock:
            self.traffic.requests += 1 + len(answer.history)
            self.traffic.received += size
            self.traffic.hosts |= {urlsplit(one.url).netloc for one in (*answer.history, answer)}

    def _whole(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        login: tuple[str, str] | None,
    ) -> tuple[requests.Response, bytearray]:
        body, begun = bytearray(), time.monotonic()
        with self._answer(method, url, headers, login) as answer:
            for block in _pieces(answer):
                body += block
                if len(body) > LARGEST:
                    raise refused("answer is too large", url, f"more than {LARGEST} bytes")
                if time.monotonic() - begun > WHOLE_SECONDS:
                    got = f"{len(body)} bytes in {WHOLE_SECONDS:.0f} s"
                    raise refused("answer takes too long", url, got, "a whole answer")
        return answer, body

    def _answer(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        login: tuple[str, str] | None = None,
        body: BufferedReader | None = None,
    ) -> requests.Response:
        bearing = "Authorization" in (headers or {})
        authorities = str(self._own.ca) if self._own.ca and self._own.has(url) else None
        try:
            # Authorities with each request: the environment wins over what a session has.
            return self._session.request(
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


def declared(headers: Mapping[str, str]) -> int | None:
    """Return the length that an answer's headers name; None where they name none."""
    length = headers.get("Content-Length", "")
    return int(length) if LENGTH.fullmatch(length) else None


def _pieces(answer: requests.Response) -> Iterator[bytes]:
    """Return what has come so far, again and again: a server that drips fills no block."""
    try:
        while block := answer.raw.read1(1 << 16, decode_content=True):
            yield block
    except HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error


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
