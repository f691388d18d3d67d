"""Jobs over time: what starts, what waits and for what, who makes room for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.planning.simulation.refusals import never
from bedplate.planning.simulation.run import simulate
from bedplate.planning.simulation.supply import Gpu, Policy, Quota, Supply, Team
from tests.unit.simulated_jobs.made import (
    HALVES,
    MIXED,
    SIZES,
    TENTHS,
    THREE,
    WHOLE,
    overfull,
    row,
    site,
)

if TYPE_CHECKING:
    from bedplate.planning.simulation.jobs import Row

TENTHS_GIVE = "it gives 10 \N{MULTIPLICATION SIGN} 1/10 (1638Mi) of t4 (time-slicing)"
TEAMS = {
    "a": Team("a", {"pool_none": Quota(2, None), "pool_time-slicing": Quota(10, 20)}),
    "b": Team("b", {"pool_none": Quota(2, 2), "pool_dra": Quota(3, None)}, weight=2.0, priority=5),
}
GPUS = (WHOLE, TENTHS, HALVES, MIXED, SIZES, THREE)
POLICIES = st.builds(
    Policy,
    strict=st.booleans(),
    fair=st.booleans(),
    reclaim=st.sampled_from(["Never", "LowerPriority", "Any"]),
    preemption=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    place=st.sampled_from(["binpack", "spread", "gradient"]),
)


@st.composite
def sites(draw: st.DrawFn) -> Supply:
    """Sites of one to three nodes, each with GPUs of one kind, with and without teams."""
    kinds = draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=3))
    pools: list[list[Gpu]] = [[kind] * draw(st.integers(1, 3)) for kind in kinds]
    teams = draw(st.sampled_from([{}, TEAMS]))
    return site(*pools, policy=draw(POLICIES), teams=teams)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """A few rows of jobs that ask in each way, some for more than there is."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        asks = draw(
            st.sampled_from(
                [
                    {"gpus": 1},
                    {"gpus": 2},
                    {"gpus": 4},
                    {"share": "0.1"},
                    {"share": "0.4"},
                    {"memory": 3},
                    {"memory": 9},
                    {"memory": 30},
                    {},
                ]
            )
        )
        found.append(
            row(
                f"job{number}",
                **asks,
                count=draw(st.integers(1, 6)),
                team=draw(st.sampled_from(["", "a", "b"])),
                duration=draw(st.sampled_from([None, 1, 50, 100])),
                arrival=draw(st.sampled_from([0, 0, 10, 60])),
                priority=draw(st.sampled_from([None, 0, 7])),
            )
        )
    return found


@settings(max_examples=150, deadline=None)
@given(sites(), rows())
def test_no_gpu_ever_has_more_than_it_holds_and_nobody_is_lost(
    supply: Supply, jobs: list[Row]
) -> None:
    outcome = simulate(supply, jobs)
    assert overfull(supply, outcome) == []
    assert len(outcome.jobs) == sum(one.count for one in jobs)
    for moment in outcome.moments:
        arrived = [
            job
            for job in outcome.jobs
            if job.row.arrival <= moment.time
            and never(supply, job.row.team, job.row.request) is None
        ]
        ended = sum(job.ended is not None and job.ended <= moment.time for job in arrived)
        assert moment.running + moment.waiting + ended == len(arrived)
        assert 0 <= moment.lost <= moment.free
    for job in outcome.jobs:
        if job.started is None:
            assert job.why is not None, "who has not started has a reason"
        else:
            assert job.started >= job.row.arrival


@settings(max_examples=60, deadline=None)
@given(sites(), rows())
def test_the_same_jobs_do_the_same(supply: Supply, jobs: list[Row]) -> None:
    one, two = simulate(supply, jobs), simulate(supply, jobs)
    assert one.moments == two.moments
    assert [job.place for job in one.jobs] == [job.place for job in two.jobs]


@settings(max_examples=100, deadline=None)
@given(sites(), rows())
def test_teams_stay_within_what_they_may_have(supply: Supply, jobs: list[Row]) -> None:
    outcome = simulate(supply, jobs)
    for moment in outcome.moments:
        for name, team in supply.teams.items():
            for pool in supply.pools:
                limit = team.quotas.get(pool, Quota(0, 0)).most
                has = sum(
                    job.place.use.units
                    for job in outcome.jobs
                    if job.row.team == name
                    and job.place is not None
                    and job.place.gpus
                    and job.place.pool == pool
                    and job.started is not None
                    and job.started <= moment.time
                    and (job.ended is None or job.ended > moment.time)
                )
                assert limit is None or has <= limit


def started(supply: Supply, *jobs: Row) -> dict[str, list[int | None]]:
    """Return when the jobs of each row start."""
    found: dict[str, list[int | None]] = {}
    for job in simulate(supply, jobs).jobs:
        found.setdefault(job.row.name, []).append(job.started)
    return found


def reasons(supply: Supply, *jobs: Row) -> dict[str, set[str]]:
    """Return why the jobs of each row wait, or waited."""
    found: dict[str, set[str]] = {}
    for job in simulate(supply, jobs).jobs:
        texts = {why.text for why in job.waits} | ({job.why.text} if job.why else set())
        found.setdefault(job.row.name, set()).update(texts)
    return found


