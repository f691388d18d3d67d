"""Every rule refuses what it is there for, alone, and nothing that is one step away from it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from bedplate.resolver import resolve, solving
from tests.resolver.case_tables import CASES, DRIVER
from tests.resolver.cases import GUESTLESS, Case, one, share
from tests.resolver.judging import TODAY, faults, unlike
from tests.resolver.small_world import world

#: A kernel of another system is refused by its name already (kernel-known).
HOLDS_ALTERNATIVES_TOGETHER = {"kernel-of-system"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_rule_refuses_one_and_lets_its_neighbour_pass(case: Case) -> None:
    """Exactly this rule refuses the wrong site; the right one is decided as it should be."""
    assert faults(case, world()) == []


def test_names_are_used_once() -> None:
    """Two cases of one name would be one in a report."""
    assert [n for n, many in Counter((c.rule, c.name) for c in CASES).items() if many > 1] == []


def test_every_rule_of_the_program_has_a_case() -> None:
    """A rule without a case could be wrong, or be gone, and no test would see it."""
    heads = set(re.findall(r'violated\("([^"]+)"', solving.rules()))
    assert heads - {case.rule for case in CASES} == HOLDS_ALTERNATIVES_TOGETHER


GUESTS = {"kind": "passthrough"}
FRAMEWORKS = "pools.pool_a.frameworks"
#: Sites that are decided by the order of preferences alone.
PREFERRED = {
    # Two newest ones are known to be bad together: the later by name steps back.
    "components-by-name": (
        one(os=GUESTLESS, kubernetes="1.35"),
        {
            "cluster.nvidia_container_toolkit.version": "1.20.1",
            "cluster.nvidia_device_plugin.version": "0.17.0",
        },
    ),
    # The newest Kubernetes goes with no driver, the second with none that is supported.
    "shared-before-pools": (
        one(host=GUESTS, sharing=share("time-slicing", replicas=2)),
        {"cluster.kubernetes.version": "1.36.2", f"{DRIVER}.version": "570.211.01"},
    ),
    "lts-before-newer": (one(), {f"{DRIVER}.version": "580.178.04"}),
    "production": (one(driver={"policy": "production"}), {f"{DRIVER}.version": "595.91.07"}),
    "supported-before-policy": (
        one("pro-4500", driver={"policy": "lts"}),
        {f"{DRIVER}.version": "595.91.07"},
    ),
    "new-feature": (one(driver={"policy": "new-feature"}), {f"{DRIVER}.version": "615.71.09"}),
    # R610 reached its end of life a day before the catalogue was read, R595 on that very day.
    "end-of-life": (
        one(driver={"policy": "new-feature", "source": "vendor-repo", "flavour": "proprietary"}),
        {f"{DRIVER}.version": "595.91.07"},
    ),
    "default-flavour": (one(), {f"{DRIVER}.flavour": "open"}),
    "default-flavour-of-the-branch": (
        one(driver={"branch": "535"}),
        {f"{DRIVER}.flavour": "proprietary"},
    ),
    "distribution's-own-first": (one(), {f"{DRIVER}.source": "distro"}),
    "packages-before-a-runfile": (
        one(driver={"branch": "595"}),
        {f"{DRIVER}.source": "vendor-repo"},
    ),
    "newest-cuda": (one(cuda=["12.9"]), {"pools.pool_a.cuda_toolkit": ["12.9.1"]}),
    "newest-build": (one(frameworks=["pytorch"]), {f"{FRAMEWORKS}.0.variant": "cu130"}),
    "newest-cuda-of-a-build": (
        one(frameworks=["pytorch"], driver={"branch": "535"}),
        {f"{FRAMEWORKS}.0.version": "2.12.0", f"{FRAMEWORKS}.0.variant": "cu128"},
    ),
    "dma-buf-before-peermem": (
        one(rdma={"stack": "doca"}),
        {"pools.pool_a.rdma.method": "dma-buf"},
    ),
}


@pytest.mark.parametrize("name", PREFERRED)
def test_preferences(name: str) -> None:
    """What is decided where several decisions keep every rule and wish."""
    site, right = PREFERRED[name]
    assert unlike(resolve(site.site(), world(), TODAY), right) == []
