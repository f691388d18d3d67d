"""The one order in which decisions are preferred. Higher levels count before lower ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.versions import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import DriverBranch, DriverPackages, FrameworkBuild

#: Kinds of branch, best first, by the policy that is wished.
POLICIES = {
    "lts": ("lts", "production", "new-feature"),
    "production": ("production", "lts", "new-feature"),
    "new-feature": ("new-feature", "production", "lts"),
}
SOURCES = ("distro", "vendor-repo", "precompiled", "runfile")

# What all share is decided first, whatever the pools would rather have.
LOCKED_SHARED, KUBERNETES, RUNTIME, SHARED, ADDON = 190, 180, 170, 160, 150
SUPPORTED, POLICY, LOCKED, DRIVER, FLAVOUR, SOURCE, DRIVER_NAME = 90, 80, 70, 60, 58, 56, 54
CUDA_LOCKED, CUDA = 42, 40
BUILD_LOCKED, BUILD, BUILD_DEFAULT, BUILD_CUDA, BUILD_NAME = 34, 33, 32, 31, 30
RDMA = 20

type Costs = list[tuple[int, int]]


def newest[T](items: Iterable[T], version: Callable[[T], str]) -> dict[str, int]:
    """Return the rank of each version, the newest being 0; suffixes break ties by name."""
    known = {version(item) for item in items}
    ordered = sorted(known, key=lambda text: (parts(text), text), reverse=True)
    return {text: rank for rank, text in enumerate(ordered)}


def catalogue_date(catalogue: Catalogue) -> date:
    """Return the day that the catalogue speaks of: decisions do not depend on the clock."""
    return max(fact.source.read for fact in catalogue.driver_branches.values())


def supported(branch: DriverBranch, day: date) -> bool:
    """Tell whether a branch is still looked after by its maker; an unknown end is no promise."""
    return branch.end_of_life is not None and branch.end_of_life >= day


def driver_costs(
    driver: DriverPackages,
    branch: DriverBranch,
    policy: str,
    locked: tuple[str, str] | None,
    ranks: tuple[Mapping[str, int], Mapping[str, int], date],
) -> Costs:
    """Return what choosing a driver costs. `ranks` are those of versions and names, and the day."""
    versions, names, day = ranks
    return [
        (SUPPORTED, int(not supported(branch, day))),
        (POLICY, POLICIES[policy].index(branch.type)),
        (LOCKED, int((driver.version, driver.flavour) != locked)),
        (DRIVER, versions[driver.version]),
        (FLAVOUR, int(driver.flavour != branch.default_flavour)),
        (SOURCE, SOURCES.index(driver.source)),
        (DRIVER_NAME, names[f"{driver.os} {driver.source} {driver.version} {driver.flavour}"]),
    ]


def build_costs(
    build: FrameworkBuild,
    locked: tuple[str, str] | None,
    ranks: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]],
) -> Costs:
    """Return what choosing a framework's build costs: ranks of versions, CUDA and variants."""
    versions, cuda, variants = ranks
    return [
        (BUILD_LOCKED, int((build.version, build.variant) != locked)),
        (BUILD, versions[build.version]),
        (BUILD_DEFAULT, int(not build.default)),
        (BUILD_CUDA, cuda[build.cuda]),
        (BUILD_NAME, variants[build.variant]),
    ]
