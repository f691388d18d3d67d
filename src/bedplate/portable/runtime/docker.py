"""Docker's daemon.json, of which the user is the owner: keys of ours merged in, nothing else."""

import json
import re
from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import adopted, documents, owned
from ..files import Change
from ..host import Host
from ..message import problem

PATH = "/etc/docker/daemon.json"
ROLE = "nvidia_container_toolkit"
KEPT = adopted.KEPT
#: What UTF-8 has no bytes for, and JSON has as a number.
_HALVES = re.compile("[\ud800-\udfff]")


class Outcome(NamedTuple):
    """The change, if any, of our keys alone; what waits, and what is wrong.

    ``now`` is what the file says, in the end, of keys that are or may be ours.
    """

    changes: List[Change]
    pending: List[str]
    problems: List[str]
    now: Mapping[str, Any] = {}


def merged(have: Mapping[str, Any], wish: Mapping[str, Any]) -> Dict[str, Any]:
    """``have`` with the keys of ``wish``; objects are merged, whatever else is ours replaces."""
    found = dict(have)
    for key, value in wish.items():
        old = found.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            found[key] = merged(old, value)
        else:
            found[key] = value
    return found


def missing(have: Mapping[str, Any], wish: Mapping[str, Any], prefix: str = "") -> List[str]:
    """The keys, dotted, that are not as wished."""
    found = []
    for key, value in wish.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(have.get(key), Mapping):
            found += missing(have[key], value, name + ".")
        elif have.get(key) != value:
            found.append(name)
    return found


def _part(have: Mapping[str, Any], wish: Mapping[str, Any]) -> Dict[str, Any]:
    """What ``have`` says of the keys of ``wish``: the others may hold what is nobody's to see."""
    found: Dict[str, Any] = {}
    for key, value in wish.items():
        if isinstance(value, Mapping) and isinstance(have.get(key), Mapping):
            found[key] = _part(have[key], value)
        elif key in have:
            found[key] = have[key]
    return found


def _leaves(wish: Mapping[str, Any], at: Sequence[str] = ()) -> Iterator[Tuple[List[str], Any]]:
    """The places in ``wish`` that are no object, each with its value."""
    for key, value in wish.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, [*at, key])
        else:
            yield [*at, key], value


def _at(have: Any, place: Sequence[str]) -> List[Any]:
    """The value at a place, as a list of one; empty where there is none."""
    for key in place:
        if not isinstance(have, Mapping) or key not in have:
            return []
        have = have[key]
    return [have]


def _added(have: Mapping[str, Any], wish: Mapping[str, Any], old: Any) -> List[Dict[str, Any]]:
    """What is ours in the file with ``wish``: ``at``, the value ``ours`` and what it ``was``.

    ``old`` is the same of the last writing. What the user has said since is what comes back.
    """
    known = {tuple(one["at"]): one for one in old}
    for place, value in _leaves(wish):
        one, now = known.get(tuple(place)), _at(have, place)
        if now == [value] and one is None:
            continue  # the user's, who says the same
        was = one["was"] if one is not None and now == [one["ours"]] else now
        known[tuple(place)] = {"at": place, "ours": value, "was": was}
    return [known[place] for place in sorted(known)]


