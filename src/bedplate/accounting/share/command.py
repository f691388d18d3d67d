"""`bedplate share request | list | release`, with the rights of who runs it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bedplate.common import reading, terminal
from bedplate.common.errors import Problem
from bedplate.pods.api import Api, ApiError
from bedplate.pods.hub import share_ssh, shares
from bedplate.pods.kubeaccess import AccessError, access_of, default_path

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from pathlib import Path

OK, ENDED = 0, 2
HEAD = ("NAME", "STATE", "PLACE", "UNTIL", "ASKED", "USER", "REASON")
PAUSE = 1.0
PATIENCE = 30.0


def run(options: Namespace) -> int:
    """Ask, list or release.

    Returns:
        0, or 2 where a share that was waited for has ended or was deleted before it ran.

    Raises:
        BedplateError: the kubeconfig cannot be used, the API refuses, or what is asked for is not
            there.
    """
    path = options.kubeconfig or default_path()
    with access_of(path, named=options.kubeconfig is not None) as entry:
        api = Api(entry.access, PATIENCE)
        namespace = options.namespace or entry.namespace or "default"
        try:
            if options.what == "request":
                return _request(api, namespace, options)
            if options.what == "release":
                for name in options.names:
                    shares.release(_call(api), namespace, name)
                    print(f"{name}: released")
                return OK
            _list(shares.shares(_call(api), namespace), options.form)
        except shares.ShareError as error:
            problem = Problem(
                error.what,
                f"namespace {namespace}",
                got=error.got,
                allowed=error.allowed,
                fix=error.fix,
                rule="share",
            )
            raise AccessError([problem]) from error
        except ApiError as error:
            fix = "see that it is a namespace of your team (--namespace), and that the API answers"
            problem = Problem(
                "the API refuses", f"namespace {namespace}", got=str(error), fix=fix, rule="share"
            )
            raise AccessError([problem]) from error
    return OK


def _call(api: Api) -> shares.Call:
    def call(method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        return api.call(method, path, body)

    return call


def _request(api: Api, namespace: str, options: Namespace) -> int:
    asked = shares.Request(
        text=options.share,
        length=shares.seconds(options.time),
        image=options.image,
        command=tuple(options.command_line),
        name=options.name,
    )
    login = options.ssh_key is not None
    key = _key(options.ssh_key) if login else ""

    def change(job: dict[str, Any]) -> dict[str, Any]:
        return share_ssh.with_login(job, key) if login else job

    made = shares.request(_call(api), namespace, asked, change)
    name = made.name
    print(f"{name}: {made.gets}, for {options.time}", flush=True)
    if options.no_wait:
        return OK
    said = ""
    while True:
        found = [one for one in shares.shares(_call(api), namespace) if one.name == name]
        now = str(found[0]) if found else f"{name}: released"
        if now != said:
            print(now, flush=True)
            said = now
        if not found or found[0].state == "ended":
            return ENDED
        if found[0].state == "running":
            if login:
                print(f"  kubectl -n {namespace} port-forward job/{name} {share_ssh.PORT} &")
                print(f"  ssh -p {share_ssh.PORT} {share_ssh.USER}@localhost")
            else:
                print(f"  kubectl -n {namespace} exec -it job/{name} -- sh")
            print(f"  bedplate share release -n {namespace} {name}")
            return OK
        time.sleep(PAUSE)


def _key(path: Path) -> str:
    try:
        return share_ssh.public_key(reading.content(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        fix = "name a file with a public key"
        got = reading.why(error)
        problem = Problem("no public key of SSH", str(path), got=got, fix=fix, rule="share")
        raise AccessError([problem]) from error


def _list(found: list[shares.Share], form: str) -> None:
    if form != "table":
        terminal.document([_content(one) for one in found], form)
    elif not found:
        print("No shares.")
    else:
        terminal.show(terminal.table(HEAD, map(_row, found)))


def _content(one: shares.Share) -> dict[str, Any]:
    place, of = one.place or (None, None)
    return asdict(one) | {"place": place, "places": of}


def _row(one: shares.Share) -> tuple[str, ...]:
    place = "{} of {}".format(*one.place) if one.place else "-"
    user = one.user or "user unknown"
    return (one.name, one.state, place, one.until or "-", one.asked, user, one.reason)
