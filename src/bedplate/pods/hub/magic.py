"""`%share` in a notebook: request, list and release a share of a GPU. Standard library and IPython.

%load_ext bedplate_share
%share run train.py --epochs 3
%share request 0.1 1h
%share list
%share release share-1a2b3c

%%share
!nvidia-smi -L
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Set by the spawner: the service's address with the course, and the token of the notebook.
ADDRESS: Final = "BEDPLATE_SHARES_URL"
TOKEN: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - a variable's name
#: Which of the course's images the notebook has.
PROFILE: Final = "BEDPLATE_PROFILE"
USAGE: Final = (
    "%share run [--for TIME] SCRIPT [ARGUMENT ...] | request SHARE [TIME] | list | release NAME"
)
CELL_USAGE: Final = "%%share [SHARE [TIME]], then the cell that is run in the share"
#: Seconds between two questions: the longest, that of who is next, and that of who starts or was
#: in another state before.
PAUSE: Final = 2.0
NEXT: Final = 0.5
SOON: Final = 0.25
PATIENCE: Final = 30.0
#: Seconds for which a run goes on without the service: a hub that starts again needs less.
AWAY: Final = 300.0
SERVERS_FAULT: Final = 500
#: Of a share that is gone: the lesson has ended, or somebody released it.
RELEASED: Final = ": released"


class AwayError(RuntimeError):
    """The service, or what it asks, does not answer now."""


def ask(method: str, path: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make one request to the service. Raises RuntimeError with its message."""
    address = os.environ.get(ADDRESS)
    if not address:
        raise RuntimeError(f"this notebook has no service for shares: {ADDRESS} is not set")
    asked = urllib.request.Request(  # noqa: S310 - the hub's own address
        address.rstrip("/") + path,
        data=None if body is None else json.dumps(body, ensure_ascii=False).encode(),
        method=method,
        headers={"Authorization": f"token {os.environ.get(TOKEN, '')}"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        try:
            message = json.load(error)["error"]
        except (ValueError, KeyError, TypeError):
            message = str(error)
        kind = AwayError if error.code >= SERVERS_FAULT else RuntimeError
        raise kind(message) from None
    except OSError as error:
        raise AwayError(f"the service does not answer: {error}") from None


def look(path: str = "") -> dict[str, Any]:
    """Ask until there is an answer: what was asked for waits or runs meanwhile."""
    until = time.monotonic() + AWAY
    while True:
        try:
            return ask("GET", path)
        except AwayError:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE)


def share(line: str, cell: str | None = None) -> None:
    """Do what a line says, or run a cell in a share, and print what came of it."""
    try:
        words = shlex.split(line)
        if cell is not None and len(words) <= 2:
            size, length = [*words, "", ""][:2]
            _run({"share": size, "time": length, "code": cell})
        elif cell is not None:
            print(CELL_USAGE)
        elif words[:1] == ["run"] and (script := _script(words[1:])):
            _run(script)
        elif words[:1] == ["request"] and len(words) in (2, 3):
            _request(words[1], words[2] if len(words) == 3 else "")
        elif words == ["list"]:
            found = ask("GET")["shares"]
            print("\n".join(one["line"] for one in found) or "No shares.")
        elif words[:1] == ["release"] and len(words) == 2:
            ask("DELETE", f"/{words[1]}")
            print(f"{words[1]}: released")
        else:
            print(USAGE)
    except (RuntimeError, ValueError) as error:
        print(error)


def _script(words: list[str]) -> dict[str, Any]:
    """Return what is asked for to run a script; nothing where the words name none."""
    length = ""
    if words[:1] == ["--for"]:
        length, words = "".join(words[1:2]), words[2:]
    return {"time": length, "run": words} if words else {}


def _request(text: str, length: str) -> None:
    """Ask, and show the place until it runs; an interrupt of the cell ends the waiting alone."""
    made = ask("POST", "", {"share": text, "time": length})
    print(f"{made['name']}: {made['gets']}, for {made['time']}")
    for state, line in _states(made["name"]):
        if line:
            print(line)
        if state == "running":
            return


def _run(asked: dict[str, Any]) -> None:
    """Run a cell or a script in a share, as here, and print what it prints; an interrupt ends both.

    It has the notebook's image, files and directory.
    """
    here = {"directory": str(Path.cwd()), "profile": os.environ.get(PROFILE, "")}
    made = ask("POST", "", {**asked, **here})
    print(f"{made['name']}: {made['gets']}, for {made['time']}")
    printed = ""
    try:
        for state, line in _states(made["name"]):
            # What a container prints is there a second or two before its Job says that it runs.
            if state != "waiting" and not line.endswith(RELEASED):
                output = str(look(f"/{made['name']}")["output"])
                print(output[len(printed) :], end="", flush=True)
                printed = output if len(output) > len(printed) else printed
            if line:
                print(line)
    finally:
        with contextlib.suppress(RuntimeError):  # it was released in between
            ask("DELETE", f"/{made['name']}")


def _states(name: str) -> Iterator[tuple[str, str]]:
    """Yield the state of a share until it has ended, and its line where that is another."""
    said, before, pause = "", "", SOON
    while True:
        found = [one for one in look()["shares"] if one["name"] == name]
        line = found[0]["line"] if found else f"{name}{RELEASED}"
        state = found[0]["state"] if found else "ended"
        yield state, "" if line == said else line
        if state == "ended":
            return
        longest = NEXT if (found[0].get("place") or [0])[0] == 1 else PAUSE
        soon = state != before or state == "starting"
        pause = SOON if soon else min(longest, pause * 2)
        said, before = line, state
        time.sleep(pause)


def load_ipython_extension(ipython: Any) -> None:
    """Give IPython the magic."""
    ipython.register_magic_function(share, "line_cell", "share")
