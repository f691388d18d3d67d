"""What clients of MPS do to each other: the plan and the page on sharing say it in one text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bedplate.components.frameworks.hub_objects import USER
from bedplate.resolver.sharing_notices import EFFECTS, OF_NOTEBOOKS
from tests.resolver.test_whole_sites import T4, decide, host, planned

ROOT = Path(__file__).parents[2]
ONE_USER = (
    "pool_a: mps: programs of one user at a time have a GPU; one of another user waits, without a "
    "word, until the last of the first has ended; "
)
FAULTS = (
    "pool_a: mps: a program that faults, as by writing where it has no memory, ends the others on "
    "its GPU; where users are not trusted, take mig or whole GPUs"
)


def warned(sharing: dict[str, Any], courses: list[dict[str, Any]]) -> list[str]:
    """Return what a plan says of MPS' effects in a pool of two hosts, each but once."""
    shared = {"bedplate_schedulers": ["kueue"], "bedplate_courses": courses}
    pool = T4 | shared | {"bedplate_sharing": sharing}
    nodes = [host(name, ["gpu_pools", "pool_a"], pool) for name in ("a", "b")]
    plan = planned(decide(host("cp1", ["control_plane"], shared), *nodes))
    return [text for text in plan.warnings if "mps: " in text]


def test_the_plan_warns_of_users_and_of_faults() -> None:
    found = warned({"mode": "mps", "replicas": 4}, [])
    assert [text.partition(" (https")[0] for text in found] == [
        f"{ONE_USER}give all pods of the pool one runAsUser",
        FAULTS,
    ]


def test_of_notebooks_it_says_that_they_are_one_user() -> None:
    course = {"name": "intro", "students": 2, "share": 0.25, "pool": "pool_a"}
    found = warned({"mode": "mps", "replicas": 4}, [course])
    assert found[0].startswith(f"{ONE_USER}{OF_NOTEBOOKS}")
    assert found[1] == FAULTS
    assert f"all user {USER} " in OF_NOTEBOOKS
    assert OF_NOTEBOOKS.endswith(f"runAsUser: {USER}")
    hub = (ROOT / "src/bedplate/pods/hub/jupyterhub_config.py").read_text(encoding="utf-8")
    assert f"c.KubeSpawner.uid = {USER}\n" in hub


@pytest.mark.parametrize("sharing", [{}, {"mode": "time-slicing", "replicas": 4}])
def test_of_other_modes_it_says_nothing(sharing: dict[str, Any]) -> None:
    assert warned(sharing, []) == []


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_page_on_sharing_has_the_same_text(effect: str) -> None:
    page = re.sub(r"\s+", " ", (ROOT / "docs/sharing.md").read_text(encoding="utf-8"))
    assert EFFECTS[effect][1:] in page
