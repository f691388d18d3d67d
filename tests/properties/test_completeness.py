"""On small catalogues the resolver misses no solution, and no better one: all of them are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from bedplate.catalogue.load import assembled
from bedplate.resolver import Plan
from tests.properties import checker_cluster, checker_pools
from tests.properties.brute import best
from tests.properties.checker import hosts_of
from tests.properties.checking import decided, facts_of
from tests.properties.plain import RUNTIMES, SHARED_COMPONENTS
from tests.properties.sites import sites
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from tests.properties.building import Plain

#: How many facts there are at most of what a decision chooses among; all of every other table.
MOST = {
    "kubernetes": 2,
    "container-runtimes": 3,
    "components": 2,
    "addons": 2,
    "driver-packages": 3,
    "cuda-toolkits": 4,
    "frameworks": 3,
    "rdma-paths": 2,
    "known-bad": 6,
}
#: The field that says what is chosen among.
AMONG = {
    "components": "component",
    "container-runtimes": "runtime",
    "addons": "addon",
    "driver-packages": "os",
    "frameworks": "framework",
}
#: Of these all are kept: a catalogue without any cluster refuses every site, and blames no wish.
CLUSTER = ("components", "container-runtimes")
#: The rules that compare; the others are about names that nobody knows.
RULES = {*checker_pools.RULES, *checker_cluster.RULES, "wishes-contradict", "kernel-of-system"}


@dataclass(frozen=True)
class Question:
    """A small catalogue, and a site that draws on it."""

    site: Plain
    catalogue: Catalogue = field(repr=False)
    left_out: tuple[str, ...]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """Small catalogues, each with a site."""
    tables: dict[str, list[Any]] = {}
    for file, table in world().tables().items():
        tables[file] = list(table.values())
        if file in MOST:
            by_name: dict[str, list[Any]] = {}
            for fact in tables[file]:
                by_name.setdefault(getattr(fact.value, AMONG.get(file, ""), ""), []).append(fact)
            tables[file] = []
            for facts in by_name.values():
                most = min(MOST[file], len(facts))
                least = most if file in CLUSTER else 1
                tables[file] += draw(st.permutations(facts))[: draw(st.integers(least, most))]
    catalogue = assembled(tables, "sha256:small")
    kept = {fact.id for facts in tables.values() for fact in facts}
    every = (fact.id for table in world().tables().values() for fact in table.values())
    left_out = tuple(one for one in every if one not in kept)
    return Question(draw(sites(catalogue, most_pools=2)), catalogue, left_out)


def told(lock: dict[str, Any]) -> dict[str, Any]:
    """Return the decisions of a lock, or of what brute force found."""
    cluster = lock["cluster"]
    found: dict[str, Any] = {name: cluster[name]["version"] for name in SHARED_COMPONENTS}
    found["kubernetes"] = cluster["kubernetes"]["version"]
    found["cni"] = (cluster["cni"]["name"], cluster["cni"]["version"])
    found["runtime"] = [cluster[key] for key in RUNTIMES.values() if cluster.get(key)]
    found["addons"] = sorted((a["name"], a["version"]) for a in cluster.get("addons", []))
    for name, pool in lock["pools"].items():
        driver = pool.get("nvidia_driver") or {}
        found[name] = {
            "driver": [driver.get(key) for key in ("version", "flavour", "source")],
            "cuda": sorted(pool.get("cuda_toolkit", [])),
            "frameworks": sorted(
                (f["name"], f["version"], f["variant"]) for f in pool.get("frameworks", [])
            ),
            "rdma": (pool.get("rdma") or {}).get("method"),
        }
    return found


def answered_by_trying(question: Question) -> None:
    """Assert that the resolver's answer is the one that trying everything gives."""
    site, catalogue = question.site, question.catalogue
    answer = decided(site, catalogue)
    if not isinstance(answer, Plan):
        # Names that nobody knows, and such: there is nothing to decide.
        assume({problem.rule for problem in answer.problems} <= RULES)
    tried = best(facts_of(catalogue), hosts_of(site.site()))
    if isinstance(answer, Plan):
        event("accepted")
        assert tried is not None
        assert told(answer.lock.model_dump(mode="json")) == told(tried)
    else:
        event("refused")
        assert tried is None, (told(tried), [str(problem) for problem in answer.problems])


SMALL = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@SMALL
@given(questions())
def test_no_solution_is_missed_and_no_better_one(question: Question) -> None:
    """Completeness: a hundred small sites under as many small catalogues."""
    answered_by_trying(question)


@pytest.mark.prove
@settings(SMALL, max_examples=10_000)
@given(questions())
def test_sweep_no_solution_is_missed(question: Question) -> None:
    """The same over many more: `make prove AREA=completeness`."""
    answered_by_trying(question)
