"""The record of what Bedplate owns on a host: which files, as whom they wrote, and what was before.

Drift is told by it (somebody else changed a file of ours), and so is what a reset may take away.
It is bookkeeping: writing it is no change of the host, and a record that is lost comes back with
the next run, less what was there before.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from . import documents
from .host import Host, Permissions, make_folders

#: Readable for root only: the text that a file had before may be anything.
RECORD = "/var/lib/bedplate/owned.json"
#: Marks in the first lines of a file name the role that wrote it.
_ROLE = re.compile(r"\(role (?P<role>[a-z][a-z0-9_-]*)\)")
_MODE = re.compile(r"[0-7]{3,5}", re.ASCII)
#: The owner of files that cannot carry a mark.
NO_ROLE = "files"


class Writing(NamedTuple):
    """One file as it is about to be written, and its text until now (None: absent).

    ``watched`` is false where others may change the file too: then a difference is no drift.
    ``added`` says what in a user's file is ours, so that a reset can take it out of what the user
    has made of the file since: ``{"import": …}``, ``{"keys": …}`` or ``{"lines": …}``.
    ``shared`` says that others put such a file of their own there: one that came in the place of
    ours is kept for a reset.
    """

    path: str
    content: str
    mode: int
    before: Optional[str]
    watched: bool = True
    role: str = ""
    added: Optional[Dict[str, Any]] = None
    shared: bool = False


def digest(text: str) -> str:
    """The SHA-256 of a text of `Host.content`, in hexadecimal: that of the file's bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def role_of(text: str) -> str:
    """The role that a file's mark names."""
    found = _ROLE.search("\n".join(text.splitlines()[:2]))
    return found.group("role") if found else NO_ROLE


def load(host: Host) -> Dict[str, Dict[str, Any]]:
    """The record by path; may be empty. What says nothing sound is left out.

    An entry has these keys:

    ``sha256``, ``mode`` and ``role`` of what was written; ``watched`` and ``added`` as in
    ``Writing``; ``before``, the first text that was replaced, or, of a ``shared`` file, one without
    our mark that has come in its place since, and ``was``, its ``[mode, user, group]``; ``edited``,
    whether somebody else has written between two writings of ours, so that ``before`` is out of
    date; ``folders`` that came with the file.
    """
    files = documents.table(host.read(RECORD)).get("files")
    if not isinstance(files, dict):
        return {}
    return {path: entry for path, entry in files.items() if _is_path(path) and _is_entry(entry)}


def _is_path(value: Any) -> bool:
    """Whether a value names one place below the root."""
    return (
        isinstance(value, str)
        and value.startswith("/")
        and "\0" not in value
        and os.path.normpath(value) == value
    )


def _is_entry(value: Any) -> bool:
    """Whether an entry of the record has every key as `load` says."""
    if not isinstance(value, dict):
        return False
    was, folders, mode = value.get("was"), value.get("folders"), value.get("mode")
    return (
        isinstance(value.get("sha256"), str)
        and isinstance(mode, str)
        and _MODE.fullmatch(mode) is not None
        and isinstance(value.get("role"), str)
        and isinstance(value.get("watched"), bool)
        and isinstance(value.get("before", 0), (str, type(None)))
        and (was is None or (_all(was, int) and len(was) == 3 and min(was) >= 0))
        and isinstance(folders, list)
        and all(map(_is_path, folders))
        and _is_added(value.get("added"))
    )


def _is_added(value: Any) -> bool:
    """Whether a value says what is ours in a user's file, or that it is nothing."""
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    if "import" in value:
        return isinstance(value["import"], str)
    if "keys" in value:
        keys = value["keys"]
        return isinstance(keys, list) and all(map(_is_key, keys))
    return _all(value.get("lines"), str)


def _is_key(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "ours" in value
        and _all(value.get("at"), str)
        and bool(value["at"])
        and isinstance(value.get("was"), list)
    )


def _all(value: Any, kind: type) -> bool:
    """Whether a value is a list of values of one kind."""
    return isinstance(value, list) and all(type(one) is kind for one in value)


