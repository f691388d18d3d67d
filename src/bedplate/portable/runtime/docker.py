"""Docker's daemon.json, of which the user is the owner: keys of ours merged in, nothing else."""

import json
from typing import Any, Dict, List, Mapping, NamedTuple

from .. import adopted, owned
from ..files import Change
from ..host import Host
from ..message import problem

PATH = "/etc/docker/daemon.json"
ROLE = "nvidia_container_toolkit"
KEPT = adopted.KEPT


class Outcome(NamedTuple):
    """The change, if any, of our keys alone; what waits, and what is wrong."""

    changes: List[Change]
    pending: List[str]
    problems: List[str]


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


def _text(value: Mapping[str, Any], indent: str) -> str:
    return json.dumps(value, indent=indent) + "\n"


def _indent(text: str) -> str:
    """How the user indents."""
    for line in text.splitlines():
        lead = line[: len(line) - len(line.lstrip())]
        if lead:
            return lead
    return "    "


def ensure(host: Host, wish: Mapping[str, Any], check: bool = False, hold: bool = False) -> Outcome:
    """Have the keys of ``wish`` in daemon.json; what a user's file was before is kept, once."""
    before = host.read(PATH)
    try:
        have = dict(json.loads(before) if before and before.strip() else {})
    except (TypeError, ValueError) as error:
        text = problem(
            "Docker's configuration is not JSON",
            PATH,
            str(error),
            "one JSON object",
            "Mend your file, and run again.",
        )
        return Outcome([], [], [text])
    wrong = missing(have, wish)
    if not wrong:
        if not check:
            adopted.keep_copy(host, PATH, ROLE)
        return Outcome([], [], [])
    if hold:
        return Outcome([], [f"{PATH}: {', '.join(wrong)}"], [])
    indent = _indent(before or "")
    now = merged(have, wish)
    after = _text(now, indent)
    if not check:
        adopted.keep_copy(host, PATH, ROLE, before)
        like = host.permissions(PATH)
        mode = adopted.mode_of(like)
        owned.keep(host, [owned.Writing(PATH, after, mode, before, watched=False, role=ROLE)])
        host.write(PATH, after, like=like)
    shown = Change(PATH, _text(_part(have, wish), indent), _text(_part(now, wish), indent))
    return Outcome([shown], [], [])
