"""The mirror's root on disk: files by host and path, the registry's data, the record of both."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bedplate.common import reading, writing
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.images import Images
from bedplate.mirror.index import Contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader


def cache() -> Path:
    """Return the directory outside the checkout that keeps what is costly to make."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"
    return Path(os.environ.get("BEDPLATE_CACHE") or default).absolute()


def digest_of(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Store:
    """A mirror's root. ``files/`` is served as it is; ``registry/`` belongs to the registry."""

    root: Path

    @property
    def registry(self) -> Path:
        """The registry's own directory."""
        return self.root / "registry"

    @property
    def files(self) -> Path:
        """What is served below ``/files/``."""
        return self.root / "files"

    def contents(self) -> Contents:
        """Return what the record says is here; a record that can't be read counts as empty."""
        try:
            return Contents.model_validate_json(reading.content(self.root / "contents.json"))
        except (OSError, ValueError):
            return Contents()  # everything is made again: slow, and right

    def record(self, contents: Contents) -> None:
        """Replace the record."""
        text = f"{contents.model_dump_json(indent=2)}\n"
        writing.replace(self.root / "contents.json", text.encode())

    @property
    def images(self) -> Images:
        """The images that the registry's directory holds."""
        return Images(self.registry)

    @property
    def incoming(self) -> Path:
        """Where downloads grow, by digest, until they are whole."""
        return self.root / "incoming"

    def add_to_record(self, more: Contents) -> None:
        """Add to the record what is there now; what else it has stays."""
        before = self.contents()
        files, images = before.files | more.files, before.images | more.images
        self.record(Contents(files=files, images=images))

    def place(self, address: str) -> Path:
        """Return where the file of a vendor's address (``HOST/PATH``) lies.

        Raises:
            MirrorError: the address would lead out of the folder.
        """
        path = unquote(address)
        if {"", ".", ".."} & set(path.split("/")) or "\0" in path:
            raise MirrorError(
                "address cannot be a file's place",
                str(self.files),
                address,
                "HOST/PATH without '..' and empty parts",
                "find out who wrote it into the bill: bedplate mirror resolve SITE",
            )
        return self.files / path

    def clean(self) -> None:
        """Remove what writes and pushes that were cut off have left. The caller holds the lock."""
        unfinished = f"{writing.UNFINISHED}*"
        places = (self.root.glob(unfinished), self.files.rglob(unfinished))
        for path in chain(*places, self.registry.rglob(unfinished)):
            path.unlink(missing_ok=True)
        for folder in self.registry.rglob("_uploads"):
            shutil.rmtree(folder, ignore_errors=True)

    def forget_incoming(self) -> None:
        """Remove downloads that nothing asks for any more. The caller holds the lock."""
        shutil.rmtree(self.incoming, ignore_errors=True)

    @contextmanager
    def filling(self, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Hold the root's lock: two fills take turns.

        *waiting* gets the id of the process that holds it, where another one does.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                waiting(lock.read().strip())
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield
