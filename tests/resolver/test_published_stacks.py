"""Stacks that vendors publish as tested are accepted; what is reported as broken is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.common.connection import Connection
from bedplate.resolver import Plan, Refusal, resolve
from bedplate.site.model import SHARED, Wishes
from bedplate.site.places import Places
from bedplate.site.site import Site, SiteHost

if TYPE_CHECKING:
    from bedplate.lock import Lock

DATA = Path(__file__).with_name("data")
TODAY = date(2026, 11, 22)
POOL = "pool_published"
HOSTS = 4
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """Return the entries of a data file."""
    found: list[Row] = yaml.safe_load((DATA / f"{name}.yml").read_text(encoding="utf-8"))
    return found


STACKS, BROKEN = rows("vendor-stacks"), rows("broken-combinations")


def site(wishes: Row) -> Site:
    """Return a control plane and a pool of four hosts that wish this."""
    shared = {key: value for key, value in wishes.items() if key in SHARED}
    shared["bedplate_kubernetes"] = {"endpoint": "k8s.example:6443"} | shared.get(
        "bedplate_kubernetes", {}
    )
    plain = Wishes.model_validate(shared | {"bedplate_host": wishes["bedplate_host"]})
    with_gpus = Wishes.model_validate(wishes | shared)
    hosts = [_host("cp1", None, ("control_plane",), plain)]
    hosts += [
        _host(f"gpu{number}", POOL, ("gpu_pools", POOL), with_gpus)
        for number in range(1, HOSTS + 1)
    ]
    groups = frozenset({"control_plane", "gpu_pools", POOL})
    return Site(Path("published"), {host.name: host for host in hosts}, groups)


def _host(name: str, pool: str | None, groups: tuple[str, ...], wishes: Wishes) -> SiteHost:
    return SiteHost(Connection(name=name, address=name), pool, groups, wishes, Places())


def decided(lock: Lock) -> dict[str, set[str]]:
    """Return every version in a lock, by the name that a pin has for it."""
    found: dict[str, set[str]] = {}
    pool = lock.pools[POOL].model_dump(mode="json")
    cluster = lock.cluster.model_dump(mode="json")
    named = [cluster["cni"], *cluster["addons"], *pool["frameworks"]]
    for one in named:
        found.setdefault(one["name"].replace("-", "_"), set()).add(one["version"])
    for part in (cluster, pool):
        for name, value in part.items():
            if isinstance(value, dict) and "version" in value:
                found.setdefault(name, set()).add(value["version"])
    found["cuda_toolkit"] = set(pool["cuda_toolkit"])
    return found


def wished(wishes: Row) -> dict[str, str]:
    """Return the versions that a stack names, by the name that a pin has for them."""
    found = dict(wishes.get("bedplate_pins", {}))
    if version := wishes.get("bedplate_kubernetes", {}).get("version"):
        found["kubernetes"] = version
    for key in ("bedplate_operators", "bedplate_schedulers", "bedplate_frameworks"):
        for one in wishes.get(key, []):
            name, _, version = one.rpartition("-")
            found[name.replace("-", "_")] = version
    return found


def missing(stack: Row, lock: Lock) -> list[str]:
    """Return what a stack names and its lock does not have, to the last digit that is named."""
    got = decided(lock)
    return [
        f"{name} {version}, but {sorted(got.get(name, set()))}"
        for name, version in wished(stack["wishes"]).items()
        if not any(its == version or its.startswith(f"{version}.") for its in got.get(name, set()))
    ]


def refusing(refusal: Refusal) -> list[set[str]]:
    """Return the rules of each conflict; those of the problems where the wishes meet no rule."""
    if refusal.conflicts:
        return [{*conflict.rules, conflict.rule} for conflict in refusal.conflicts]
    return [{problem.rule} for problem in refusal.problems]


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack["name"])
def test_a_published_stack_is_accepted(stack: Row) -> None:
    """Everything that the vendor names is in the lock, at that version."""
    plan = resolve(site(stack["wishes"]), load_catalogue(), TODAY)
    assert isinstance(plan, Plan), "\n".join(map(str, plan.problems))
    assert wished(stack["wishes"])
    assert missing(stack, plan.lock) == []
    assert {one.name: one.variant for one in plan.lock.pools[POOL].frameworks} == stack.get(
        "builds", {}
    )
    driver = stack["wishes"].get("bedplate_driver", {})
    got = plan.lock.pools[POOL].nvidia_driver
    assert got is not None
    for key, value in driver.items():
        assert getattr(got, key) == value


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken["name"])
def test_a_broken_combination_is_refused(broken: Row) -> None:
    """Refused by a rule that the report is about, with what would change it."""
    refusal = resolve(site(broken["wishes"]), load_catalogue(), TODAY)
    assert isinstance(refusal, Refusal), f"accepted: {refusal.lock.pools[POOL]}"
    told = "\n".join(map(str, refusal.problems))
    assert refusal.problems
    assert all(rules & set(broken["rules"]) for rules in refusing(refusal)), told
    assert all(problem.fix for problem in refusal.problems), told


def test_the_lists_are_long_enough_and_every_entry_has_a_source(
    figures: dict[str, dict[str, float]],
) -> None:
    """A shrunken list would prove less, without anybody seeing it."""
    figures["published stacks"] = {"accepted": len(STACKS), "refused": len(BROKEN)}
    assert len(STACKS) >= 15
    assert len(BROKEN) >= 25
    for entries in (STACKS, BROKEN):
        names = [entry["name"] for entry in entries]
        assert len(names) == len(set(names))
    assert all(stack["source"]["url"].startswith("https://") for stack in STACKS)
    assert all(stack["source"]["read"] <= TODAY for stack in STACKS)
    assert all(broken["source"].startswith("https://") for broken in BROKEN)


def test_a_version_that_is_not_in_the_lock_is_seen() -> None:
    """The comparison with the lock can fail."""
    stack = STACKS[0]
    plan = resolve(site(stack["wishes"]), load_catalogue(), TODAY)
    assert isinstance(plan, Plan)
    for key in ("nvidia_driver", "containerd", "gpu_operator", "kubernetes"):
        other = {"bedplate_pins": {key: "0.0.1"}}
        assert missing({"wishes": other}, plan.lock)
