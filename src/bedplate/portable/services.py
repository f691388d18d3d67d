"""Services that must run with the files as they are now."""

import os
import time
from typing import Dict, Sequence

from .host import Host

_SHOWN = ("ActiveState", "SubState", "Result", "UnitFileState", "NeedDaemonReload")
_STARTED = "ExecMainStartTimestampMonotonic"


def state(host: Host, unit: str) -> Dict[str, str]:
    """What systemd says of a unit; empty values where it knows none."""
    names = ",".join([*_SHOWN, _STARTED])
    answer = host.run(["systemctl", "show", unit, "--property", names])
    pairs = (line.partition("=") for line in answer.out.splitlines())
    return {key: value for key, _, value in pairs}


def running(now: Dict[str, str]) -> bool:
    """Whether the unit is up."""
    return now.get("ActiveState") == "active"


def older_than(host: Host, now: Dict[str, str], paths: Sequence[str]) -> bool:
    """Whether the unit runs since before one of these files was last changed.

    By the files and not by what this run did: a run that was ended between writing a file and
    restarting the service is made good by the next one.
    """
    if not running(now):
        return False
    started = time.time() - time.monotonic() + int(now.get(_STARTED) or 0) / 1e6
    return any(_changed(host, path) > started for path in paths)


def _changed(host: Host, path: str) -> float:
    try:
        return os.lstat(host.path(path)).st_mtime
    except OSError:
        return 0.0


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
