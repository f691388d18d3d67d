"""The cases of the rules see what is wrong in rules and facts: a sample here, all under `prove`."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from tests.resolver.mutants import Mutant, rule_mutants
from tests.resolver.mutants_facts import fact_mutants
from tests.resolver.mutants_run import killed, mutants

SAMPLE = 25
#: Shares that are seen, in percent; those that survive are named in docs/proof/mutants.md.
FLOOR_OF_SAMPLE, FLOOR_OF_RULES, FLOOR_OF_FACTS = 60, 78, 40


def survivors(some: list, *, thorough: bool, title: str) -> tuple[float, list[str]]:
    """Return the share that is seen in percent, and lines that say so and name the others."""
    alive = [mutant.name for mutant in some if killed(mutant, thorough=thorough) is None]
    score = 100 * (len(some) - len(alive)) / len(some)
    lines = [f"{title}: {len(some) - len(alive)} of {len(some)} seen, {score:.1f} %"]
    return score, [*lines, *(f"survives: {name}" for name in alive)]


def test_mutants_have_names_of_their_own() -> None:
    """A report that names a survivor names one."""
    names = [mutant.name for mutant in mutants()]
    assert len(set(names)) == len(names) > 500


def test_a_sample_of_mutants_is_seen(figures: dict[str, dict[str, float | str]]) -> None:
    """Twenty-five; the summary names those that nothing sees.

    They are chosen by their names, so that a new rule or fact leaves the others in the sample.
    """

    def chance(mutant: Mutant) -> str:
        return sha256(re.sub(r" #\d+:", ":", mutant.name).encode()).hexdigest()

    some = sorted(mutants(), key=chance)[:SAMPLE]
    score, told = survivors(some, thorough=False, title="sample")
    figures["mutants of rules and facts"] = {
        "seen in a sample, percent": score,
        **{
            f"survivor {number}": line.partition(": ")[2] for number, line in enumerate(told[1:], 1)
        },
    }
    assert score >= FLOOR_OF_SAMPLE, "\n".join(told)


@pytest.mark.prove
@pytest.mark.parametrize(("some", "floor"), [("rules", FLOOR_OF_RULES), ("facts", FLOOR_OF_FACTS)])
def test_all_mutants(some: str, floor: int, record_property) -> None:
    """Every one, tried on every case: `make prove AREA=mutants`."""
    every = list({"rules": rule_mutants, "facts": fact_mutants}[some]())
    score, told = survivors(every, thorough=True, title=some)
    record_property("told", "\n".join(told))
    assert score >= floor, "\n".join(told)
