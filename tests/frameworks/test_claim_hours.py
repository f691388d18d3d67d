"""GPU-hours of a person in a course by claims: real hub, Kueue, scheduler and recorder."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import requests

from bedplate.accounting.units import units
from bedplate.catalogue import load_catalogue
from bedplate.components.schedulers.accounting_objects import ARCHIVE, NAMESPACE, archive, objects
from bedplate.pods.hub import hours
from tests.frameworks.claims import claimed
from tests.frameworks.hub import RunningHub, hub_of
from tests.frameworks.test_usage import recorder
from tests.schedulers.api import ApiError, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

COURSE, STUDENTS = "studio", ["bea", "carl"]
#: What a student claims, and which part of the GPU's 16 GiB that is.
MIB, PART = 3072, 0.1875
#: Seconds of such a share that a student has in a week.
WEEK = 10.0
LIMIT = PART * WEEK / 3600


@pytest.fixture
def hub() -> Iterator[RunningHub]:
    """Start a control plane, Kueue, the recorder, and the hub of a course by claims."""
    with hub_of({}, {}, by_claim={COURSE: (len(STUDENTS), MIB)}) as found:
        found.settings["courses"][COURSE] |= {"members": STUDENTS, "gpu_hours": LIMIT}
        limits, folder = {COURSE: (COURSE, LIMIT)}, found.plane.folder
        for one in objects("", {}, hours=limits):
            if one["kind"] != "Deployment":
                found.plane.api.apply(one)
        (folder / ARCHIVE).write_bytes(archive())
        (folder / "units.json").write_text(json.dumps(units(found.kueue.lock, load_catalogue())))
        (folder / "hours.json").write_text(json.dumps(limits))
        found.start()
        recorder(found.plane, f"--hours={folder / 'hours.json'}", "--use-every=1")
        yield found


@pytest.mark.prove
def test_who_has_used_up_the_hours_by_claims_gets_no_other(hub: RunningHub) -> None:
    """What runs goes on; after it the person gets nothing more, and another one does."""
    api = hub.plane.api
    hub.api("POST", "users", {"usernames": STUDENTS})
    address = f"{hub.settings['service']['shares_url']}/services/shares/{COURSE}"
    scopes = {"scopes": ["access:services!service=shares"]}
    tokens = {name: hub.api("POST", f"users/{name}/tokens", scopes)["token"] for name in STUDENTS}

    def asks(who: str, method: str = "GET", path: str = "", body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"token {tokens[who]}"}
        try:
            done = requests.request(method, address + path, json=body, headers=headers, timeout=60)
        except requests.ConnectionError:  # the service may be slower than the hub
            return {}
        found: dict[str, Any] = done.json()
        return found

    def states(who: str) -> list[str]:
        return [one["state"] for one in asks(who).get("shares", [])]

    def used() -> dict[str, float]:
        try:
            table = api.call("GET", api.path("configmaps", "v1", NAMESPACE, hours.NAME))
        except ApiError:  # nothing was counted yet
            return {}
        found: dict[str, float] = json.loads(table["data"][hours.CONTENT])["used"][COURSE]
        return found

    eventually(lambda: asks("bea"), until=lambda told: told == {"shares": []})
    begun, request = time.monotonic(), {"time": "1h"}
    first = asks("bea", "POST", "", request)["name"]
    eventually(lambda: states("bea") == ["running"])
    assert list(claimed(api, COURSE).values()) == [("gpu-0", "3Gi")]
    # Of the course's claims one person has one, however many are free.
    assert "one share more than studio gives" in asks("bea", "POST", "", request)["error"]
    eventually(lambda: used().get("bea", 0) >= LIMIT, 60)
    assert used().keys() == {"bea"}
    assert used()["bea"] <= PART * (time.monotonic() - begun) / 3600, "the part that is claimed"
    assert states("bea") == ["running"], "hours end nothing that runs"
    asks("bea", "DELETE", f"/{first}")
    eventually(lambda: claimed(api, COURSE) == {})
    spent = "no GPU-hours of studio are left in this week"
    assert spent in asks("bea", "POST", "", request)["error"]
    hub.refuses("bea", f"{COURSE}-jax", "GPU-hours of studio are left in this week")
    assert (states("bea"), claimed(api, COURSE)) == ([], {})
    asks("carl", "POST", "", request)
    eventually(lambda: list(claimed(api, COURSE).values()) == [("gpu-0", "3Gi")])
