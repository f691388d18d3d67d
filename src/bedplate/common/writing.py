"""Files that are replaced in one step; what a run that was cut off has left goes with the next."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from bedplate.common.errors import BedplateError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

#: In bytes: a file's name may have 255, and something is put before and after it.
LONGEST: Final = 200
#: How the names of files begin that are being written.
UNFINISHED: Final = ".new-"


def file_name(name: str, of: str) -> str:
    """Return a name of the inventory or the lock as part of a file's name.

    Raises BedplateError where it would be another folder's file, a hidden one or none at all.
    """
    plain = name and not name.startswith(".") and name.isprintable() and "/" not in name
    if plain and len(name.encode(errors="replace")) <= LONGEST:
        return name
    raise BedplateError(
        [
            Problem(
                "name cannot be a file's",
                key=of,
                got=ascii(name[:80]),
                allowed=f"up to {LONGEST} characters without /, not beginning with a dot",
                fix="rename it in the inventory",
                rule="file-names",
            )
        ]
    )


@contextmanager
def stream(path: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of what is there when the block ends well, or not at all.

    Its folder is made. A `durable` file has its bytes on the disk before it has its name, and the
    name survives a power cut. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path)
    handle, temporary = _temporary(path)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
            # Held until the file has its name: no other run takes it for one that was left.
            temporary.chmod(mode)
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def replace(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Put a small file in place of what is there, as `stream` does. Raises OSError."""
    with stream(path, mode=mode, durable=durable) as out:
        out.write(content)


def sync(folder: Path) -> None:
    """Write a folder's entries to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def through(path: Path) -> Path:
    """Return where a link of the user's leads: what is written there leaves it a link.

    The folders of a path may always be links. Raises OSError where links lead in a circle.
    """
    if not path.is_symlink():
        return path
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return real


def remove_left(path: Path) -> None:
    """Remove the temporary files of a file that runs have left which were cut off."""
    # What `tempfile` puts after a prefix; earlier versions wrote without UNFINISHED.
    left = re.compile(rf"\.(new-)?{re.escape(_short(path))}\.[a-z0-9_]{{8}}")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_unheld(entry.path)


def _short(path: Path) -> str:
    return os.fsdecode(os.fsencode(path.name.removeprefix("."))[:LONGEST])


def _temporary(path: Path) -> tuple[int, Path]:
    """Return a temporary file next to *path*, held by a lock that ends with the process."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f"{UNFINISHED}{_short(path)}.", dir=path.parent)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # another run has removed it before it was held


def _remove_unheld(name: str) -> None:
    with suppress(OSError):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(name).unlink()
        finally:
            os.close(handle)
