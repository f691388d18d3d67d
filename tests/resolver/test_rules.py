"""Every rule refuses what it is there for, alone, and nothing that is one step away from it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bedplate.resolver import resolve, solving
from tests.resolver.case_tables import CASES
from tests.resolver.judging import TODAY, faults, unlike
from tests.resolver.preferred import PREFERRED
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from tests.resolver.cases import Case

#: A kernel of another system is refused by its name already (kernel-known).
HOLDS_ALTERNATIVES_TOGETHER = {"kernel-of-system"}


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


@pytest.mark.parametrize("name", PREFERRED)
def test_preferences(name: str) -> None:
    """What is decided where several decisions keep every rule and wish."""
    site, right = PREFERRED[name]
    assert unlike(resolve(site.site(), world(), TODAY), right) == []
