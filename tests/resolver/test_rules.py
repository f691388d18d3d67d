"""Every rule refuses what it is there for, alone, and nothing that is one step away from it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.resolver import resolve, solving
from bedplate.resolver.explanations import WHAT
from tests.resolver.case_tables import CASES
from tests.resolver.judging import TODAY, faults, unlike
from tests.resolver.preferred import PREFERRED
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from tests.resolver.cases import Case

#: A kernel of another system is refused by its name already (kernel-known).
HOLDS_ALTERNATIVES_TOGETHER = {"kernel-of-system"}
TESTS = Path(__file__).parents[1]
#: Rules about guests, images, teams and presets, each with sites of their own.
ELSEWHERE = {
    "course-cpu-build": "resolver/test_frameworks.py",
    "course-image": "resolver/test_course_fit.py",
    "course-own-image": "resolver/test_images.py",
    "course-pools": "resolver/test_course_pools.py",
    "course-registry": "resolver/test_courses.py",
    "image-pool": "resolver/test_images.py",
    "image-runs": "resolver/test_images.py",
    "preset-cluster": "resolver/test_presets.py",
    "preset-extender": "resolver/test_presets.py",
    "preset-gang": "resolver/test_presets.py",
    "preset-queue": "resolver/test_presets.py",
    "preset-topology": "resolver/test_presets.py",
    "team-claims": "resolver/test_teams.py",
    "team-container": "resolver/test_teams.py",
    "team-person": "resolver/test_teams.py",
    "team-guarantee": "resolver/test_teams.py",
    "team-pool": "resolver/test_teams.py",
    "team-queue": "resolver/test_teams.py",
    "team-size": "resolver/test_teams.py",
    "topology-nested": "resolver/test_topology.py",
    "configuration-decided": "resolver/test_configuration.py",
    "node-address": "resolver/test_networks.py",
    "port-taken": "resolver/test_networks.py",
    "guests": "unit/passthrough/test_hypervisor_guests.py",
    "vgpu-driver": "unit/passthrough/test_hypervisor_guests.py",
    "vgpu-manager": "unit/passthrough/test_hypervisor_guests.py",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_rule_refuses_one_and_lets_its_neighbour_pass(case: Case) -> None:
    """Exactly this rule refuses the wrong site; the right one is decided as it should be."""
    assert faults(case, world()) == []


def test_names_are_used_once() -> None:
    """Two cases of one name would be one in a report."""
    assert [n for n, many in Counter((c.rule, c.name) for c in CASES).items() if many > 1] == []


def test_every_rule_of_the_program_has_a_case() -> None:
    """A rule without a case could be wrong, or be gone, and no test would see it."""
    heads = set(re.findall(r'violated\("([^"]+)"', solving.rules()))
    assert heads - {case.rule for case in CASES} == HOLDS_ALTERNATIVES_TOGETHER


def test_every_refusal_that_has_words_is_seen() -> None:
    """The same for what is wrong before anything is decided: a case, or a site refused for it."""
    sites = (TESTS / "unit" / "broken_sites").glob("*.txt")
    told = "".join(path.read_text(encoding="utf-8") for path in sites)
    seen = {case.rule for case in CASES} | set(re.findall(r"^  rule (\S+)", told, re.MULTILINE))
    assert set(WHAT) - seen == HOLDS_ALTERNATIVES_TOGETHER | set(ELSEWHERE)
    for rule, file in ELSEWHERE.items():
        text = (TESTS / file).read_text(encoding="utf-8")
        assert WHAT[rule] in text or f'"{rule}"' in text, f"{file}: {rule}"


@pytest.mark.parametrize("name", PREFERRED)
def test_preferences(name: str) -> None:
    """What is decided where several decisions keep every rule and wish."""
    site, right = PREFERRED[name]
    assert unlike(resolve(site.site(), world(), TODAY), right) == []
