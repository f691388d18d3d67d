"""One person who asks for notebooks and shares at the same moment has one of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.frameworks.hub import RunningHub, course, hub_of
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

COURSE, PERSON = "crowd", "bob"
TURNS = 20
#: Notebooks come first now and then, and shares: a notebook takes the hub about half a second.
LATEST = 1.2


@pytest.fixture
def hub() -> Iterator[RunningHub]:
    """Start a control plane, Kueue, and the hub of a course with five shares."""
    teams = {COURSE: {"gpus": {"pool_class": (5, 0)}, "members": ["ada"]}}
    with hub_of(teams, {COURSE: course(COURSE, members=[PERSON])}) as found:
        found.start()
        yield found


@pytest.mark.prove
def test_of_what_a_person_asks_for_at_one_moment_there_is_one(hub: RunningHub) -> None:
    """Two servers and four shares on request, in any order: the plan has counted one."""
    hub.api("POST", "users", {"usernames": [PERSON]})
    scopes = ["access:services!service=shares"]
    token = hub.api("POST", f"users/{PERSON}/tokens", {"scopes": scopes})["token"]
    address = f"{hub.settings['service']['shares_url']}/services/shares/{COURSE}"
    headers = {"Authorization": f"token {token}"}
    order = random.Random(0)  # noqa: S311 - an order of requests

    def shares(method: str, path: str = "", body: Any = None) -> bool:
        with suppress(requests.ConnectionError):  # the service may be slower than the hub
            return requests.request(
                method, address + path, json=body, headers=headers, timeout=60
            ).ok
        return False

    def asks(what: tuple[str, float]) -> None:
        name, after = what
        time.sleep(after)
        if name == "share":
            shares("POST", "", {"share": "1", "time": "10m"})
        else:
            with suppress(requests.HTTPError):  # a share came first
                hub.api("POST", f"users/{PERSON}/{name}", {"profile": f"{COURSE}-jax"})

    def held() -> tuple[list[str], list[str]]:
        found = [
            [
                one["metadata"]["name"]
                for one in listed
                if "deletionTimestamp" not in one["metadata"]
            ]
            for listed in (
                hub.plane.api.get("jobs", "batch/v1", COURSE),
                hub.plane.api.get("pods", "v1", COURSE),
            )
        ]
        return found[0], [one for one in found[1] if one.startswith("jupyter-")]

    def servers() -> dict[str, Any]:
        found: dict[str, Any] = hub.api("GET", f"users/{PERSON}")["servers"]
        return found

    eventually(lambda: shares("GET"))
    first = Counter[str]()
    for _ in range(TURNS):
        asked = [("share", order.random() * LATEST) for _ in range(4)]
        asked += [("server", 0.0), ("servers/second", 0.0)]
        with ThreadPoolExecutor(len(asked)) as pool:
            list(pool.map(asks, asked))
        eventually(lambda: all(one["ready"] for one in servers().values()))
        jobs, notebooks = held()
        assert len(jobs) + len(notebooks) == 1, (jobs, notebooks)
        first["share" if jobs else "notebook"] += 1
        for name in servers():
            where = f"servers/{name}" if name else "server"
            hub.api("DELETE", f"users/{PERSON}/{where}")
        for name in jobs:
            assert shares("DELETE", f"/{name}")
        eventually(lambda: held() == ([], []) and servers() == {})
    assert len(first) == 2, f"only one of both ways was tried: {first}"
