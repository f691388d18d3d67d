"""The catalogue as it was last read and checked, kept beside Python's compiled code.

Reading and checking every fact takes a fifth of the time of a plan, and comes to the same each time
until a fact or the code that reads it changes. As with Python's own `.pyc` files, what came of it
lies in `__pycache__` where that can be written and `PYTHONDONTWRITEBYTECODE` doesn't forbid it, and
counts for nothing under another digest than that of all it was made from, nor where others
than root, the facts' owner and this user could have written it: reading it executes what it
says. Who could plant another file there could as well replace the code beside it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

from bedplate.common import reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent


def kept[Catalogue](
    facts: Path, read: Callable[[], Catalogue], place: Path | None = None
) -> Catalogue:
    """Return what *read* makes of a folder of facts, from where it was kept if nothing has changed.

    Raises whatever *read* does; that nothing can be kept is no error.
    """
    try:
        place = place or Path(cache_from_source(str(HERE / "facts.py"))).with_suffix(".facts")
        digest = _digest(facts)
    except (OSError, NotImplementedError):
        # Code without its sources, or a Python that keeps no compiled code.
        return read()
    # A file cut short, of another version of a library, or none: it is made again.
    with suppress(Exception):
        content = reading.content(place, owners={0, os.geteuid(), facts.stat().st_uid})
        if content.startswith(digest):
            found: Catalogue = pickle.loads(content[len(digest) :])  # noqa: S301 - see above
            return found
    catalogue = read()
    if not sys.dont_write_bytecode:
        with suppress(OSError, pickle.PicklingError, TypeError):
            _keep(place, digest + pickle.dumps(catalogue))
    return catalogue


def _code() -> tuple[Path, ...]:
    """Return what decides how facts are read and checked, beside the facts."""
    common = HERE.parent / "common"
    return (*sorted(HERE.glob("*.py")), common / "errors.py", common / "versions.py")


def _digest(facts: Path) -> bytes:
    made_from = hashlib.sha256(f"{sys.version} {pydantic.VERSION}\n".encode())
    for path in (*_code(), *sorted(facts.glob("*.yml"))):
        data = path.read_bytes()
        made_from.update(f"{path.name} {len(data)}\n".encode() + data)
    return made_from.digest()


def _keep(place: Path, content: bytes) -> None:
    """Write in one step: another process may be reading."""
    writing.replace(place, content, durable=False)
