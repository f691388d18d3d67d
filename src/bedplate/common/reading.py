"""Files that others may have put there: plain ones are read, of a sane size, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: More than any file that Bedplate or a user writes for it.
LARGEST: Final = 64 * 1024 * 1024
#: As deep as JSON may be nested; what Bedplate writes stays below ten.
DEEPEST: Final = 40


def content(path: Path, largest: int = LARGEST, owners: Collection[int] | None = None) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: it cannot be read, is larger, or is a folder, pipe, socket or device; or others
            than `owners` could have written it, where they are given.
    """
    # Opening a pipe would wait for who writes to it, and reading one for the end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "a pipe, socket or device", str(path))
        if status.st_size > largest:
            said = f"{status.st_size} bytes, allowed {largest}"
            raise OSError(errno.EFBIG, said, str(path))
        if owners is not None and (status.st_uid not in owners or status.st_mode & 0o022):
            raise PermissionError(errno.EPERM, "others could have written it", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(largest)
    finally:
        os.close(handle)


def document(path: Path, largest: int = LARGEST) -> Any:
    """Return the value of a file of JSON.

    Raises:
        OSError: as `content`.
        ValueError: it is no UTF-8, no JSON, or nested deeper than anything that Bedplate writes.
    """
    text = content(path, largest).decode()
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


_TOO_DEEP: Final = f"nested deeper than {DEEPEST} levels"


def why(error: Exception) -> str:
    """Return in one line why a file cannot be read."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return next(iter(str(error).splitlines()), type(error).__name__)
