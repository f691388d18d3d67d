"""`%share` in a notebook: request, list and release a share of a GPU. Standard library and IPython.

%load_ext bedplate_share
%share request 0.1 1h
%share list
%share release share-1a2b3c

%%share 0.1 10m
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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Set by the spawner: the service's address with the course, and the token of the notebook.
ADDRESS: Final = "BEDPLATE_SHARES_URL"
TOKEN: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - a variable's name
USAGE: Final = "%share request SHARE [TIME] | list | release NAME"
CELL_USAGE: Final = "%%share SHARE [TIME], then the cell that is run in the share"
PAUSE: Final = 2.0
PATIENCE: Final = 30.0


def ask(method: str, path: str = "", body: dict[str, str] | None = None) -> dict[str, Any]:
    """Make one request to the service. Raises RuntimeError with its message."""
    address = os.environ.get(ADDRESS)
    if not address:
        raise RuntimeError(f"this notebook has no service for shares: {ADDRESS} is not set")
    asked = urllib.request.Request(  # noqa: S310 - the hub's own address
        address.rstrip("/") + path,
        data=None if body is None else json.dumps(body).encode(),
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
        raise RuntimeError(message) from None
    except OSError as error:
        raise RuntimeError(f"the service does not answer: {error}") from None


def share(line: str, cell: str | None = None) -> None:
    """Do what a line says, or run a cell in a share, and print what came of it."""
    words = shlex.split(line)
    try:
        if cell is not None and len(words) in (1, 2):
            _run(words[0], words[1] if len(words) == 2 else "", cell)
        elif cell is not None:
            print(CELL_USAGE)
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
    except RuntimeError as error:
        print(error)


def _request(text: str, length: str) -> None:
    """Ask, and show the place until it runs; an interrupt of the cell ends the waiting alone."""
    made = ask("POST", "", {"share": text, "time": length})
    print(f"{made['name']}: {made['gets']}, for {made['time']}")
    for state, line in _states(made["name"]):
        if line:
            print(line)
        if state == "running":
            return


def _run(text: str, length: str, code: str) -> None:
    """Run code in a share of its own and print what it prints; an interrupt ends both."""
    made = ask("POST", "", {"share": text, "time": length, "code": code})
    print(f"{made['name']}: {made['gets']}, for {made['time']}")
    printed = ""
    try:
        for state, line in _states(made["name"]):
            if state in ("running", "ending", "ended"):
                output = str(ask("GET", f"/{made['name']}")["output"])
                print(output[len(printed) :], end="", flush=True)
                printed = output if len(output) > len(printed) else printed
            if line:
                print(line)
    finally:
        with contextlib.suppress(RuntimeError):  # it was released in between
            ask("DELETE", f"/{made['name']}")


def _states(name: str) -> Iterator[tuple[str, str]]:
    """Yield the state of a share until it has ended, and its line where that is another."""
    said = ""
    while True:
        found = [one for one in ask("GET")["shares"] if one["name"] == name]
        line = found[0]["line"] if found else f"{name}: released"
        state = found[0]["state"] if found else "ended"
        yield state, "" if line == said else line
        if state == "ended":
            return
        said = line
        time.sleep(PAUSE)


def load_ipython_extension(ipython: Any) -> None:
    """Give IPython the magic."""
    ipython.register_magic_function(share, "line_cell", "share")
