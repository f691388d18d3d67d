"""Downloads that are known by their digest before they are used."""

import base64
import contextlib
import fcntl
import hashlib
import http.client
import os
import queue
import re
import shutil
import ssl
import stat
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Callable, Iterator, List, NamedTuple, Optional, Union

from . import addresses, proxy, sources
from .addresses import file_name, plain, shown
from .host import make_folders
from .message import problem

_HEX = re.compile(r"^[0-9a-f]{64}$")
_CHUNK = 1 << 20
_TIMEOUT = 60.0
#: What a download fails with: URLError is an OSError, one that broke off fails with the second, and
#: an odd address of a redirection, or an odd length, with the last.
_BROKEN = (OSError, http.client.HTTPException, ValueError)
#: What a server answers that wants another login.
_NO_LOGIN = (401, 403)
#: The largest small file, in bytes: a key, or a list of digests.
_SMALL = 16 << 20
#: What a download leaves free on a disk: a twentieth, at most as many bytes.
_SPARED, _MOST_SPARED = 20, 64 << 20

Opener = Callable[[str], "IO[bytes]"]


class File(NamedTuple):
    """A file as it is, or is to be; without a digest there is none.

    ``mode`` is its permissions; ``mine`` whether it is of who runs this, and of no other group.
    """

    sha256: str
    mode: int
    mine: bool = True


class Limits(NamedTuple):
    """How long a download may take, and how large it may be.

    ``opening`` and ``grace`` are seconds: to answer, and before ``slowest`` counts, in bytes per
    second from the beginning. ``largest`` is in bytes.
    """

    opening: float
    grace: float
    slowest: float
    largest: int


#: A proxy that looks for viruses lets a file trickle for minutes, and then gives the rest.
LIMITS = Limits(opening=180, grace=900, slowest=32 << 10, largest=32 << 30)


class FetchError(Exception):
    """A download that did not come, or is not what was asked for; the text says how to fix it."""


def open_url(url: str) -> "IO[bytes]":
    """Open ``url`` (http, https or file), through the host's proxy or that of the environment.

    Raises:
        FetchError: it is no such address. Others say that nobody answers.
    """
    try:
        parts = addresses.checked(url)
    except addresses.AddressError as error:
        raise FetchError(str(error)) from None
    # urllib knows no other place for what is reached directly. A module's process is its own.
    os.environ.update(proxy.variables())
    plain, user = addresses.without_user(urllib.parse.urlunsplit(parts))
    access = sources.access(plain)
    user = user or access.login
    asked = urllib.request.Request(plain)  # noqa: S310
    if user:
        asked.add_unredirected_header(
            "Authorization", "Basic " + base64.b64encode(user.encode()).decode()
        )
    handlers: List[urllib.request.BaseHandler] = [_Proxies()]
    if access.ca:
        trusted = ssl.create_default_context()
        trusted.load_verify_locations(access.ca)
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    opener = urllib.request.build_opener(*handlers)
    return opener.open(asked, timeout=_TIMEOUT)  # type: ignore[no-any-return]


class _Proxies(urllib.request.ProxyHandler):
    """urllib's own way through a proxy, but for addresses in networks that need none.

    urllib compares the ends of names alone, while programs in Go know networks. Asked for each
    request, so that of a redirection too.
    """

    def proxy_open(
        self, req: urllib.request.Request, proxy: str, scheme: str
    ) -> Optional["IO[bytes]"]:
        if addresses.in_networks(req.host, urllib.request.getproxies().get("no", "")):
            return None
        return super().proxy_open(req, proxy, scheme)


def is_digest(text: str) -> bool:
    """Whether ``text`` is a SHA-256 in lower-case hexadecimal."""
    return bool(_HEX.match(text))


