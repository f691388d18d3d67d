"""The page of a student who waits for a share, in Chromium: its words, and the picture of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.frameworks.classroom import Students
from tests.frameworks.hub import course, hub_of
from tests.schedulers.api import eventually

if TYPE_CHECKING:
    from pathlib import Path

COURSE, CODE = "seminar", "LEARN-MORE"


@pytest.mark.prove
def test_who_waits_reads_the_place(tmp_path: Path) -> None:
    """`--basetemp FOLDER` keeps the picture, which is docs/proof/hub-queue.png."""
    teams = {COURSE: {"gpus": {"pool_class": (1, 0)}, "members": ["ada"]}}
    with hub_of(teams, {COURSE: course(COURSE)}) as hub:
        hub.secret(f"code-{COURSE}", CODE)
        hub.secret("account-ada", "a-password-of-ada")
        hub.start()
        with Students(hub.url.removesuffix("/hub")) as students:
            for name in ("ben", "cat"):
                students.do("sign_up", name, CODE)
                students.do("login", name)
                students.do("start", name)
                if name == "ben":
                    eventually(lambda: hub.servers().get("ben", {}).get("ready"))
            told = students.do("shows", "cat", "place 1 of 1")
            students.do("picture", "cat", str(tmp_path / "hub-queue.png"))
    assert told == (
        f"You are in the queue of {COURSE}: place 1 of 1. Your notebook starts automatically; you "
        "keep your place when you close this page."
    )
    assert (tmp_path / "hub-queue.png").stat().st_size > 10_000
