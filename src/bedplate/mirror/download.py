"""One download: it goes on where an earlier one stopped, and its digest decides."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import urllib3

from bedplate.bill.errors import refused
from bedplate.bill.web import declared, reason_of
from bedplate.mirror import atomic
from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    import requests

    from bedplate.bill.web import Web
    from bedplate.common.progress import Progress

BLOCK = 1 << 20
#: How often a download that breaks off goes on, and how many seconds after.
ATTEMPTS, PAUSE = 5, 0.5
#: A server that gives less than so many bytes in so many seconds does not answer.
SLOWEST_BYTES, SLOWEST_SECONDS = 64 << 10, 60.0
#: What a full disk answers with, quotas too.
FULL = (errno.ENOSPC, errno.EDQUOT)
HTTP_PARTIAL = 206


class StoppedError(Exception):
    """Another part of the run has failed, or the user has interrupted it."""


class _BrokenError(Exception):
    """The connection ended before the file did."""


@dataclass(frozen=True)
class Part:
    """What is to be there in the end.

    Attributes:
        name: for messages.
        url: the vendor's.
        sha256: in hexadecimal.
        size: in bytes.
        target: where it is to lie.
    """

    name: str
    url: str
    sha256: str
    size: int
    target: Path

    def damage(self) -> str:
        """Say what is wrong with the file on disk, reading all of it; empty if nothing is."""
        if wrong := self.wrong_size():
            return wrong
        with self.target.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return "" if found == self.sha256 else f"changed: sha256:{found}"

    def wrong_size(self) -> str:
        """Say what is wrong with the size of the file on disk; empty if nothing is."""
        try:
            size = self.target.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        if not self.target.is_file():
            return "not a file"
        if size != self.size:
            return f"{'truncated' if size < self.size else 'too large'}: {size} bytes"
        return ""


@dataclass(frozen=True)
class Downloads:
    """Downloads into one root.

    Attributes:
        web: the client.
        folder: where they grow.
        progress: counts what came.
        stop: ends all of them.
    """

    web: Web
    folder: Path
    progress: Progress
    stop: threading.Event = field(default_factory=threading.Event)

    def begun(self, part: Part) -> Path:
        """Return the file in which a part grows."""
        return self.folder / part.sha256

    def fetch(self, part: Part) -> None:
        """Bring a part to its place.

        Raises:
            ResolveError: no server gives it.
            MirrorError: it has other bytes than those of its digest, or the disk is full.
            StoppedError: `stop` was set.
        """
        self.progress.now = part.name
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.begun(part)
        try:
            with path.open("a+b") as file:
                if self._grown(part, file) != part.sha256:
                    # What was there from an earlier run may be what was wrong.
                    self._empty(file)
                    found = self._grown(part, file)
                    if found != part.sha256:
                        path.unlink()
                        raise _other_bytes(part, found)
                file.flush()
                os.fdatasync(file.fileno())
            path.chmod(0o644)
            part.target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(part.target)
            atomic.sync(part.target.parent)
        except OSError as error:
            if error.errno in FULL:
                self.stop.set()
                path.unlink(missing_ok=True)
            raise

    def _grown(self, part: Part, file: IO[bytes]) -> str:
        """Let the file grow to its size and return the SHA-256 of what it has then."""
        attempts = 0
        running = self._read(part, file)
        while (size := file.tell()) < part.size:
            try:
                self._append(part, file, running)
            except _BrokenError as error:
                attempts = 1 if file.tell() > size else attempts + 1
                if attempts >= ATTEMPTS:
                    raise refused(f"{part.name} breaks off", part.url, str(error)) from error
                if self.stop.wait(PAUSE * attempts):
                    raise StoppedError from error
            if file.tell() < size:  # the server began again
                running = self._read(part, file)
        return running.hexdigest()

    def _read(self, part: Part, file: IO[bytes]) -> hashlib._Hash:
        running = hashlib.sha256()
        if os.fstat(file.fileno()).st_size > part.size:
            file.truncate(0)
        file.seek(0)
        while block := file.read(BLOCK):
            running.update(block)
        self.progress.add(file.tell(), fetched=False)
        return running

    def _empty(self, file: IO[bytes]) -> None:
        self.progress.add(-os.fstat(file.fileno()).st_size, fetched=False)
        file.truncate(0)
        file.seek(0)

    def _append(self, part: Part, file: IO[bytes], running: hashlib._Hash) -> None:
        """Ask for what is missing and append it as long as the connection lasts."""
        with self.web.opened(part.url, f"{part.name} is not found", file.tell()) as answer:
            if answer.status_code != HTTP_PARTIAL and file.tell():
                self._empty(file)
                raise _BrokenError("the server gives no rest of a file")
            self._expect_size(part, file.tell(), answer)
            since, came = time.monotonic(), 0
            while file.tell() < part.size:
                if self.stop.is_set():
                    raise StoppedError
                block = _block(answer, min(BLOCK, part.size - file.tell()))
                file.write(block)
                running.update(block)
                self.progress.add(len(block), fetched=True)
                came += len(block)
                if (now := time.monotonic()) - since > SLOWEST_SECONDS:
                    if came < SLOWEST_BYTES:
                        raise _BrokenError(f"{came} bytes in {now - since:.0f} s")
                    since, came = now, 0

    @staticmethod
    def _expect_size(part: Part, offset: int, answer: requests.Response) -> None:
        length = declared(answer.headers)
        if length is not None and length != part.size - offset:
            raise refused(
                f"{part.name} has another size than the bill",
                part.url,
                f"{length + offset} bytes",
                f"{part.size} bytes",
                "find out why its publisher changed it",
            )


def _block(answer: requests.Response, size: int) -> bytes:
    try:
        block: bytes = answer.raw.read(size, decode_content=False)
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        raise _BrokenError(reason_of(error)) from error
    if not block:
        raise _BrokenError("the connection ended")
    return block


def _other_bytes(part: Part, found: str) -> MirrorError:
    return MirrorError(
        f"{part.name} does not match its digest in the bill",
        part.url,
        f"sha256:{found}",
        f"sha256:{part.sha256}",
        "do not trust this source until you know why; nothing of it was kept",
    )
