"""What the machine refuses, and what Ansible does, as problems in one line."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bedplate.common.errors import BedplateError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As much of a name or a message as helps.
LONGEST = 200


@contextmanager
def as_problems() -> Iterator[None]:
    """Turn what the user can put right into a BedplateError; anything else is a bug, and shown."""
    try:
        yield
    except BedplateError:
        raise
    except OSError as error:
        raise BedplateError([_of_system(error)]) from error
    except UnicodeError as error:
        raise BedplateError([_of_text(error)]) from error
    except Exception as error:
        ansible = sys.modules.get("ansible.errors")
        if ansible is None or not isinstance(error, ansible.AnsibleError):
            raise
        fix = "correct Ansible's configuration, or the environment that names it"
        got = _short(" ".join(str(error).split()))
        raise BedplateError(
            [Problem("Ansible refuses", got=got, fix=fix, rule="ansible")]
        ) from error


def _of_system(error: OSError) -> Problem:
    # Of two names the first is that of a temporary file, which takes the place of the second.
    name = error.filename if error.filename2 is None else error.filename2
    return Problem(
        "the system refuses",
        _short(str(name)) if name is not None else None,
        got=error.strerror or str(error),
        fix="correct what it says, and run the command again",
        rule="system",
    )


def _of_text(error: UnicodeError) -> Problem:
    fix = "correct it; `file FILE` says what a file is"
    return Problem("text is not UTF-8", got=_short(str(error)), allowed="UTF-8", fix=fix)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
