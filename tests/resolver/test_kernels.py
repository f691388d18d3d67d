"""Kernels that no fact has: planned with a warning, and refused only for what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.resolver.test_whole_sites import CP, T4, decide, node, planned, rules

if TYPE_CHECKING:
    from bedplate.resolver import Plan, Refusal


def asked(os: str, kernel: str, **driver: str) -> Plan | Refusal:
    """Decide a site with a pool of that kernel."""
    wishes: dict[str, Any] = {"bedplate_host": {"os": os, "kernel": kernel}}
    return decide(CP, node("a", T4 | wishes | {"bedplate_driver": driver}))


@pytest.mark.parametrize(
    ("os", "kernel"),
    [
        ("ubuntu-24.04", "6.14.0-27-generic"),
        ("ubuntu-24.04", "6.8.0-1035-aws"),
        ("ubuntu-22.04", "5.15.0-1053-nvidia"),
        ("ubuntu-22.04", "6.8.0-1020-oracle"),
        ("debian-12", "6.12.9+bpo~1-amd64"),
        ("debian-13", "7.0.1-custom"),
        ("rocky-9", "5.14.0-570.12.1.el9_6.x86_64"),
    ],
)
def test_a_kernel_that_is_not_known_is_planned_and_said(os: str, kernel: str) -> None:
    plan = planned(asked(os, kernel))
    assert plan.lock.pools["pool_a"].kernel == kernel
    told = [text for text in plan.warnings if kernel in text]
    assert len(told) == 1, told
    assert told[0].startswith(f"pool_a: kernel {kernel} is not in the catalogue: ")


def test_a_known_kernel_is_not_warned_of() -> None:
    plan = planned(asked("ubuntu-24.04", "6.8.0-151-generic"))
    assert [text for text in plan.warnings if "not in the catalogue" in text] == []


@pytest.mark.parametrize(
    ("kernel", "driver", "rule"),
    [
        ("6.15.0-8-generic", {"branch": "575"}, "known-bad"),
        ("6.17.0-8-generic", {"source": "precompiled"}, "kernel-headers"),
        ("6.1.0-50-amd64", {}, "kernel-known"),
        ("5.15.0-204-generic", {}, "kernel-known"),
    ],
)
def test_what_is_known_of_a_kernel_still_counts(
    kernel: str, driver: dict[str, str], rule: str
) -> None:
    assert rules(asked("ubuntu-24.04", kernel, **driver)) == [rule]


def test_a_driver_that_builds_is_chosen_for_a_kernel_that_is_not_known() -> None:
    driver = planned(asked("ubuntu-24.04", "6.17.0-8-generic", branch="570")).lock.pools["pool_a"]
    assert driver.nvidia_driver is not None
    assert tuple(map(int, driver.nvidia_driver.version.split(".")[:2])) >= (570, 195)
