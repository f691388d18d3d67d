"""What joins the GPUs of a host comes whole, or not at all: every system, source and kind."""

from __future__ import annotations

from itertools import product

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.portable.package_names import family
from bedplate.resolver import Plan, Refusal, resolve
from bedplate.resolver.candidates import Candidates
from bedplate.resolver.resolve import decide
from bedplate.resolver.subjects import subjects
from tests.resolver.cases import POOL, driver, one
from tests.resolver.judging import TODAY

#: A model of each kind with the count of a full host, and what the vendors say that it needs.
KINDS = {
    "nvswitch": ("h100-sxm5-80gb", 8, {"nvidia-fabricmanager"}),
    "nvlink-5": ("b200", 8, {"nvidia-fabricmanager", "nvlsm", "libnvsdm"}),
    "imex": ("gb200", 4, {"nvidia-imex"}),
}
SOURCES = (None, "distro", "vendor-repo", "precompiled", "runfile")


@pytest.mark.parametrize("kind", KINDS)
def test_no_source_brings_half_a_fabric(kind: str) -> None:
    """What is decided has every package that the kind needs; a source without them is not taken."""
    catalogue, (model, count, needed) = load_catalogue(), KINDS[kind]
    planned = set()
    for os, source in product(catalogue.systems, SOURCES):
        site = one(model, count, os=os, driver=driver(source=source), kubernetes="1.34").site()
        candidates, (cluster, pools) = Candidates(catalogue, None), subjects(site, catalogue)
        candidates.know(cluster, pools)
        found = decide(cluster, pools, candidates)
        if found is None:
            continue
        chosen = candidates.facts[found[1][POOL]["driver"]].value
        assert {family(name) for name in chosen.fabric or ()} >= needed, (os, source)
        planned.add((os, source))
    # Somewhere it goes, and wherever a source goes the plan finds one itself.
    assert planned, kind
    assert {(os, None) for os, source in planned if source} <= planned


@pytest.mark.parametrize("os", ["ubuntu-22.04", "ubuntu-24.04"])
def test_nvlink_5_comes_from_the_source_that_has_its_subnet_manager(os: str) -> None:
    def plan(source: str | None) -> Plan | Refusal:
        site = one("b200", 8, os=os, driver=driver(source=source)).site()
        return resolve(site, load_catalogue(), TODAY)

    chosen = plan(None)
    assert isinstance(chosen, Plan)
    found = chosen.lock.pools[POOL].nvidia_driver
    assert found is not None
    assert found.source == "vendor-repo"
    for source in ("distro", "precompiled"):
        refused = plan(source)
        assert isinstance(refused, Refusal)
        (problem,) = refused.problems
        assert problem.rule == "fabric-packaged"
        assert problem.got == (
            f"{source} with gpu[0].model b200, "
            "whose fabric needs nvidia-fabricmanager, nvlsm, libnvsdm"
        )
        assert (problem.allowed, problem.fix) == ("vendor-repo", "write vendor-repo")