def without_keys(text: str, added: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """The file without what is ours in it, empty if nothing is left.

    None where the file cannot be read, or has another value in a place of ours: what the user has
    made of it may need the rest.
    """
    try:
        have = _object(text)
    except ValueError:
        return None
    for one in added:
        if not _at(have, one["at"]):
            continue
        if _at(have, one["at"]) != [one["ours"]]:
            return None
        _take_out(have, one)
    return _as_in(text, have) if have else ""


def _take_out(have: Dict[str, Any], one: Mapping[str, Any]) -> None:
    """Have a place of ours as it was before; objects that came with it alone go as well."""
    *folders, key = one["at"]
    inner = _at(have, folders)[0]
    if one["was"]:
        inner[key] = one["was"][0]
        return
    del inner[key]
    while folders and not _at(have, folders)[0]:
        *folders, key = folders
        del _at(have, folders)[0][key]


def _with_defaults(
    have: Any, wish: Mapping[str, Any], otherwise: Mapping[str, Any], added: Any
) -> Dict[str, Any]:
    """``wish``, with those keys of ``otherwise`` that are ours, and were nobody's before."""
    alone = [
        one["at"][0]
        for one in added
        if len(one["at"]) == 1 and not one["was"] and _at(have, one["at"]) == [one["ours"]]
    ]
    return {**{key: otherwise[key] for key in alone if key in otherwise}, **wish}


def _unwished(have: Any, wish: Mapping[str, Any], added: Any) -> List[Dict[str, Any]]:
    """What is ours in the file, and not wished any more."""
    wished = [place for place, _ in _leaves(wish)]
    return [o for o in added if o["at"] not in wished and _at(have, o["at"]) == [o["ours"]]]


def _text(value: Mapping[str, Any], indent: str) -> str:
    return json.dumps(value, indent=indent) + "\n"


def _object(text: str) -> Dict[str, Any]:
    """What a file says; nothing where it is empty. Raises ValueError if it is no object."""
    found = documents.parsed(text) if text.strip() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}")  # noqa: TRY004 - a wrong text
    return found


def _as_in(text: str, value: Mapping[str, Any]) -> str:
    """The file with a value, written as the user writes: indent, ends of lines, letters."""
    plain = text.isascii()
    written = json.dumps(value, indent=_indent(text), ensure_ascii=plain) + "\n"
    written = _HALVES.sub(lambda found: f"\\u{ord(found.group()):04x}", written)
    return written.replace("\n", "\r\n") if "\r\n" in text else written


def _indent(text: str) -> str:
    """How the user indents."""
    for line in text.splitlines():
        lead = line[: len(line) - len(line.lstrip())]
        if lead:
            return lead
    return "    "


def ensure(
    host: Host,
    wish: Mapping[str, Any],
    check: bool = False,
    hold: bool = False,
    otherwise: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Have the keys of ``wish`` in daemon.json; what a user's file was before is kept, once.

    What an earlier wish has added is taken out again. A key of ``otherwise``, if nobody had it
    before, gets that value instead: Docker keeps to what it knew where the key is gone.
    """
    before = host.content(PATH)
    try:
        have = _object(before or "")
    except ValueError as error:
        text = problem(
            "Docker's configuration is not JSON",
            PATH,
            str(error),
            "one JSON object",
            "Fix your file, and run again.",
        )
        return Outcome([], [], [text])
    known = (owned.load(host).get(PATH, {}).get("added") or {}).get("keys", [])
    full = {**otherwise, **wish}
    wish = _with_defaults(have, wish, otherwise, known)
    gone = _unwished(have, wish, known)
    wrong = missing(have, wish) + [".".join(one["at"]) for one in gone]
    if not wrong:
        if not check:
            adopted.keep_copy(host, PATH, ROLE)
        return Outcome([], [], [], _part(have, full))
    if hold:
        return Outcome([], [f"{PATH}: {', '.join(wrong)}"], [], _part(have, full))
    indent = _indent(before or "")
    rest = json.loads(json.dumps(have))
    for one in gone:
        _take_out(rest, one)
    now = merged(rest, wish)
    after = _as_in(before or "", now)
    if not check:
        adopted.keep_copy(host, PATH, ROLE, before)
        like = host.permissions(PATH)
        mode = adopted.mode_of(like)
        added = {"keys": _added(rest, wish, [one for one in known if one not in gone])}
        owned.keep(host, [owned.Writing(PATH, after, mode, before, False, ROLE, added)])
        host.write(PATH, after, like=like)
    told: Dict[str, Any] = dict(wish)
    for one in gone:
        told = merged(told, _nested(one["at"], one["ours"]))
    shown = Change(PATH, _text(_part(have, told), indent), _text(_part(now, told), indent))
    return Outcome([shown], [], [], _part(now, full))


def _nested(place: Sequence[str], value: Any) -> Dict[str, Any]:
    """An object that has a value at a place, and nothing else."""
    for key in reversed(place):
        value = {key: value}
    return dict(value)
