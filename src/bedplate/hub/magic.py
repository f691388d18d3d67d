"""`%share` in a notebook: request, list and release a share of a GPU. Standard library and IPython.

%load_ext bedplate_share
%share request 0.1 1h
%share list
%share release share-1a2b3c
"""

from __future__ import annotations

import json
import os
import shlex
import time
import urllib.error
import urllib.request
from typing import Any, Final

#: Set by the spawner: the service's address with the course, and the token of the notebook.
ADDRESS: Final = "BEDPLATE_SHARES_URL"
TOKEN: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - a variable's name
USAGE: Final = "%share request SHARE [TIME] | list | release NAME"
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


def share(line: str) -> None:
    """Do what a line says, and print what came of it."""
    words = shlex.split(line)
    try:
        if words[:1] == ["request"] and len(words) in (2, 3):
            _request(words[1], words[2] if len(words) == 3 else "1h")
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
    print(f"{made['name']}: {made['gets']}, for {length}")
    said = ""
    while True:
        found = [one for one in ask("GET")["shares"] if one["name"] == made["name"]]
        now = found[0]["line"] if found else f"{made['name']}: released"
        if now != said:
            print(now)
            said = now
        if not found or found[0]["state"] in ("running", "ended"):
            return
        time.sleep(PAUSE)


def load_ipython_extension(ipython: Any) -> None:
    """Give IPython the magic."""
    ipython.register_magic_function(share, "line", "share")
