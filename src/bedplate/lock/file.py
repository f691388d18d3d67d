"""The lock on disk: same decision, same bytes; never half written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.common import formats, reading, reading_yaml, writing
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import lock_path
from bedplate.lock.model import FORMAT, Lock

if TYPE_CHECKING:
    from pathlib import Path

#: What a site's own checks of style have nothing to say about.
GENERATED = "# yamllint disable\n"
HEADER = f"# Written by `bedplate plan`: commit it, review its changes, don't edit it.\n{GENERATED}"
#: libyaml's writes a lock of a thousand hosts in a quarter of the time.
_Emitter = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
BROKEN = "lock cannot be read"
OTHER = "lock is of another format"


class BlockDumper(_Emitter):  # type: ignore[misc,valid-type]
    """Block style and no aliases: a review shows one decision per line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def content_of(lock: Lock) -> dict[str, Any]:
    """Return a lock as it is written: what does not apply is left out."""
    return lock.model_dump(mode="json", exclude_defaults=True)


def render(lock: Lock) -> str:
    """Return the lock's text."""
    content = content_of(lock)
    body: str = yaml.dump(
        content, Dumper=BlockDumper, sort_keys=False, default_flow_style=False, width=140
    )
    return HEADER + body


def digest(site: Path) -> str:
    """Return the digest of the lock's bytes. Raises LockError if there is none."""
    try:
        return f"sha256:{hashlib.sha256(reading.content(lock_path(site))).hexdigest()}"
    except FileNotFoundError as error:
        raise _missing(site) from error
    except OSError as error:
        raise _problem(site, BROKEN, reading.why(error)) from error


def write_lock(site: Path, lock: Lock) -> bool:
    """Write the lock if it changes anything, and return whether it did."""
    return write_text(lock_path(site), render(lock))


def write_text(path: Path, text: str) -> bool:
    """Replace a file in one step if that changes anything, and return whether it did.

    A link stays one, and the file that it leads to is replaced. Raises OSError, also where its
    folder is missing.
    """
    path = writing.through(path)
    path.parent.stat()  # the user's own: not made, as it may be of a disk that is not mounted
    writing.remove_left(path)
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    writing.replace(path, text.encode())
    return True


def load_lock(site: Path) -> Lock:
    """Read the lock of *site*. Raises LockError if it is missing or cannot be used."""
    of_format = {"allowed": str(FORMAT), "key": "format"}
    try:
        content = reading_yaml.value_at(lock_path(site))
        formats.check(content, FORMAT)
        if isinstance(content, dict) and content.get("format") == FORMAT:
            return reading_yaml.typed(Lock, content)
    except FileNotFoundError as error:
        raise _missing(site) from error
    except reading_yaml.ConflictError as error:
        fix = f"merge the settings, then run: bedplate plan {site}"
        what = "lock has conflict markers"
        raise _problem(site, what, str(error), line=error.line, fix=fix) from error
    except reading_yaml.UnusableError as error:
        raise _problem(site, BROKEN, str(error), line=error.line) from error
    except formats.OtherFormatError as error:
        fix = error.fix(f"run: bedplate plan {site}")
        raise _problem(site, OTHER, str(error.found), fix=fix, **of_format) from error
    if not isinstance(content, dict):
        raise _problem(site, BROKEN, "no mapping", line=1)
    raise _problem(site, OTHER, repr(content.get("format")), **of_format)


def _problem(site: Path, what: str, got: str, **more: Any) -> LockError:
    fields = {"allowed": "what `bedplate plan` writes", "fix": f"run: bedplate plan {site}", **more}
    return LockError([Problem(what, str(lock_path(site)), got=got, rule="lock", **fields)])


def _missing(site: Path) -> LockError:
    return _problem(site, "site has no lock", "no file")
