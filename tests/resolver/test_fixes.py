"""Whatever a refusal proposes leads on: to a plan, or to a refusal of something else.

Each conflict has its changes as data (`Conflict.ways`). They are made to the site and it is planned
again, by the same facts, for every case of the rules.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.resolver import Plan, Refusal, resolve, solving
from tests.properties.building import CLUSTER
from tests.resolver.case_tables import CASES
from tests.resolver.cases import one
from tests.resolver.judging import TODAY
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.resolver.conflicts import Change
    from tests.properties.building import Plain
    from tests.resolver.cases import Case


def written(wishes: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return what is wished with a setting written, or removed."""
    mine = deepcopy(dict(wishes))
    first, *steps = change.path
    inner: Any = mine
    for step, following in pairwise([str(first).removeprefix("bedplate_"), *steps, None]):
        if following is None:
            if change.value is None:
                del inner[step]
            else:
                inner[step] = change.value
            return mine
        inner = inner[step]
    raise AssertionError(change)


def changed(site: Plain, change: Change) -> Plain:
    """Return the site with a setting changed wherever it is written for a subject."""
    key = str(change.path[0]).removeprefix("bedplate_")
    pools = {
        name: replace(pool, wishes=written(pool.wishes, change))
        for name, pool in site.pools.items()
        if key in pool.wishes and change.subject in {name, CLUSTER}
    }
    if pools:
        return replace(site, pools={**site.pools, **pools})
    if key in site.control_plane_wishes and change.subject not in {CLUSTER, *site.pools}:
        return replace(site, control_plane_wishes=written(site.control_plane_wishes, change))
    return replace(site, shared=written(site.shared, change))


def dead_ends(site: Plain, catalogue: Catalogue) -> Iterator[str]:
    """Yield the proposals of a refused site that lead to no plan, and take no refusal away."""
    answer = resolve(site.site(), catalogue, TODAY)
    assert isinstance(answer, Refusal)
    for conflict in answer.conflicts:
        for way in conflict.ways:
            after = resolve(reduce(changed, way, site).site(), catalogue, TODAY)
            if isinstance(after, Plan):
                continue
            # Of several refusals one change takes away one.
            told = {(one.rule, one.blamed.path) for one in answer.conflicts}
            left = {(one.rule, one.blamed.path) for one in after.conflicts}
            if len(after.conflicts) >= len(answer.conflicts) and left & told:
                yield f"{conflict.rule}: {way}: {'; '.join(map(str, after.problems))}"


def first_of_each_rule() -> list[Case]:
    """Return a case of every rule of the program: what the solver refuses, it proposes for."""
    rules = re.findall(r'violated\("([^"]+)"', solving.rules())
    found = {case.rule: case for case in reversed(CASES) if case.rule in rules}
    return [*found.values(), *(case for case in CASES if case.rule == "node-needs")]


@pytest.mark.parametrize("case", first_of_each_rule(), ids=lambda case: f"{case.rule}-{case.name}")
def test_a_fix_of_each_rule_leads_on(case: Case) -> None:
    assert list(dead_ends(case.wrong, world())) == []


@pytest.mark.parametrize(
    ("kubernetes", "version"), [("1.36", "1.35"), ("1.34", "1.35")], ids=["newer", "older"]
)
def test_two_refusals_do_not_propose_each_others_reason(kubernetes: str, version: str) -> None:
    """The runtime's package is for one release: a pin of it is not to blame, nor changed."""
    runtime = {"container_runtime": {"name": "cri-o"}, "pins": {"cri_o": "1.35.2"}}
    answer = resolve(one(kubernetes=kubernetes, shared=runtime).site(), world(), TODAY)
    assert isinstance(answer, Refusal)
    assert [(one.key, one.fix) for one in answer.problems] == [
        ("bedplate_kubernetes.version", f'write "{version}"')
    ]


@pytest.mark.prove
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_every_fix_leads_on(case: Case) -> None:
    """All cases: `make prove AREA=resolver`."""
    assert list(dead_ends(case.wrong, world())) == []
