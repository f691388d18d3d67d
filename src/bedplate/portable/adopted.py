"""Files of the user's that have something of ours in them: what is shown, a copy, the way out."""

import difflib
import re
from typing import Optional, Sequence, Tuple

from . import owned
from .host import Host, Permissions, shown

#: What a user's file was before anything of ours was added, beside it.
KEPT = ".before-bedplate"
DEFAULT_MODE = 0o644


def changed_lines(before: str, after: str) -> Tuple[str, str]:
    """The lines that differ, before and after: the others may hold what is nobody's to see."""
    old, new = before.splitlines(True), after.splitlines(True)
    gone, come = [], []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            gone += old[a:b]
            come += new[c:d]
    return shown("".join(gone)), shown("".join(come))


def without_lines(text: str, ours: Sequence[str]) -> str:
    """The text less the lines that are ours, to the letter."""
    lines = re.split(r"(?<=\n)", text)
    return "".join(line for line in lines if line.rstrip("\r\n") not in ours)


def mode_of(like: Optional[Permissions]) -> int:
    """The mode that a file has and keeps; that of new ones where there is none."""
    return DEFAULT_MODE if like is None else like.mode


def keep_copy(host: Host, path: str, role: str, text: Optional[str] = None) -> None:
    """Keep what ``path`` was beside it, once, with its permissions, and record the copy.

    Without ``text`` nothing is copied, and only a copy that is there is recorded.
    """
    copy, like = path + KEPT, host.permissions(path)
    there = host.content(copy)
    content = text if there is None else there
    if content is None:
        return
    mode = mode_of(like if there is None else host.permissions(copy))
    owned.keep(host, [owned.Writing(copy, content, mode, there, watched=False, role=role)])
    if there is None:
        host.write(copy, content, like=like)
