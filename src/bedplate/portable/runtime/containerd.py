"""containerd's main configuration: ours where there was none, and a user's with one line added."""

import os
import re
from fnmatch import fnmatch
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .. import adopted as users
from .. import owned
from ..files import Change, Owner, owner
from ..host import Host, shown
from ..message import problem

ROLE = "container_runtime"
KEPT = users.KEPT
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[(?P<items>[^\]]*)\]", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*version[ \t]*=[ \t]*(?P<number>\d+)[^\n]*\n?", re.MULTILINE)
_DISABLED = re.compile(r"^[ \t]*disabled_plugins[ \t]*=[ \t]*\[(?P<items>[^\]]*)\]", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_STRING = re.compile(r"\"([^\"]*)\"|'([^']*)'")
#: Names under which a file can switch off what kubelet talks to.
_CRI = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_CRI_TABLE = re.compile(
    r"^[ \t]*\[[ \t]*plugins[ \t]*\.[ \t]*([\"'])io\.containerd\.grpc\.v1\.cri\1", re.MULTILINE
)
_SEGMENT = r"(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)"
_DOTTED = rf"{_SEGMENT}(?:[ \t]*\.[ \t]*{_SEGMENT})*"
#: The head of a table, or a key with where its value begins.
_HEAD_OR_KEY = re.compile(
    rf"^[ \t]*(?:\[\[?[ \t]*(?P<table>{_DOTTED})[ \t]*\]|(?P<key>{_DOTTED})[ \t]*=(?P<value>.*))",
    re.MULTILINE,
)
#: Plugins that have known the registries, from containerd's oldest version to the newest.
_IMAGES = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images")
_MIRRORS_INLINE = re.compile(r"\bmirrors\b[ \t]*=[ \t]*\{[ \t]*[^ \t}]")
_PATH_INLINE = re.compile(r"\bconfig_path[ \t]*=[ \t]*(?:\"([^\"]*)\"|'([^']*)')")


class Outcome(NamedTuple):
    """The change (None: nothing to do), what waits, what is wrong, and whether it is a user's.

    Of a user's file the change has only the lines that differ.
    """

    change: Optional[Change]
    pending: List[str]
    problems: List[str]
    adopted: bool


def _without_comments(text: str) -> str:
    """The text with comments blanked, so that places stay the same."""
    return _COMMENT.sub(lambda match: "#" * len(match.group()), text)


def _strings(items: str) -> List[str]:
    return [first or second for first, second in _STRING.findall(items)]


def _top(text: str) -> int:
    """Where the keys end that belong to no table."""
    found = _TABLE.search(_without_comments(text))
    return found.start() if found else len(text)


def _imports(text: str) -> List[str]:
    found = _IMPORTS.search(_without_comments(text), 0, _top(text))
    return _strings(text[found.start("items") : found.end("items")]) if found else []


def with_imports(text: str, pattern: str, instead_of: str = "") -> str:
    """A configuration that also imports ``pattern``; every other byte stays.

    Where it imports ``instead_of``, that entry becomes ``pattern``.
    """
    hidden = _without_comments(text)
    end = _top(text)
    found = _IMPORTS.search(hidden)
    if found and found.start() < end:
        items = text[found.start("items") : found.end("items")]
        if pattern in _strings(items):
            return text
        if instead_of in _strings(items):
            items = items.replace(instead_of, pattern)
            return text[: found.start("items")] + items + text[found.end("items") :]
        bare = items.rstrip()
        comma = "" if not bare.strip() or bare.endswith(",") else ", "
        more = bare + comma + f'"{pattern}"' + items[len(bare) :]
        return text[: found.start("items")] + more + text[found.end("items") :]
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f'imports = ["{pattern}"]{newline}'
    version = _VERSION.search(hidden, 0, end)
    at = version.end() if version else 0
    gap = "" if at == 0 or text[at - 1] == "\n" else newline
    return text[:at] + gap + line + text[at:]


def without_import(text: str, pattern: str) -> str:
    """A configuration that no longer imports ``pattern``, as ``with_imports`` has added it."""
    hidden = _without_comments(text)
    found = _IMPORTS.search(hidden, 0, _top(text))
    if not pattern or found is None:
        return text
    items = hidden[found.start("items") : found.end("items")]
    entry = re.search(rf"([\"']){re.escape(pattern)}\1(?P<comma>[ \t]*,[ \t]*)?", items)
    if entry is None:
        return text
    start, end = entry.span()
    if not entry.group("comma") and items[:start].endswith(", "):
        start -= 2
    elif not entry.group("comma") and not (items[:start] + items[end:]).strip():
        line_end = text.find("\n", found.end()) + 1 or len(text)
        if not text[found.end() : line_end].strip():
            return text[: found.start()] + text[line_end:]
    at = found.start("items")
    return text[: at + start] + text[at + end :]


def disables_cri(text: str) -> bool:
    """Whether the file switches off what kubelet talks to; no drop-in can switch it on again."""
    hidden = _without_comments(text)
    found = _DISABLED.search(hidden, 0, _top(text))
    items = text[found.start("items") : found.end("items")] if found else ""
    return any(name in _CRI for name in _strings(items))


def _registry(text: str) -> Iterator[Tuple[List[str], str]]:
    """What a file says of registries: names below ``registry``, and the line of the value."""
    table: List[str] = []
    for found in _HEAD_OR_KEY.finditer(_without_comments(text)):
        dotted = found.group("table") or found.group("key")
        names = [name.strip("\"'") for name in re.findall(_SEGMENT, dotted)]
        if found.group("table"):
            table = names
        else:
            names = table + names
        if names[::2][:2] == ["plugins", "registry"] and names[1] in _IMAGES:
            yield names[3:], (found.group("value") or "").strip()


def _resolves(text: str, config_path: str) -> List[str]:
    """Settings of a file that cannot stand beside ``config_path``, of which containerd has one.

    Beside it, mirrors and their certificates keep containerd from serving Kubernetes at all;
    passwords may stay: https://github.com/containerd/containerd/blob/main/docs/cri/registry.md
    """
    found = set()
    for names, value in _registry(text):
        inline = value.startswith("{")
        first = names[0] if names else ""
        if first == "mirrors" and (len(names) > 1 or (inline and value.strip("{} \t"))):
            found.add("mirrors")
        if first == "configs" and ("tls" in names[2:] or (inline and re.search(r"\btls\b", value))):
            found.add("configs.*.tls")
        paths = _strings(value)[:1] if first == "config_path" else []
        if not names and inline:
            if _MIRRORS_INLINE.search(value):
                found.add("mirrors")
            if re.search(r"\btls\b", value):
                found.add("configs.*.tls")
            paths = [one or other for one, other in _PATH_INLINE.findall(value)]
        found.update(f"config_path {one}" for one in paths if one not in ("", config_path))
    return sorted(found)


def _imported(host: Host, path: str, text: str) -> Iterator[Tuple[str, str]]:
    """Files that ``text`` imports and that are not ours, with their texts."""
    known = owned.load(host)
    for pattern in _imports(text):
        folder, name = os.path.split(os.path.join(os.path.dirname(path), pattern))
        for entry in host.list(folder):
            file = f"{folder}/{entry}"
            inner = host.read(file)
            if not fnmatch(entry, name) or inner is None:
                continue
            if owner(host, file, known) not in (Owner.OURS, Owner.EDITED):
                yield file, inner


def _other_registries(
    host: Host, path: str, text: str, adopted: bool, config_path: str
) -> List[str]:
    """Refusals of the user's ways to registries, where ours is ``config_path`` (empty: none).

    ``adopted`` says whether ``text`` is a user's.
    """
    files = [(path, text)] if adopted else []
    files += _imported(host, path, text)
    return [
        problem(
            "containerd's configuration has another way to registries than the requested one",
            f"{name}:registry",
            ", ".join(found),
            f"no mirrors, no certificates, and no config_path but {config_path}",
            f"Move them to {config_path}/<registry>/hosts.toml, or ask for no mirror "
            "(container_runtime_mirror) and no registry of courses, and run again.",
        )
        for name, inner in (files if config_path else [])
        for found in [_resolves(inner, config_path)]
        if found
    ]


def _refusals(path: str, text: str, pattern: str, merged: bool) -> List[str]:
    found = _alone(path, text, pattern) if not merged else []
    if disables_cri(text):
        found.append(
            problem(
                "containerd's configuration switches Kubernetes' interface off",
                f"{path}:disabled_plugins",
                "cri",
                "a file without it, because drop-ins can only add to that list",
                "Take cri out of disabled_plugins in your file, and run again.",
            )
        )
    version = _VERSION.search(text, 0, _top(text))
    if version is None or int(version.group("number")) < 2:
        found.append(
            problem(
                "containerd's configuration is of a version that it no longer reads",
                f"{path}:version",
                version.group("number") if version else "none",
                "2 or newer",
                f"Migrate it: containerd --config {path} config migrate.",
            )
        )
    return found


def _alone(path: str, text: str, pattern: str) -> List[str]:
    """What cannot stand beside ours before containerd 2.0, which merges no tables."""
    found = []
    version = _VERSION.search(text, 0, _top(text))
    if version is not None and int(version.group("number")) > 2:
        found.append(
            problem(
                "containerd's configuration is of a version that it does not read yet",
                f"{path}:version",
                version.group("number"),
                "2, before containerd 2.0",
                "Write your file again for version 2, or choose a newer containerd.",
            )
        )
    tables = bool(_CRI_TABLE.search(_without_comments(text)))
    others = [name for name in _imports(text) if name != pattern]
    if tables or others:
        found.append(
            problem(
                "containerd's configuration would be replaced in part, because containerd merges "
                "no tables before 2.0",
                path,
                ", ".join((['plugins."io.containerd.grpc.v1.cri"'] if tables else []) + others),
                "a file without Kubernetes' interface and without imports",
                "Take that out of your file, or choose containerd 2.0 or newer.",
            )
        )
    return found


def ensure(
    host: Host,
    path: str,
    content: str,
    pattern: str,
    check: bool = False,
    hold: bool = False,
    instead_of: str = "",
    merged: bool = True,
    config_path: str = "",
) -> Outcome:
    """Have ``path`` import ``pattern``: as ``content`` where no user has a file, else by one line.

    What a user's file was before is kept beside it, once. With ``hold`` a file that is there stays,
    and is reported as pending. ``instead_of`` is what an earlier run has added to a user's file, in
    whose place ``pattern`` comes. Unless ``merged``, containerd takes a plugin's settings from one
    file only, and a user's file with settings of the same plugin is refused. ``config_path`` is
    where our settings have containerd look for registries (empty: nowhere); another way to them, in
    a user's file or in one that is imported, is refused.
    """
    before = host.content(path)
    adopted = (
        before is not None
        and before != content
        and owner(host, path, owned.load(host)) is Owner.USER
    )
    after = content
    problems: List[str] = []
    added: Optional[Dict[str, str]] = None
    if adopted and before is not None:
        # What the user imports stays, even where it is called as ours.
        theirs = _imports(host.content(path + KEPT) or before)
        after = with_imports(before, pattern, "" if instead_of in theirs else instead_of)
        added = {"import": "" if pattern in theirs else pattern}
        problems = _refusals(path, after, pattern, merged)
    problems += _other_registries(host, path, after, adopted, config_path)
    if problems:
        return Outcome(None, [], problems, adopted)
    if before == after:
        _record(host, path, after, before, added, check)
        return Outcome(None, [], [], adopted)
    if hold and before is not None:
        return Outcome(
            None, [f"{path}: {'no import' if adopted else 'another content'}"], [], adopted
        )
    texts = (None if before is None else shown(before), after)
    if adopted and before is not None:
        texts = users.changed_lines(before, after)
    if not check:
        _record(host, path, after, before, added, check)
        host.write(path, after, like=host.permissions(path) if adopted else None)
    return Outcome(Change(path, *texts), [], [], adopted)


def _record(
    host: Host,
    path: str,
    after: str,
    before: Optional[str],
    added: Optional[Dict[str, str]],
    check: bool,
) -> None:
    """A user's file, to which ``added`` came, may change as the user likes: ours is watched."""
    if check:
        return
    mode = users.DEFAULT_MODE
    if added is not None:
        users.keep_copy(host, path, ROLE, before if before != after else None)
        mode = users.mode_of(host.permissions(path))
    owned.keep(host, [owned.Writing(path, after, mode, before, added is None, ROLE, added, True)])
