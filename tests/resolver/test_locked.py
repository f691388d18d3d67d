"""What is locked already: kept before anything newer, given up for what counts more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.resolver import Plan, resolve
from tests.resolver.cases import driver, one, pins, share
from tests.resolver.cases_of_drivers import DRIVER
from tests.resolver.cases_of_names import MIRROR
from tests.resolver.judging import TODAY, unlike
from tests.resolver.preferred import GUESTS, VENDORS, crio
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from typing import Any

    from tests.properties.building import Plain

SLICED = share("time-slicing", replicas=2)
#: The site that was locked, the site now, and what is decided for each.
RANKS: dict[str, tuple[Plain, Plain, dict[str, Any], dict[str, Any]]] = {
    "before-a-newer-driver": (
        one(pins=pins(nvidia_driver="580.65.06")),
        one(),
        {f"{DRIVER}.version": "580.65.06"},
        {f"{DRIVER}.version": "580.65.06"},
    ),
    # R610 reached its end of life a day before the catalogue was read.
    "after-a-supported-branch": (
        one("t4", driver=driver("610")),
        one("t4"),
        {f"{DRIVER}.branch": "610"},
        {f"{DRIVER}.version": "580.178.04"},
    ),
    "after-the-policy": (
        one(driver={"policy": "production"}),
        one(driver={"policy": "lts"}),
        {f"{DRIVER}.version": "595.91.07"},
        {f"{DRIVER}.version": "580.178.04"},
    ),
    "before-a-newer-kubernetes": (
        one(kubernetes="1.35"),
        one(),
        {"cluster.kubernetes.version": "1.35.1"},
        {"cluster.kubernetes.version": "1.35.1"},
    ),
    # The newest release that goes with these guests leaves them no supported branch.
    "older-and-locked-with-a-supported-branch": (
        one(host=GUESTS, sharing=SLICED, kubernetes="1.35"),
        one(host=GUESTS, sharing=SLICED),
        {"cluster.kubernetes.version": "1.35.1", f"{DRIVER}.version": "580.178.04"},
        {"cluster.kubernetes.version": "1.35.1", f"{DRIVER}.version": "580.178.04"},
    ),
    # It is installed already; the plan warns of it.
    "before-a-source-that-the-mirror-has": (
        crio(),
        crio(sources=MIRROR),
        VENDORS,
        VENDORS,
    ),
    "after-a-wish": (
        one(kubernetes="1.35"),
        one(kubernetes="1.36"),
        {"cluster.kubernetes.version": "1.35.1"},
        {"cluster.kubernetes.version": "1.36.3"},
    ),
}


@pytest.mark.parametrize("name", RANKS)
def test_what_is_locked_has_its_rank(name: str) -> None:
    before, now, was, right = RANKS[name]
    locked = resolve(before.site(), world(), TODAY)
    assert unlike(locked, was) == []
    assert isinstance(locked, Plan)
    assert unlike(resolve(now.site(), world(), TODAY, locked.lock), right) == []