@contextlib.contextmanager
def _changing(host: Host) -> Iterator[Dict[str, Dict[str, Any]]]:
    """The record for a change; it is written if it has changed."""
    real = host.path(RECORD)
    make_folders(os.path.dirname(real))
    lock = os.open(real + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = load(host)
        before = json.dumps(files, sort_keys=True)
        yield files
        if json.dumps(files, sort_keys=True) != before:
            text = json.dumps({"format": 1, "files": files}, indent=1, sort_keys=True) + "\n"
            host.write(RECORD, text, 0o600)
    finally:
        os.close(lock)


def _missing_folders(host: Host, path: str) -> List[str]:
    """Folders above ``path`` that are yet to be made, the innermost first."""
    missing = []
    folder = os.path.dirname(path)
    while folder != "/" and not host.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _was(host: Host, path: str, before: Optional[str]) -> Optional[List[int]]:
    found = None if before is None else host.permissions(path)
    return None if found is None else list(found)


def _edited(old: Optional[Dict[str, Any]], one: Writing) -> bool:
    """Whether somebody else has written since we first did.

    A run that was killed before it wrote leaves the text of before, which nobody has edited. Where
    a record does not say, they may have.
    """
    if old is None:
        return False
    known = bool(old.get("edited", not old["watched"]))
    other = one.before is None or digest(one.before) != old["sha256"]
    return known or (other and one.before != old.get("before"))


def _took_over(old: Dict[str, Any], one: Writing) -> bool:
    """Whether a file of others, without our mark, has come in the place of ours, which had it."""
    if not one.shared:
        return False
    marked = role_of(one.content) != NO_ROLE and role_of(one.before or "") == NO_ROLE
    other = bool((one.before or "").strip()) and digest(one.before or "") != old["sha256"]
    return marked and other and old.get("added") is None and one.added is None


def _entry(host: Host, old: Optional[Dict[str, Any]], one: Writing) -> Dict[str, Any]:
    before = one.before if one.before != one.content else None
    if before is not None and role_of(before) != NO_ROLE:
        before = None  # ours, of a run that kept no record
    replaced = old is None or (before is not None and _took_over(old, one))
    kept = None if replaced else old
    return {
        "sha256": digest(one.content),
        "mode": f"{one.mode:04o}",
        "role": one.role or role_of(one.content),
        "watched": one.watched,
        "before": before if kept is None else kept.get("before"),
        "added": one.added,
        "edited": _edited(old, one),
        "was": _was(host, one.path, before) if kept is None else kept.get("was"),
        "folders": _missing_folders(host, one.path) if old is None else old.get("folders", []),
    }


def keep(host: Host, writings: Sequence[Writing]) -> None:
    """Record files that are as wished or are written next.

    Recorded first: a run killed between the two leaves a file that differs from its record, which
    is what it is.
    """
    known = load(host)
    entries = {one.path: _entry(host, known.get(one.path), one) for one in writings}
    if any(known.get(path) != entry for path, entry in entries.items()):
        with _changing(host) as files:
            files.update(entries)


def forget(host: Host, paths: Sequence[str]) -> None:
    """Drop files from the record, which are no longer ours."""
    if set(paths) & set(load(host)):
        with _changing(host) as files:
            for path in paths:
                files.pop(path, None)


def put_back(
    host: Host,
    path: str,
    entry: Dict[str, Any],
    text: Optional[str],
    staying: Sequence[str] = (),
) -> None:
    """Have a recorded file hold ``text`` again; without one, no file and no folder of ours.

    Folders in ``staying`` stay, even when they are empty.

    What replaced a user's file comes back with the permissions of then. Those of a user's file that
    only has something of ours are the user's to say, and stay.
    """
    if text is not None:
        was = entry.get("was") if entry["watched"] else host.permissions(path)
        like = Permissions(*was) if was else None
        host.write(path, text, int(entry["mode"], 8), like)
        return
    host.remove(path)
    for folder in entry["folders"]:
        if folder not in staying:
            remove_if_empty(host, folder)


def remove_if_empty(host: Host, folder: str) -> None:
    """Remove a folder that nothing is in."""
    if host.exists(folder) and not host.list(folder):
        os.rmdir(host.path(folder))


def state(host: Host, path: str, entry: Dict[str, Any]) -> str:
    """What became of a recorded file: nothing, or ``missing``, ``edited``, ``mode 0600 (…)``."""
    text = host.content(path)
    if text is None:
        return "missing"
    if digest(text) != entry["sha256"]:
        return "edited"
    mode = f"{os.stat(host.path(path)).st_mode & 0o7777:04o}"
    return "" if mode == entry["mode"] else "mode {} (was {})".format(mode, entry["mode"])


def differences(host: Host) -> Dict[str, List[str]]:
    """By role, what became of its watched files; a role without differences has an empty list."""
    found: Dict[str, List[str]] = {}
    for path, entry in sorted(load(host).items()):
        if not entry["watched"]:
            continue
        mine = found.setdefault(entry["role"], [])
        what = state(host, path, entry)
        if what:
            mine.append(f"{path}: {what}")
    return found
