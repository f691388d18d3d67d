"""What holds for every site: one answer, a sound one, always the same, and nothing asked in vain.

Sites are drawn over the small world of the rules' tests, where every rule has something to refuse,
and over the catalogue that Bedplate comes with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import clingo
import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

import bedplate.catalogue.load as catalogue_module
from bedplate.catalogue import load_catalogue
from bedplate.resolver import Plan, Refusal, resolve
from bedplate.resolver.installable import UNCONFIRMED
from bedplate.resolver.solving import Program
from tests.properties.changed import fed_back, optional, without
from tests.properties.checking import TODAY, broken, decided, said
from tests.properties.plain import facts_in
from tests.properties.sites import sites
from tests.resolver.small_world import plain_world, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from bedplate.lock.model import Pool
    from bedplate.resolver.wishes import Wish
    from tests.properties.building import Plain

REAL = load_catalogue()
REAL_FACTS = facts_in(Path(catalogue_module.__file__).with_name("facts"))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
UNHURRIED = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)


def examples(number: int) -> settings:
    """Return settings without time limits: a busy machine is no reason to fail."""
    return settings(UNHURRIED, max_examples=number)


def unexplained() -> Any:
    """Leave the search for conflicts out where only the answer counts: it takes the most time."""
    return mock.patch("bedplate.resolver.resolve.search", return_value=[])


def answer(plain: Plain) -> Plan | Refusal:
    """Return a plan, or a refusal without its conflicts."""
    with unexplained():
        return decided(plain, world())


def a_sound_answer(plain: Plain) -> None:
    """Totality and soundness: a lock that breaks no rule, or a refusal."""
    given_ = answer(plain)
    event(type(given_).__name__)
    if isinstance(given_, Plan):
        assert broken(plain, plain_world(), given_) == []


def a_told_answer(plain: Plain) -> None:
    """The same under the real catalogue, and each refusal says what, where and what to do."""
    given_ = decided(plain, REAL)
    event(type(given_).__name__)
    if isinstance(given_, Plan):
        assert broken(plain, REAL_FACTS, given_) == []
        return
    fully_told(given_)


def fully_told(refusal: Refusal) -> None:
    """Assert that each problem says what, where and what to do."""
    assert refusal.problems
    for problem in refusal.problems:
        assert problem.what
        assert problem.fix
        assert problem.key
        assert problem.rule


def a_minimal_refusal(plain: Plain) -> None:
    """Totality of what is told too; each conflict needs all of its wishes and all of its rules."""
    original, cores = Program.conflict, 0

    def shrunk(self: Program, kept: Any) -> Any:
        nonlocal cores
        found = original(self, kept)
        if found is not None:
            wishes, rules = found
            assert not self.possible(wishes, rules)
            for wish in wishes:
                assert self.possible([other for other in wishes if other != wish])
            for rule in rules:
                assert self.possible(wishes, [other for other in rules if other != rule])
            cores += 1
        return found

    with mock.patch.object(Program, "conflict", shrunk):
        given_ = decided(plain, world())
    event(f"{type(given_).__name__}, {cores} conflicts")
    if isinstance(given_, Refusal):
        fully_told(given_)
        assert cores >= len(given_.conflicts)


def the_same_bytes(plain: Plain, random: Random) -> None:
    """Determinism: the hosts and their groups in another order are the same site."""

    def shuffled(names: list[str]) -> list[str]:
        return random.sample(names, len(names))

    catalogue = world()
    first, second = (resolve(plain.site(o), catalogue, TODAY) for o in (list, shuffled))
    assert said(first) == said(second)
    if isinstance(first, Plan) and isinstance(second, Plan):
        assert first.warnings == second.warnings
        assert first.reasons == second.reasons


def the_only_one(plain: Plain) -> None:
    """Uniqueness: no other decision is as good."""
    counted: list[int] = []
    original = Program.decided

    def counting(self: Program, *arguments: Any) -> Any:
        found = original(self, *arguments)
        if found is not None:
            counted.append(_optima(self, *arguments))
        return found

    with mock.patch.object(Program, "decided", counting):
        given_ = answer(plain)
    assume(isinstance(given_, Plan))
    assert counted
    assert set(counted) == {1}


def _optima(program: Program, pools: Iterable[str], active: Iterable[str]) -> int:
    """Return how many decisions are as good as the best one."""
    wanted = set(active)
    given_ = [(clingo.Function("active", [clingo.String(p)]), p in wanted) for p in pools]
    solve: Any = program.control.configuration.solve
    solve.opt_mode, solve.models = "optN", "0"
    found = set()
    with program.control.solve(assumptions=given_, yield_=True) as handle:
        for model in handle:
            if model.optimality_proven or not model.cost:
                shown = model.symbols(shown=True)
                found.add(frozenset(str(one) for one in shown if one.name == "value"))
    solve.opt_mode, solve.models = "opt", "0"
    return len(found)


def the_same_again(plain: Plain) -> None:
    """Idempotence: a lock's decisions as wishes, or the lock itself, lead to the same decisions."""
    plan = answer(plain)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    with unexplained():
        kept = decided(plain, world(), plan.lock)
        pinned = decided(fed_back(plain, plan.lock), world())
    assert said(kept) == said(plan)
    assert isinstance(pinned, Plan), said(pinned)
    assert pinned.lock.cluster == plan.lock.cluster
    # A driver that nobody has seen is named by what is fed back, and so may be installed.
    assert pinned.lock.pools == {name: _named_all(pool) for name, pool in plan.lock.pools.items()}


