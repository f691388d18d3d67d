"""Configuration files of one owner: written whole or not at all, held, or refused."""

import enum
import hashlib
import os
import stat
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from . import owned
from .host import Host, shown
from .message import problem

#: A file with this in its first two lines is ours, and may be replaced.
MARK = "Managed by Bedplate"
#: What is shown of a text that only its owner may read: it has a password.
CONCEALED = "(not shown: only its owner may read it)\n"
READABLE = stat.S_IRGRP | stat.S_IROTH
#: What a module takes for one file, as Ansible's argument specs say it.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "default": "0644"},
}


class File(NamedTuple):
    """One file to have; ``refuse_foreign`` keeps a file that is somebody else's.

    Without ``record`` others may take it away, and nothing is recorded. ``added`` says what is ours
    in a user's file, as in ``owned.Writing``: such a file keeps its mode and owner.
    """

    path: str
    content: str
    mode: int = 0o644
    refuse_foreign: bool = False
    record: bool = True
    added: Optional[Dict[str, Any]] = None


def asked(given: Mapping[str, Any]) -> File:
    """The file of a task's ``OPTIONS``; its text ends with a newline, whether it was given one."""
    text = given["content"]
    return File(given["path"], text if text.endswith("\n") else text + "\n", int(given["mode"], 8))


class Change(NamedTuple):
    """A file that changes: its text before (None: absent) and after, as they can be shown."""

    path: str
    before: Optional[str]
    after: str

    @property
    def diff(self) -> Dict[str, str]:
        """The change as a module returns it for Ansible to show."""
        texts = {"before": self.before or "", "after": self.after}
        return {"before_header": self.path, "after_header": self.path, **texts}


class Outcome(NamedTuple):
    """What was done (or would be, in check mode), held back, and refused."""

    changes: List[Change]
    pending: List[str]
    problems: List[str]


class Owner(enum.Enum):
    """Whose a file is, whole."""

    ABSENT = "absent"
    OURS = "ours"
    EDITED = "ours, edited since"
    PACKAGE = "a package's, as it came"
    USER = "the user's"


def is_ours(text: str) -> bool:
    """Whether a file's text says that Bedplate manages it."""
    return any(MARK in line for line in text.splitlines()[:2])


def owner(host: Host, path: str, known: Mapping[str, Mapping[str, Any]]) -> Owner:
    """Whose the file is, by the record (``known``, of ``owned.load``), its text and packages.

    What we wrote whole is ours with or without our mark: it may have been cut off with an edit. A
    mark counts where there is no record, as of a host that lost it. A user's file in which only
    something is ours stays the user's.
    """
    text, entry = host.content(path), known.get(path)
    if text is None:
        return Owner.ABSENT
    if entry is not None and entry.get("added") is None:
        return Owner.OURS if owned.digest(text) == entry["sha256"] else Owner.EDITED
    if is_ours(text):
        return Owner.OURS
    return Owner.PACKAGE if is_package_default(host, path, text) else Owner.USER


def is_package_default(host: Host, path: str, text: str) -> bool:
    """Whether the package manager knows ``path`` as a configuration file, in just this state."""
    owner = host.run(["dpkg-query", "--search", path])
    if owner.code != 0 or ":" not in owner.out:
        return _is_rpm_default(host, path, text)
    package = owner.out.split(":", 1)[0].split(",")[0].strip()
    known = host.run(["dpkg-query", "--show", "--showformat=${Conffiles}", package])
    digest = hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
    return any(line.split()[:2] == [path, digest] for line in known.out.splitlines())


def _is_rpm_default(host: Host, path: str, text: str) -> bool:
    """The same of rpm, which tells path, size, time and digest of each configuration file."""
    known = host.run(["rpm", "--query", "--configfiles", "--dump", "--file", path])
    digest = owned.digest(text)
    rows = [line.split() for line in known.out.splitlines()] if known.code == 0 else []
    return any(row[:1] == [path] and digest in row for row in rows)


def _shown(host: Host, path: str, text: str) -> str:
    """A file's text as a difference may show it."""
    there = host.permissions(path)
    return shown(text) if there is None or there.mode & READABLE else CONCEALED


def _no_file(path: str) -> str:
    return problem(
        "something other than a file is in the way",
        path,
        "a folder, a pipe or a device",
        "a file, or nothing",
        "Move it away, and run again.",
    )


def ensure_files(
    host: Host,
    files: Sequence[File],
    check: bool = False,
    hold: bool = False,
    watched: bool = True,
) -> Outcome:
    """Have every file with its content and mode, and record it as ours.

    With ``hold`` a file that is there but differs stays, and is reported as pending. A foreign
    file is refused before anything is written; one that we wrote and somebody has edited since is
    drift of ours, with or without our mark. Without ``watched`` others may change the files too.
    """
    outcome = Outcome([], [], [_no_file(file.path) for file in files if host.in_the_way(file.path)])
    known = owned.load(host) if any(file.refuse_foreign for file in files) else {}
    for file in files:
        before = host.content(file.path)
        if (
            file.refuse_foreign
            and before is not None
            and before != file.content
            and owner(host, file.path, known) is Owner.USER
        ):
            outcome.problems.append(
                problem(
                    "the file is not managed by Bedplate and would be replaced",
                    file.path,
                    f"a file without the mark '{MARK}' that no package installed so",
                    "no file, the package's default, or a file that Bedplate wrote",
                    "Move your settings into a drop-in of your own, move the file away, and run "
                    "again.",
                )
            )
    if outcome.problems:
        return outcome
    ours: List[owned.Writing] = []
    for file in files:
        real = host.path(file.path)
        before = host.content(file.path)
        theirs = host.permissions(file.path) if file.added is not None else None
        mode = theirs.mode if theirs is not None else file.mode
        writing = owned.Writing(file.path, file.content, mode, before, watched, added=file.added)
        same = before == file.content and (os.stat(real).st_mode & 0o7777) == mode
        if not same and hold and before is not None:
            outcome.pending.append(f"{file.path}: another content or mode")
            continue
        if not same:
            former = None if before is None else _shown(host, file.path, before)
            after = shown(file.content) if mode & READABLE else CONCEALED
            outcome.changes.append(Change(file.path, former, after))
        if file.record:
            ours.append(writing)
    if not check:
        owned.keep(host, ours)
        wanted = {file.path: file for file in files}
        for change in outcome.changes:
            file = wanted[change.path]
            theirs = host.permissions(file.path) if file.added is not None else None
            host.write(file.path, file.content, file.mode, theirs)
    return outcome


def take_back(
    host: Host, folders: Sequence[str], files: Sequence[File], check: bool = False
) -> List[Change]:
    """Have what we wrote below ``folders`` as it was before, but for ``files``; what changes by it.

    A file may be named among the folders.
    A file that lacks our mark has become somebody else's: it stays, and is not recorded any more.
    """
    wished = {file.path for file in files}
    below = tuple(folder + "/" for folder in folders)
    known = owned.load(host)
    unwished = [
        path
        for path in sorted(known)
        if (path in folders or path.startswith(below)) and path not in wished
    ]
    changes = []
    for path in unwished:
        text = host.content(path)
        if text is not None and is_ours(text):
            former = _shown(host, path, text)
            changes.append(Change(path, former, shown(known[path]["before"] or "")))
    if not check:
        for change in changes:
            owned.put_back(host, change.path, known[change.path], known[change.path]["before"])
        owned.forget(host, unwished)
    return changes
