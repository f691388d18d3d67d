"""The lock on disk: same decision, same bytes; never half written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from bedplate.common import reading, writing
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import lock_path
from bedplate.common.reading_yaml import parsed
from bedplate.lock.model import FORMAT, Lock

if TYPE_CHECKING:
    from pathlib import Path

#: What a site's own checks of style have nothing to say about.
GENERATED = "# yamllint disable\n"
HEADER = f"# Written by `bedplate plan`: commit it, review its changes, don't edit it.\n{GENERATED}"
#: libyaml's writes a lock of a thousand hosts in a quarter of the time.
_Emitter = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MARKERS = ("<<<<<<< ", "=======", ">>>>>>> ")


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
        raise _broken(site, None, reading.why(error)) from error


def write_lock(site: Path, lock: Lock) -> bool:
    """Write the lock if it changes anything, and return whether it did."""
    return write_text(lock_path(site), render(lock))


def write_text(path: Path, text: str) -> bool:
    """Replace a file in one step if that changes anything, and return whether it did.

    A link stays one, and the file that it leads to is replaced.
    """
    path = writing.through(path)
    writing.remove_left(path)
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    writing.replace(path, text.encode(), durable=True)
    return True


def load_lock(site: Path) -> Lock:
    """Read the lock of *site*. Raises LockError if it is missing or cannot be used."""
    path = lock_path(site)
    try:
        text = reading.content(path).decode()
    except FileNotFoundError as error:
        raise _missing(site) from error
    except OSError as error:
        raise _broken(site, None, reading.why(error)) from error
    except UnicodeDecodeError as error:
        raise _broken(site, None, "bytes that are not UTF-8") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARKERS):
            problem = Problem(
                "lock has conflict markers",
                str(path),
                number,
                got=line[:20],
                allowed="what `bedplate plan` writes",
                fix=f"merge the settings, then run: bedplate plan {site}",
                rule="lock",
            )
            raise LockError([problem])
    try:
        content = parsed(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = mark.line + 1 if mark else None
        raise _broken(site, at, getattr(error, "problem", None) or "no YAML") from error
    if not isinstance(content, dict):
        raise _broken(site, 1, "no mapping")
    if content.get("format") != FORMAT:
        problem = Problem(
            "lock is of another format",
            str(path),
            key="format",
            got=repr(content.get("format")),
            allowed=str(FORMAT),
            fix=f"run: bedplate plan {site}",
            rule="lock",
        )
        raise LockError([problem])
    try:
        return Lock.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise _broken(site, None, f"{key}: {first['msg']}") from error


def _missing(site: Path) -> LockError:
    return LockError(
        [
            Problem(
                "site has no lock",
                str(lock_path(site)),
                got="no file",
                allowed="what `bedplate plan` writes",
                fix=f"run: bedplate plan {site}",
                rule="lock",
            )
        ]
    )


def _broken(site: Path, line: int | None, got: str) -> LockError:
    return LockError(
        [
            Problem(
                "lock cannot be read",
                str(lock_path(site)),
                line,
                got=got,
                allowed="what `bedplate plan` writes",
                fix=f"run: bedplate plan {site}",
                rule="lock",
            )
        ]
    )
