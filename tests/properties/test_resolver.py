"""What holds for every site: one answer, always the same, stable under its own lock."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.catalogue import load_catalogue
from bedplate.lock import render
from bedplate.resolver import Plan, Refusal, resolve
from bedplate.site.load import Site, SiteHost
from bedplate.site.model import Wishes
from bedplate.site.places import Places

# No time limits: a busy machine is no reason to fail.
UNHURRIED = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SYSTEMS = ["debian-12", "debian-12", "ubuntu-24.04", "x"]
TODAY = date(2026, 11, 21)
CATALOGUE = load_catalogue()
KUBERNETES = {"version": "1.36", "endpoint": "k8s.example:6443"}


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Sites of one system, any mix of pools, right and wrong."""
    shared = {
        "bedplate_kubernetes": KUBERNETES | {"version": draw(st.sampled_from(["1.36", "1.35"]))},
        "bedplate_host": {"os": draw(st.sampled_from(SYSTEMS))},
    }
    hosts = {}
    for number in range(draw(st.integers(0, 4))):
        wishes = Wishes.model_validate(shared)
        hosts[f"cp{number}"] = _host(f"cp{number}", None, ("control_plane",), wishes)
    for number in range(draw(st.integers(1, 3))):
        driver = {}
        if (branch := draw(st.sampled_from([None, "535", "580", "595", "999"]))) is not None:
            driver["branch"] = branch
        if (flavour := draw(st.sampled_from([None, "open", "proprietary"]))) is not None:
            driver["flavour"] = flavour
        gpu = {
            "model": draw(st.sampled_from([*sorted(CATALOGUE.gpus), "none-such"])),
            "count": draw(st.integers(1, 10)),
        }
        wishes = Wishes.model_validate(shared | {"bedplate_gpu": gpu, "bedplate_driver": driver})
        pool = f"pool_{number}"
        for member in range(draw(st.integers(1, 2))):
            name = f"g{number}{member}"
            hosts[name] = _host(name, pool, ("gpu_pools", pool), wishes)
    return Site(Path("site"), hosts, frozenset({"control_plane"}))


def _host(name: str, pool: str | None, groups: tuple[str, ...], wishes: Wishes) -> SiteHost:
    return SiteHost(name, name, 22, "root", pool, groups, wishes, Places())


@UNHURRIED
@given(sites(), st.randoms())
def test_one_answer_whatever_the_order(site: Site, random) -> None:
    """Totality and determinism: a lock or a refusal, the same bytes with the hosts shuffled."""
    first = resolve(site, CATALOGUE, TODAY)
    names = list(site.hosts)
    random.shuffle(names)
    shuffled = Site(site.path, {name: site.hosts[name] for name in names}, site.groups)
    second = resolve(shuffled, CATALOGUE, TODAY)
    if isinstance(first, Refusal):
        assert isinstance(second, Refusal)
        assert first.problems
        assert all(problem.what and problem.fix for problem in first.problems)
        assert [str(p) for p in first.problems] == [str(p) for p in second.problems]
    else:
        assert isinstance(second, Plan)
        assert render(first.lock) == render(second.lock)


@UNHURRIED
@given(sites())
def test_locks_are_sound_and_stable(site: Site) -> None:
    """No forbidden pair, and its own lock changes nothing."""
    plan = resolve(site, CATALOGUE, TODAY)
    if isinstance(plan, Refusal):
        return
    again = resolve(site, CATALOGUE, TODAY, plan.lock)
    assert isinstance(again, Plan)
    assert render(again.lock) == render(plan.lock)
    for pool in plan.lock.pools.values():
        for gpu in pool.gpu:
            if gpu.model.startswith("v100"):
                assert pool.nvidia_driver.flavour == "proprietary"
                assert int(pool.nvidia_driver.branch) < 590
        assert pool.expects.count == sum(gpu.count for gpu in pool.gpu)
        module = {"open": "nvidia-open-kernel-dkms", "proprietary": "nvidia-kernel-dkms"}
        package = module[pool.nvidia_driver.flavour]
        assert pool.nvidia_driver.packages[package].startswith(pool.nvidia_driver.version)


LONG = settings(UNHURRIED, max_examples=20_000)


@pytest.mark.prove
@LONG
@given(sites(), st.randoms())
def test_sweep_one_answer_whatever_the_order(site: Site, random) -> None:
    """The same over many more sites: `make prove AREA=properties`."""
    test_one_answer_whatever_the_order.hypothesis.inner_test(site, random)


@pytest.mark.prove
@LONG
@given(sites())
def test_sweep_locks_are_sound_and_stable(site: Site) -> None:
    """The same over many more sites: `make prove AREA=properties`."""
    test_locks_are_sound_and_stable.hypothesis.inner_test(site)
