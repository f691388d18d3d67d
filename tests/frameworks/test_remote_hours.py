"""A claim of who has used the GPU-hours of a week: real controller, Kueue and recorder."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING

import pytest

from bedplate.components.schedulers.accounting_objects import ARCHIVE, archive, objects
from bedplate.components.schedulers.kueue import person_limits
from bedplate.pods.hub.shares import HELD
from tests.frameworks.test_remote import PATIENCE, Remote, running
from tests.frameworks.test_usage import recorder
from tests.schedulers.api import eventually
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator

TEAM = "vision"
#: Seconds of a GPU that a member has in a week: enough for a claim to open, not for a second one.
WEEK = 20
LOCK = lock_of(
    {"pool_train": [{}]},
    {
        TEAM: {
            "gpus": {"pool_train": (1, 0)},
            "members": ["alice"],
            "per_user": {"hours": WEEK / 3600},
        }
    },
    gpus=2,
)


@pytest.fixture
def remote() -> Iterator[Remote]:
    """Start all, and wait until each request is held to be counted."""
    with running(LOCK) as found:
        limits = person_limits.by_namespace(LOCK.teams)
        for one in objects("", {}, None, limits):
            if one["kind"] != "Deployment":
                found.api.apply(one)
        folder = found.plane.folder
        (folder / ARCHIVE).write_bytes(archive())
        (folder / "units.json").write_text(json.dumps({"pool-train": {GPU: 1.0}}))
        (folder / "per_user.json").write_text(json.dumps(limits))
        (folder / "hours.json").write_text(json.dumps(person_limits.hours(LOCK)))
        for number in count():
            found.alice.create(job(f"probe-{number}", TEAM))
            (work,) = eventually(lambda: found.kueue.workloads(TEAM))
            found.kueue.clear(TEAM)
            if HELD in work["metadata"].get("annotations", {}):
                break
        yield found


def counting(remote: Remote) -> None:
    """Start the recorder, which counts."""
    folder = remote.plane.folder
    options = (f"--per-user={folder / 'per_user.json'}", f"--hours={folder / 'hours.json'}")
    recorder(remote.plane, *options, "--use-every=1")


@pytest.mark.prove
def test_a_claim_waits_for_its_persons_next_week(remote: Remote) -> None:
    """The open one goes on; the next says in its own status why it waits, with a GPU free."""
    counting(remote)
    remote.ask("first", 3600)
    remote.reaches("first", "Open")
    remote.ask("second", 3600)

    def said() -> str:
        return str(remote.status("second").get("message", ""))

    eventually(lambda: "insufficient" in said(), PATIENCE)
    pattern = (
        rf"alice has used 0\.01 of {WEEK / 3600:g} GPU-hours of team vision in this week: "
        r"this waits until Monday, \d+ \w+, 00:00 UTC"
    )
    eventually(said, PATIENCE, until=lambda text: re.fullmatch(pattern, text))
    assert remote.status("first")["phase"] == "Open"
    remote.release("first")
    eventually(lambda: remote.used() == "0", PATIENCE)
    assert remote.status("second")["phase"] == "Queued"
    # As a person's hours are raised, or a week later.
    remote.plane.processes["recorder"].kill()
    (remote.plane.folder / "hours.json").write_text(json.dumps({TEAM: [TEAM, 40]}))
    counting(remote)
    remote.reaches("second", "Open")