def test_the_eleventh_tenth_waits_for_the_first() -> None:
    supply = site([TENTHS])
    assert started(supply, row("n", share="0.1", count=11)) == {"n": [0] * 10 + [100]}
    assert reasons(supply, row("n", share="0.1", count=11)) == {
        "n": {"no GPU of pool_time-slicing has such a share free"}
    }


def test_in_strict_order_nobody_passes() -> None:
    jobs = (row("first", gpus=1), row("large", gpus=2), row("small", gpus=1))
    passes = started(site([WHOLE] * 2), *jobs)
    assert passes == {"first": [0], "large": [100], "small": [0]}
    strict = site([WHOLE] * 2, policy=Policy(strict=True))
    assert started(strict, *jobs) == {"first": [0], "large": [100], "small": [200]}
    assert reasons(strict, *jobs)["small"] == {
        "behind large in the queue, which is strict",
        "no GPU of pool_none is free",
    }


def test_who_is_guaranteed_gets_it_back() -> None:
    teams = {
        "a": Team("a", {"pool_none": Quota(1, None)}),
        "b": Team("b", {"pool_none": Quota(1, None)}),
    }
    jobs = (row("borrows", gpus=1, count=2, team="a"), row("asks", gpus=1, team="b", arrival=10))
    never = site([WHOLE] * 2, teams=teams)
    assert started(never, *jobs) == {"borrows": [0, 0], "asks": [100]}
    reclaim = site([WHOLE] * 2, teams=teams, policy=Policy(reclaim="Any"))
    assert started(reclaim, *jobs) == {"borrows": [0, 100], "asks": [10]}
    stopped = [job for job in simulate(reclaim, jobs).jobs if job.past]
    assert [(job.number, *job.past[0][1:]) for job in stopped] == [(1, 0, 10)]


def test_an_urgent_job_stops_one_of_its_own_team_and_no_more_than_it_needs() -> None:
    teams = {"a": Team("a", {"pool_none": Quota(2, None)})}
    policy = Policy(preemption="LowerPriority")
    supply = site([WHOLE] * 2, teams=teams, policy=policy)
    outcome = simulate(
        supply,
        [
            row("batch", gpus=1, count=2, team="a", priority=0),
            row("urgent", gpus=1, team="a", priority=9, arrival=10),
        ],
    )
    assert [job.evictions for job in outcome.jobs] == [0, 1, 0]


def test_fair_sharing_gives_what_is_idle_by_weight() -> None:
    quota = {"pool_none": Quota(0, None)}
    teams = {"a": Team("a", quota, weight=3.0), "b": Team("b", quota, weight=1.0)}
    jobs = (row("b", gpus=1, count=20, team="b"), row("a", gpus=1, count=20, team="a"))
    for fair, expected in ((True, (6, 2)), (False, (0, 8))):
        supply = site([WHOLE] * 8, teams=teams, policy=Policy(fair=fair))
        at = started(supply, *jobs)
        assert (at["a"].count(0), at["b"].count(0)) == expected


def test_what_cannot_be_given_is_named_with_what_is() -> None:
    supply = site([TENTHS] * 2, [WHOLE] * 2)
    assert reasons(
        supply,
        row("half", share="0.5", pool="pool_time-slicing"),
        row("many", gpus=3, pool="pool_none"),
        row("memory", memory=2, pool="pool_time-slicing"),
    ) == {
        "half": {f"pool_time-slicing cannot give 0.5 of a GPU: {TENTHS_GIVE}"},
        "many": {"pool_none has no node with 3 GPUs: the largest has 2"},
        "memory": {f"pool_time-slicing cannot give 2Gi of a GPU: {TENTHS_GIVE}"},
    }


def test_free_gpus_on_two_nodes_are_none_for_a_job_that_wants_them_on_one() -> None:
    supply = site([WHOLE] * 2, [WHOLE] * 2, policy=Policy(place="spread"))
    jobs = (row("one", gpus=1, count=2), row("two", gpus=2))
    assert reasons(supply, *jobs)["two"] == {
        "no node of pool_none has 2 GPUs free, the pool has them"
    }
    assert started(site([WHOLE] * 2, [WHOLE] * 2), *jobs)["two"] == [0]


def test_fragmentation_is_what_a_kind_of_job_cannot_use() -> None:
    supply = site([SIZES], policy=Policy(place="binpack"))
    outcome = simulate(supply, [row("a", memory=10), row("b", memory=10)])
    # 6 of 16 GiB are free, and no job asks for so little.
    assert outcome.moments[0].free == outcome.moments[0].lost == 6 / 16


def test_quota_of_a_team_holds_and_is_the_reason() -> None:
    supply = site([WHOLE] * 4, teams={"b": Team("b", {"pool_none": Quota(2, 2)})})
    jobs = (row("b", gpus=1, count=3, team="b"),)
    assert started(supply, *jobs) == {"b": [0, 0, 100]}
    assert reasons(supply, *jobs) == {"b": {"team b has its 2 of pool_none"}}
    other = row("c", gpus=3, team="b")
    assert reasons(supply, other) == {"c": {"team b may have 2 of pool_none"}}
