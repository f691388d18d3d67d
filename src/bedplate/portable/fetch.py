"""Downloads that are known by their digest before they are used."""

import base64
import contextlib
import fcntl
import hashlib
import http.client
import ipaddress
import os
import re
import shutil
import stat
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Callable, Iterator, NamedTuple, Optional, Tuple

from . import proxy
from .host import make_folders
from .message import problem

_HEX = re.compile(r"^[0-9a-f]{64}$")
_CHUNK = 1 << 20
_TIMEOUT = 60.0
#: What a download fails with: URLError is an OSError, one that broke off fails with the latter.
_BROKEN = (OSError, http.client.HTTPException)

Opener = Callable[[str], "IO[bytes]"]


class File(NamedTuple):
    """A file as it is, or is to be; without a digest there is none.

    ``mode`` is its permissions; ``mine`` whether it is of who runs this, and of no other group.
    """

    sha256: str
    mode: int
    mine: bool = True


class FetchError(Exception):
    """A download that did not come, or is not what was asked for; the text says how to fix it."""


def open_url(url: str) -> "IO[bytes]":
    """Open ``url`` (http, https or file), through the host's proxy or that of the environment."""
    if not url.startswith(("http://", "https://", "file://")):
        raise FetchError(
            problem(
                "the address cannot be used",
                without_user(url)[0],
                url.split(":", 1)[0],
                "http, https or file",
                "Give a full URL.",
            )
        )
    # urllib knows no other place for what is reached directly. A module's process is its own.
    os.environ.update(proxy.variables())
    plain, user = without_user(url)
    asked = urllib.request.Request(plain)  # noqa: S310
    if user:
        asked.add_unredirected_header(
            "Authorization", "Basic " + base64.b64encode(user.encode()).decode()
        )
    opener = urllib.request.build_opener(_Proxies)
    return opener.open(asked, timeout=_TIMEOUT)  # type: ignore[no-any-return]


class _Proxies(urllib.request.ProxyHandler):
    """urllib's own way through a proxy, but for addresses in networks that need none.

    urllib compares the ends of names alone, while programs in Go know networks. Asked for each
    request, so that of a redirection too.
    """

    def proxy_open(
        self, req: urllib.request.Request, proxy: str, scheme: str
    ) -> Optional["IO[bytes]"]:
        if in_networks(req.host, urllib.request.getproxies().get("no", "")):
            return None
        return super().proxy_open(req, proxy, scheme)


def in_networks(place: str, networks: str) -> bool:
    """Whether ``place`` (a host, maybe with a port) is an address in one of ``networks``.

    They are listed with commas, among names, which do not count here, as in ``no_proxy``.
    """
    try:
        address = ipaddress.ip_address(urllib.parse.urlsplit("//" + place).hostname or "")
    except ValueError:
        return False
    for network in networks.split(","):
        with contextlib.suppress(ValueError):  # a name
            if address in ipaddress.ip_network(network.strip(), strict=False):
                return True
    return False


def without_user(url: str) -> Tuple[str, str]:
    """An address without the user and password that it may name, and those."""
    parts = urllib.parse.urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    return (urllib.parse.urlunsplit(parts._replace(netloc=place)) if at else url), (
        urllib.parse.unquote(user)
    )


def is_digest(text: str) -> bool:
    """Whether ``text`` is a SHA-256 in lower-case hexadecimal."""
    return bool(_HEX.match(text))