def _named_all(pool: Pool) -> Pool:
    not_yet = [part for part in pool.not_yet if not part.startswith(f"{UNCONFIRMED} ")]
    return pool.model_copy(update={"not_yet": not_yet})


def not_worse_without(plain: Plain, choose: Callable[[list[Any]], Any]) -> None:
    """Monotonicity: what goes with a wish goes without it."""
    wishes = list(optional(plain))
    assume(wishes)
    assume(isinstance(answer(plain), Plan))
    pool, path = choose(wishes)
    less = without(plain, pool, path)
    assert less is not None
    given_ = answer(less)
    assert isinstance(given_, Plan), (path, said(given_))


def minimal_conflicts(plain: Plain) -> None:
    """Minimality: without any one of its wishes, a conflict is gone."""
    given_ = decided(plain, world())
    assume(isinstance(given_, Refusal) and given_.conflicts)
    assert isinstance(given_, Refusal)
    for conflict in given_.conflicts:
        assert conflict.blamed in conflict.wishes
        names = {_name(wish) for wish in conflict.wishes}
        assert len(names) == len(conflict.wishes)
        for wish in conflict.wishes:
            less = without(plain, wish.host.pool, wish.path)
            if less is None:
                continue
            event("taken away")
            after = decided(less, world())
            others = after.conflicts if isinstance(after, Refusal) else ()
            for other in others:
                assert not {_name(one) for one in other.wishes} <= names - {_name(wish)}


def _name(wish: Wish) -> tuple[str, str, str, str]:
    """Return what tells wishes apart, whatever stands before them in their list."""
    keys = [str(part) for part in wish.path if not isinstance(part, int)]
    return wish.subject, ".".join(keys), wish.label, str(wish.host.pool)


SITES = sites(world())
REAL_SITES = sites(REAL, most_pools=2)
CHOICES = st.sampled_from


@examples(1600)
@given(SITES)
def test_every_answer_is_sound(plain: Plain) -> None:
    """Totality and soundness."""
    a_sound_answer(plain)


@examples(50)
@given(REAL_SITES)
def test_every_real_answer_is_sound_and_told(plain: Plain) -> None:
    """Totality and soundness under the real catalogue."""
    a_told_answer(plain)


@examples(40)
@given(SITES, st.randoms(use_true_random=False))
def test_order_does_not_matter(plain: Plain, random: Random) -> None:
    """Determinism."""
    the_same_bytes(plain, random)


@examples(100)
@given(SITES)
def test_no_other_decision_is_as_good(plain: Plain) -> None:
    """Uniqueness."""
    the_only_one(plain)


@examples(60)
@given(SITES)
def test_decisions_fed_back_change_nothing(plain: Plain) -> None:
    """Idempotence."""
    the_same_again(plain)


@examples(60)
@given(SITES, st.data())
def test_fewer_wishes_are_not_refused(plain: Plain, data: st.DataObject) -> None:
    """Monotonicity."""
    not_worse_without(plain, lambda wishes: data.draw(CHOICES(wishes)))


@examples(100)
@given(SITES)
def test_refusals_are_told_and_minimal(plain: Plain) -> None:
    """Totality with the search for conflicts, and minimality of what it finds."""
    a_minimal_refusal(plain)


@examples(30)
@given(SITES)
def test_conflicts_are_minimal(plain: Plain) -> None:
    """Minimality."""
    minimal_conflicts(plain)


def drawn(*, in_sweeps: bool) -> int:
    """Return how many sites the tests of this file draw, in sweeps or by default."""
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    return sum(
        test._hypothesis_internal_use_settings.max_examples
        for test in tests
        if hasattr(test, "hypothesis") and bool(getattr(test, "pytestmark", [])) == in_sweeps
    )


def test_as_many_sites_are_drawn_as_are_promised(figures: dict[str, dict[str, float]]) -> None:
    """Thousands by default, and ten times as many in the sweeps."""
    counts = {"by default": drawn(in_sweeps=False), "in sweeps": drawn(in_sweeps=True)}
    figures["sites drawn for the resolver's properties"] = dict(counts)
    assert counts["by default"] >= 2_000
    assert counts["in sweeps"] >= 20_000


@pytest.mark.prove
@examples(12_000)
@given(SITES)
def test_sweep_every_answer_is_sound(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    a_sound_answer(plain)


@pytest.mark.prove
@examples(3_000)
@given(REAL_SITES)
def test_sweep_every_real_answer_is_sound_and_told(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    a_told_answer(plain)


@pytest.mark.prove
@examples(1_500)
@given(SITES, st.randoms(use_true_random=False))
def test_sweep_order_does_not_matter(plain: Plain, random: Random) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    the_same_bytes(plain, random)


@pytest.mark.prove
@examples(2_000)
@given(SITES)
def test_sweep_no_other_decision_is_as_good(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    the_only_one(plain)


@pytest.mark.prove
@examples(2_500)
@given(SITES)
def test_sweep_decisions_fed_back_change_nothing(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    the_same_again(plain)


@pytest.mark.prove
@examples(2_500)
@given(SITES, st.data())
def test_sweep_fewer_wishes_are_not_refused(plain: Plain, data: st.DataObject) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    not_worse_without(plain, lambda wishes: data.draw(CHOICES(wishes)))


@pytest.mark.prove
@examples(1_000)
@given(SITES)
def test_sweep_conflicts_are_minimal(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    minimal_conflicts(plain)


@pytest.mark.prove
@examples(2_000)
@given(SITES)
def test_sweep_refusals_are_told_and_minimal(plain: Plain) -> None:
    """The same over many more sites: `make prove AREA=resolver`."""
    a_minimal_refusal(plain)
