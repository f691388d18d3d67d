"""One download: it goes on where an earlier one stopped, and its digest decides."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.common import writing
from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from io import BufferedRandom
    from pathlib import Path

    from bedplate.bill.web import Web
    from bedplate.common.progress import Progress

#: What a full disk answers with, quotas too.
FULL = (errno.ENOSPC, errno.EDQUOT)


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
                for _ in range(2):  # what was there from an earlier run may be what was wrong
                    if (found := self._grown(part, file)) == part.sha256:
                        break
                    self.progress.add(-file.tell(), fetched=False)
                    file.truncate(0)
                else:
                    path.unlink()
                    raise _other_bytes(part, found)
                file.flush()
                os.fdatasync(file.fileno())
            path.chmod(0o644)
            part.target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(part.target)
            writing.sync(part.target.parent)
        except OSError as error:
            if error.errno in FULL:
                self.stop.set()
                path.unlink(missing_ok=True)
            raise

    def _grown(self, part: Part, file: BufferedRandom) -> str:
        """Let the file grow to its size and return the SHA-256 of what it has then."""
        if os.fstat(file.fileno()).st_size > part.size:
            file.truncate(0)
        file.seek(0)
        running = hashlib.file_digest(file, "sha256")
        there = file.tell()
        self.progress.add(there, fetched=False)
        for block in self.web.blocks(part.url, part.name, part.size, there, self.stop):
            file.write(block)
            running.update(block)
            self.progress.add(len(block), fetched=True)
        return running.hexdigest()


def _other_bytes(part: Part, found: str) -> MirrorError:
    return MirrorError(
        f"{part.name} does not match its digest in the bill",
        part.url,
        f"sha256:{found}",
        f"sha256:{part.sha256}",
        "do not trust this source until you know why; nothing of it was kept",
    )