def digest(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal; empty where there is no such file."""
    made = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(_CHUNK), b""):
                made.update(block)
    except OSError:
        return ""
    return made.hexdigest()


def found(path: str) -> File:
    """What lies at ``path``."""
    sha256 = digest(path)
    if not sha256:
        return File("", 0)
    seen = os.stat(path)
    mine = (seen.st_uid, seen.st_gid) == (os.geteuid(), os.getegid())
    return File(sha256, stat.S_IMODE(seen.st_mode), mine)


def _unreachable(url: str, error: Exception) -> FetchError:
    url, _ = without_user(url)
    got = str(getattr(error, "reason", None) or error)
    if isinstance(error, urllib.error.HTTPError):
        got = f"HTTP {error.code} {error.reason}"
    return FetchError(
        problem(
            "the download failed",
            url,
            got,
            "a server that answers with the file",
            "Check the address with curl on this host; behind a proxy, set bedplate_proxy.",
        )
    )


def read(url: str, opener: Opener = open_url, size: int = -1) -> bytes:
    """What ``url`` gives, of a small file; no more than ``size`` bytes where that is named.

    Raises:
        FetchError: it did not come.
    """
    try:
        with opener(url) as stream:
            return stream.read(size)
    except _BROKEN as error:
        raise _unreachable(url, error) from None


def resolve_digest(sha256: str, url: str, opener: Opener = open_url) -> str:
    """Return the SHA-256 of what ``url`` is to give.

    ``sha256`` is the digest itself, or the URL of a checksum file: one bare digest, or lines of
    ``<digest>  <file name>`` as sha256sum writes them.

    Raises:
        FetchError: the checksum file did not come, or does not name the file.
    """
    if is_digest(sha256):
        return sha256
    return named_digest(read(sha256, opener, _CHUNK), url, sha256)


def named_digest(content: bytes, url: str, where: str) -> str:
    """Return the SHA-256 that a checksum file, which was read from ``where``, has for ``url``.

    Raises:
        FetchError: it does not name the file.
    """
    text = content.decode("utf-8", "replace")
    wanted = url.rsplit("/", 1)[-1]
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if len(rows) == 1 and len(rows[0]) == 1 and is_digest(rows[0][0]):
        return rows[0][0]
    for row in rows:
        if len(row) == 2 and os.path.basename(row[1].lstrip("*")) == wanted and is_digest(row[0]):
            return row[0]
    raise FetchError(
        problem(
            "the checksum file does not name the download",
            without_user(where)[0],
            f"{len(rows)} line(s), none for {wanted}",
            "a SHA-256, bare or beside that file name",
            "Correct the address of the checksum file, or give the digest itself.",
        )
    )


def download(url: str, sha256: str, target: str, opener: Opener = open_url) -> None:
    """Write what ``url`` gives to the new file ``target``, which is only kept if the digest fits.

    Raises:
        FetchError: it did not come, or has another digest.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        with opener(url) as stream, open(target, "xb") as out:
            while True:
                block = stream.read(_CHUNK)
                if not block:
                    break
                digest.update(block)
                size += len(block)
                out.write(block)
    except _BROKEN as error:
        _remove(target)
        raise _unreachable(url, error) from None
    if digest.hexdigest() != sha256:
        _remove(target)
        raise FetchError(
            problem(
                "the download has another digest",
                without_user(url)[0],
                f"sha256:{digest.hexdigest()} ({size} bytes)",
                f"sha256:{sha256}",
                "Nothing was installed. If the source was rebuilt, make the plan and the mirror "
                "anew; otherwise do not trust this source.",
            )
        )


def ensure_file(url: str, wish: File, path: str, opener: Opener = open_url) -> None:
    """Have what ``url`` gives at ``path``, which is exchanged in one step.

    Nothing is fetched where only the owner or the permissions differ.

    Raises:
        FetchError: it did not come, has another digest, or cannot be written.
    """
    try:
        if digest(path) == wish.sha256:
            os.chown(path, os.geteuid(), os.getegid())
            os.chmod(path, wish.mode)
            return
        with workplace(path) as folder:
            new = os.path.join(folder, "new")
            download(url, wish.sha256, new, opener)
            os.chmod(new, wish.mode)
            with open(new, "rb") as stream:
                os.fsync(stream.fileno())
            os.replace(new, path)
    except OSError as error:
        raise FetchError(
            problem(
                "the download cannot be put in place",
                path,
                str(error),
                "a file in a writable file system",
                "Mend the file system, or name another place, and run again.",
            )
        ) from None


@contextlib.contextmanager
def workplace(path: str) -> Iterator[str]:
    """A private folder beside ``path``, for one process at a time; it goes again.

    What a run that was killed has left there goes first.
    """
    parent, name = os.path.split(path)
    prefix = f".bedplate-{name}."
    make_folders(parent)
    lock = os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in os.listdir(parent):
            folder = os.path.join(parent, left)
            if left.startswith(prefix) and os.path.isdir(folder) and not os.path.islink(folder):
                shutil.rmtree(folder)
        work = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            yield work
        finally:
            shutil.rmtree(work)
    finally:
        os.close(lock)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