def digest(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal; empty where there is no such file."""
    return found(path, True).sha256


def found(path: str, follow: bool = False) -> File:
    """What lies at ``path``; a link is no file, unless they are to be followed."""
    try:
        descriptor = _opened(path, follow)
    except OSError:
        return File("", 0)
    try:
        return _seen(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: str, follow: bool = False) -> int:
    """A descriptor of a file. Raises OSError where there is none, or a link, folder or pipe."""
    # Without waiting for the other end of a pipe.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


def _seen(descriptor: int) -> File:
    made = hashlib.sha256()
    with open(descriptor, "rb", closefd=False) as stream:
        for block in iter(lambda: stream.read(_CHUNK), b""):
            made.update(block)
    seen = os.fstat(descriptor)
    mine = (seen.st_uid, seen.st_gid) == (os.geteuid(), os.getegid())
    return File(made.hexdigest(), stat.S_IMODE(seen.st_mode), mine)


def _unreachable(url: str, error: Exception) -> FetchError:
    fix = "Check the address with curl on this host; behind a proxy, set bedplate_proxy."
    if isinstance(error, urllib.error.HTTPError):
        got = f"HTTP {error.code} {error.reason}"
        if error.code in _NO_LOGIN:
            fix += " Where the server is the site's own, correct bedplate_sources_login."
    elif isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
        got = str(error.reason.verify_message)  # type: ignore[attr-defined]
        fix = (
            "Have the host trust the authority that signs the server's certificate; where the "
            "server is the site's own, name it in bedplate_sources.ca."
        )
    elif isinstance(error, (ValueError, http.client.InvalidURL)):
        # Their texts quote addresses, which may name passwords.
        got = f"an answer that cannot be read ({type(error).__name__})"
    else:
        got = str(getattr(error, "reason", None) or error)
    return FetchError(
        problem(
            "the download failed",
            shown(url),
            plain(got.strip()),
            "a server that answers with the file",
            fix,
        )
    )


class _EndedError(Exception):
    """A download that was ended; the text says why."""


def _blocks(stream: "IO[bytes]", largest: int, folder: str = "") -> Iterator[bytes]:
    """What a stream gives, within the limits. Raises _EndedError beyond them."""
    begun, size = time.monotonic(), 0
    whole, read = None, stream.read
    if isinstance(stream, http.client.HTTPResponse):
        # What there is, and not only once a whole block is there.
        whole, read = stream.length, stream.read1
    _require_room(folder, whole or 0)
    while whole is None or size < whole:
        if max(size, whole or 0) > largest:
            raise _EndedError(f"more than {largest} bytes")
        # A byte beyond the limit is enough to know.
        block = read(min(_CHUNK, (largest + 1 if whole is None else whole) - size))
        if not block and whole is None:
            return
        if not block:
            raise ConnectionError(f"the connection ended after {size} of {whole} bytes")
        size += len(block)
        seconds = time.monotonic() - begun
        if seconds > LIMITS.grace + size / LIMITS.slowest:
            raise _EndedError(f"{size} bytes in {seconds:.0f} s")
        _require_room(folder, len(block))
        yield block


def _require_room(folder: str, size: int) -> None:
    """Raise _EndedError where ``size`` bytes more would fill the disk of a folder, if named."""
    if folder:
        disk = os.statvfs(folder)
        spared = min(disk.f_blocks * disk.f_frsize // _SPARED, _MOST_SPARED)
        if disk.f_bavail * disk.f_frsize < size + spared:
            raise _EndedError(f"no room for {size} bytes more, and {spared} to spare")


def _ended(url: str, why: _EndedError, largest: int) -> FetchError:
    return FetchError(
        problem(
            "the download was ended",
            shown(url),
            str(why),
            f"at most {largest} bytes, {LIMITS.slowest:.0f} or more of them per second, "
            "and a disk with room for them",
            "See what the address gives, with curl on this host, and free some space.",
        )
    )


def _open(url: str, opener: Opener) -> "IO[bytes]":
    """Open an address within the time for that; a server's headers may drip too."""
    came: queue.SimpleQueue[Union[IO[bytes], BaseException]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            came.put(opener(url))
        except BaseException as error:
            came.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = came.get(timeout=LIMITS.opening)
    except queue.Empty:
        raise TimeoutError(f"no answer within {LIMITS.opening:.0f} s") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def read(url: str, opener: Opener = open_url) -> bytes:
    """What ``url`` gives, of a small file.

    Raises:
        FetchError: it did not come, or is none.
    """
    try:
        with _open(url, opener) as stream:
            return b"".join(_blocks(stream, min(_SMALL, LIMITS.largest)))
    except _EndedError as why:
        raise _ended(url, why, min(_SMALL, LIMITS.largest)) from None
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
    return named_digest(read(sha256, opener), url, sha256)


def named_digest(content: bytes, url: str, where: str) -> str:
    """Return the SHA-256 that a checksum file, which was read from ``where``, has for ``url``.

    Raises:
        FetchError: it does not name the file.
    """
    text = content.decode("utf-8", "replace")
    wanted = file_name(url)
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if len(rows) == 1 and len(rows[0]) == 1 and is_digest(rows[0][0]):
        return rows[0][0]
    for row in rows:
        if len(row) == 2 and os.path.basename(row[1].lstrip("*")) == wanted and is_digest(row[0]):
            return row[0]
    raise FetchError(
        problem(
            "the checksum file does not name the download",
            shown(where),
            f"{len(rows)} line(s), none for {wanted}",
            "a SHA-256, bare or with that file name",
            "Correct the address of the checksum file, or give the digest itself.",
        )
    )


def download(
    url: str, sha256: str, target: str, opener: Opener = open_url, largest: int = 0
) -> None:
    """Write what ``url`` gives to the new file ``target``, which is only kept if the digest fits.

    ``largest`` is its size in bytes where that is known, else 0: what is longer is cut off.

    Raises:
        FetchError: it did not come, or has another digest.
    """
    digest = hashlib.sha256()
    size = 0
    largest = min(largest or LIMITS.largest, LIMITS.largest)
    try:
        with _open(url, opener) as stream, open(target, "xb") as out:
            for block in _blocks(stream, largest, os.path.dirname(target)):
                digest.update(block)
                size += len(block)
                out.write(block)
    except _EndedError as why:
        _remove(target)
        raise _ended(url, why, largest) from None
    except _BROKEN as error:
        _remove(target)
        raise _unreachable(url, error) from None
    if digest.hexdigest() != sha256:
        _remove(target)
        raise FetchError(
            problem(
                "the download has another digest",
                shown(url),
                f"sha256:{digest.hexdigest()} ({size} bytes)",
                f"sha256:{sha256}",
                "Nothing was installed. If the source was rebuilt, make the plan and the mirror "
                "again; otherwise do not trust this source.",
            )
        )


def ensure_file(url: str, wish: File, path: str, opener: Opener = open_url) -> None:
    """Have what ``url`` gives at ``path``, which is exchanged in one step.

    Nothing is fetched where only the owner or the permissions differ.

    Raises:
        FetchError: it did not come, has another digest, or cannot be written.
    """
    try:
        if _as_wished(path, wish):
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
                "Fix the file system, or name another place, and run again.",
            )
        ) from None


def _as_wished(path: str, wish: File) -> bool:
    """Whether a file has its content already; then it gets its owner and permissions too."""
    try:
        descriptor = _opened(path)
    except OSError:
        return False
    try:
        if _seen(descriptor).sha256 != wish.sha256:
            return False
        # Never by name: what a link leads to may not be ours.
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, wish.mode)
        return True
    finally:
        os.close(descriptor)


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
