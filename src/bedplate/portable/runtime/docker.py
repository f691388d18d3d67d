"""Docker's daemon.json, of which the user is the owner: keys of ours merged in, nothing else."""

import json
from typing import Any, Dict, List, Mapping, NamedTuple

from .. import owned
from ..files import Change
from ..host import Host
from ..message import problem

PATH = "/etc/docker/daemon.json"
#: What the file was before keys were merged in.
KEPT = ".before-bedplate"


class Outcome(NamedTuple):
    """The change, if any, what waits, and what is wrong."""

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
        return Outcome([], [], [])
    if hold:
        return Outcome([], [f"{PATH}: {', '.join(wrong)}"], [])
    after = json.dumps(merged(have, wish), indent=_indent(before or "")) + "\n"
    if not check:
        if before is not None and not host.exists(PATH + KEPT):
            host.write(PATH + KEPT, before)
        writing = owned.Writing(PATH, after, 0o644, before, watched=False)
        owned.keep(host, [writing._replace(role="nvidia_container_toolkit")])
        host.write(PATH, after)
    return Outcome([Change(PATH, before, after)], [], [])
