"""Services that must run with the files as they are now."""

import os
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .host import Host

_SHOWN = ("ActiveState", "SubState", "Result", "UnitFileState", "NeedDaemonReload")
_STARTED = "ExecMainStartTimestampMonotonic"
#: Of a unit without a program of its own, as one that watches a path.
_ENTERED = "ActiveEnterTimestampMonotonic"
#: When its state last changed, as it also does for a moment when it is told to reload.
_CHANGED = "StateChangeTimestampMonotonic"
#: Where files of ours make units.
UNITS = "/etc/systemd/system"
#: What a unit can be wished to be, each with all that stands before it: systemd knows its files as
#: they are; it comes at boot; it runs, since after the files that it reads last changed.
LEVELS = ("loaded", "enabled", "started")
#: Of a unit that is somebody else's: whether it runs is theirs to say, and where it does, it runs
#: since after the files last changed. It may not be there at all.
CURRENT = "current"
#: The same, of one that takes what changed without a restart: it has been told to, since then.
RELOADED = "reloaded"
WISHES = (*LEVELS, CURRENT, RELOADED)


def state(host: Host, unit: str) -> Dict[str, str]:
    """What systemd says of a unit; empty values where it knows none."""
    return states(host, [unit])[unit]


def states(host: Host, units: Sequence[str]) -> Dict[str, Dict[str, str]]:
    """What systemd says of each unit, asked at once; empty where it does not answer."""
    names = ",".join([*_SHOWN, _STARTED, _ENTERED, _CHANGED])
    answer = host.run(["systemctl", "show", *units, "--property", names])
    told = [
        dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        for part in answer.out.split("\n\n")
    ]
    return {unit: told[place] if place < len(told) else {} for place, unit in enumerate(units)}


def running(now: Dict[str, str]) -> bool:
    """Whether the unit is up."""
    return now.get("ActiveState") == "active"


def older_than(host: Host, now: Dict[str, str], paths: Sequence[str]) -> bool:
    """Whether the unit runs since before one of these files, or one of a folder, last changed.

    By the files and not by what this run did: a run that was ended between writing a file and
    restarting the service is made good by the next one.
    """
    return running(now) and _newer(host, paths, now.get(_STARTED) or now.get(_ENTERED))


def _newer(host: Host, paths: Sequence[str], since: Optional[str]) -> bool:
    boot = time.time() - time.monotonic()
    return newer(host, paths, boot + int(since or 0) / 1e6)


def newer(host: Host, paths: Sequence[str], since: float) -> bool:
    """Whether one of these files, or one of a folder, changed after ``since`` (as of time.time()).

    A time that is yet to come, as after a clock was set back, says nothing: else what follows the
    files would be done again and again until it has come.
    """
    present = time.time()
    return any(since < changed_at(host, path) <= present for path in paths)


def changed_at(host: Host, path: str) -> float:
    """When a file changed, or the newest file of a folder; long ago where there is none."""
    real = host.path(path)
    if os.path.isdir(real) and not os.path.islink(real):
        inside = [f"{path}/{name}" for name in host.list(path)]
        files = [one for one in inside if not os.path.isdir(host.path(one))]
        return max([changed_at(host, one) for one in files], default=0.0)
    try:
        return os.lstat(real).st_mtime
    except OSError:
        return 0.0


class Owed(NamedTuple):
    """What is to be done for units to be as wished.

    ``reload`` is systemd's own, ``tell`` are units that are told to read their files anew.
    """

    reload: bool
    enable: List[str]
    start: List[str]
    restart: List[str]
    tell: List[str]

    @property
    def told(self) -> List[str]:
        """A line for each, for people."""
        lines = ["systemd: reads its units again"] if self.reload else []
        parts = {"enabled": self.enable, "started": self.start, "restarted": self.restart}
        parts["reloaded"] = self.tell
        return lines + [f"{unit}: {what}" for what, units in parts.items() for unit in units]


def owed(
    host: Host, wishes: Mapping[str, str], files: Sequence[str], changed: Sequence[str]
) -> Owed:
    """What units lack to be as wished (`WISHES`), by what systemd says and by their files.

    ``files`` are those that the units read (of a folder, all in it), ``changed`` those of them that
    have just been changed or, in check mode, would be. What a run that was ended has left undone is
    owed too.
    """
    found = states(host, sorted(wishes)) if wishes else {}
    lacks = Owed(
        any(path.startswith(UNITS + "/") for path in changed)
        or any(now.get("NeedDaemonReload") == "yes" for now in found.values()),
        [u for u, now in found.items() if _wished(wishes[u], "enabled") and not _at_boot(now)],
        [],
        [],
        [],
    )
    for unit, now in found.items():
        started = _wished(wishes[unit], "started")
        if not running(now):
            lacks.start.extend([unit] if started else [])
        elif wishes[unit] == RELOADED:
            told = not changed and not _newer(host, files, now.get(_CHANGED))
            lacks.tell.extend([] if told else [unit])
        elif (started or wishes[unit] == CURRENT) and (changed or older_than(host, now, files)):
            lacks.restart.append(unit)
    return lacks


def spare(lacks: Owed, units: Sequence[str]) -> Tuple[Owed, List[str]]:
    """What is owed without restarts of ``units``, and which of them owe one."""
    spared = [unit for unit in lacks.restart if unit in units]
    left = [unit for unit in lacks.restart if unit not in units]
    return lacks._replace(restart=left), spared


def _wished(wish: str, what: str) -> bool:
    return wish in LEVELS[LEVELS.index(what) :]


def _at_boot(now: Mapping[str, str]) -> bool:
    return now.get("UnitFileState") == "enabled"


def settle(host: Host, lacks: Owed) -> str:
    """Do what is owed; empty, or what systemd said of the first step that it refused."""
    # To enable has systemd read its units anew as well, at a tenth of a second each time.
    steps = [["daemon-reload"]] if lacks.reload and not lacks.enable else []
    parts = {"enable": lacks.enable, "start": lacks.start, "restart": lacks.restart}
    parts["reload"] = lacks.tell
    steps += [[verb, *units] for verb, units in parts.items() if units]
    for step in steps:
        answer = host.run(["systemctl", *step], timeout=300)
        if answer.code != 0:
            return f"systemctl {' '.join(step)}: {answer.said}"
    return ""


def settled(host: Host, unit: str, seconds: float) -> Dict[str, str]:
    """The unit's state once it has been up for a moment, or has failed, or the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        now = state(host, unit)
        since = time.monotonic() - int(now.get(_STARTED) or 0) / 1e6
        if now.get("ActiveState") == "failed" or (running(now) and since > 1):
            return now
        if time.monotonic() > deadline:
            return now
        time.sleep(0.3)


def last_words(host: Host, unit: str) -> str:
    """The last line that a unit wrote to the journal: why it does not run."""
    answer = host.run(["journalctl", "--unit", unit, "--lines=20", "--output=cat", "--quiet"])
    lines = [line for line in answer.out.splitlines() if "error" in line or "fatal" in line]
    return (lines or answer.out.splitlines() or [answer.said])[-1].strip()
