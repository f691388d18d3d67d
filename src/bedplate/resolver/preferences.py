"""The one order in which decisions are preferred. Higher levels count before lower ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.driver_facts import DriverBranch, DriverPackages
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.published_facts import FrameworkBuild

#: Kinds of branch, best first, by the policy that is wished.
POLICIES = {
    "lts": ("lts", "production", "new-feature"),
    "production": ("production", "lts", "new-feature"),
    "new-feature": ("new-feature", "production", "lts"),
}
#: Ways from network cards to a GPU's memory, best first.
RDMA_METHODS = ("dma-buf", "peermem", "host-memory")
#: Of builds for CPUs, which no build with CUDA is compared with: they are frameworks of their own.
NO_CUDA = "0"
SOURCES = ("distro", "vendor-repo", "precompiled", "runfile")

# Levels, higher ones first. What all share is decided first, whatever the pools would rather have.
# From `SHARED`, `ADDON`, `CUDA` and `BUILD` down there is room for one level per component, so that
# two that cannot both be the newest have an order too.
LOCKED_SHARED, MIRRORED, KUBERNETES, RUNTIME, SHARED, ADDON_RUN, ADDON = (
    19000,
    18500,
    18000,
    17000,
    16000,
    15500,
    15000,
)
BROUGHT, CONFIRMED, SUPPORTED, POLICY, LOCKED, DRIVER, FLAVOUR, SOURCE, DRIVER_NAME = (
    9200,
    9100,
    9000,
    8900,
    8800,
    8700,
    8600,
    8500,
    8400,
)
CUDA_LOCKED, CUDA, BUILD_LOCKED, BUILD_CONFIRMED, BUILD, RDMA = 7000, 6000, 5000, 4500, 4000, 100
#: What tells the builds of one framework apart, in levels below the framework's own.
BUILD_VERSION, BUILD_DEFAULT, BUILD_CUDA, BUILD_NAME = range(4)

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


def defaults(fact: Fact[DriverPackages]) -> tuple[bool, bool]:
    """Tell what keeps a driver from being a default: its file must be brought; it is unconfirmed.

    NVIDIA's installer is a file that the user brings. Packages are unconfirmed where no index and
    no host has shown that they exist under these names.
    """
    return fact.value.source == "runfile", fact.sure == "unproved"


def driver_costs(
    fact: Fact[DriverPackages],
    branch: DriverBranch,
    wished: tuple[str, bool],
    locked: tuple[str, str] | None,
    ranks: tuple[Mapping[str, int], Mapping[str, int], date],
) -> Costs:
    """Return what choosing a driver costs.

    `wished` are the policy, and whether the settings name the driver. `ranks` are those of versions
    and names, and the day.
    """
    (policy, is_named), (versions, names, day) = wished, ranks
    driver = fact.value
    brought, unconfirmed = (not is_named and one for one in defaults(fact))
    return [
        (BROUGHT, int(brought)),
        (CONFIRMED, int(unconfirmed)),
        (SUPPORTED, int(not supported(branch, day))),
        (POLICY, POLICIES[policy].index(branch.type)),
        (LOCKED, int((driver.version, driver.flavour) != locked)),
        (DRIVER, versions[driver.version]),
        (FLAVOUR, int(driver.flavour != branch.default_flavour)),
        (SOURCE, SOURCES.index(driver.source)),
        (DRIVER_NAME, names[f"{driver.os} {driver.source} {driver.version} {driver.flavour}"]),
    ]


def build_costs(
    fact: Fact[FrameworkBuild],
    locked: tuple[str, str] | None,
    ranks: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]],
    position: int,
) -> Costs:
    """Return what choosing a framework's build costs: ranks of versions, CUDA and variants.

    `position` is the framework's place in the order of names.
    """
    versions, cuda, variants = ranks
    level = BUILD - 4 * position
    build = fact.value
    return [
        (BUILD_LOCKED, int((build.version, build.variant) != locked)),
        (BUILD_CONFIRMED, int(fact.sure == "unproved")),
        (level - BUILD_VERSION, versions[build.version]),
        (level - BUILD_DEFAULT, int(not build.default)),
        (level - BUILD_CUDA, cuda[build.cuda or NO_CUDA]),
        (level - BUILD_NAME, variants[build.variant]),
    ]


def meaning(level: int) -> str:
    """Return what a preference says of something that costs more at its level."""
    for known, told in MEANINGS.items():
        if level >= known:
            return told
    build = (BUILD - level) % 4
    return BUILD_MEANINGS[build]


#: By level, highest first: what is at least that high is about this.
MEANINGS = {
    LOCKED_SHARED: "another version is locked already",
    MIRRORED: "the mirror does not have its vendor's repository",
    KUBERNETES: "a newer release goes as well",
    RUNTIME: "a newer runtime goes as well",
    SHARED - 100: "a newer version goes as well",
    ADDON_RUN: "no test of this project has run it",
    ADDON - 1000: "a newer version goes as well",
    BROUGHT: "NVIDIA's installer is taken only where it is named",
    CONFIRMED: "no index has confirmed its packages, and the settings do not name it",
    SUPPORTED: "its branch is not supported any more",
    POLICY: "its branch is of another kind than the policy prefers",
    LOCKED: "another version is locked already",
    DRIVER: "a newer driver goes as well",
    FLAVOUR: "the branch's maker recommends the other flavour",
    SOURCE: "a source that is preferred has the same driver",
    DRIVER_NAME: "its name comes later",
    CUDA_LOCKED: "another version is locked already",
    CUDA - 500: "a newer toolkit goes as well",
    BUILD_LOCKED: "another build is locked already",
    BUILD_CONFIRMED: "no list of its own release says which GPUs it has code for",
}
BUILD_MEANINGS = (
    "a newer version goes as well",
    "the default build goes as well",
    "a build for a newer CUDA goes as well",
    "its name comes later",
)
