"""What a plan warns of: every weak fact that it relies on, and nothing that was not computed."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import Plan, resolve
from bedplate.resolver.outcome import Notice, Stops
from tests.resolver.cases import one
from tests.resolver.cases_of_names import MIRROR
from tests.resolver.preferred import crio
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedplate.catalogue import Catalogue
    from tests.properties.building import Plain

TODAY = date(2026, 11, 21)
MIG = {"sharing": {"mode": "mig", "profile": "1g.10gb"}}
MPS = {"sharing": {"mode": "mps", "replicas": 4}}
OLD = {"driver": {"branch": "535"}}
FORWARD = OLD | {"cuda": ["13.0"], "forward_compatibility": True}


def weakened(*identifiers: str) -> Catalogue:
    """Return the small world with some facts less sure than they are."""
    catalogue = world()
    for identifier in identifiers:
        fact = catalogue.fact(identifier)
        field, table = next(
            (file.replace("-", "_"), facts)
            for file, facts in catalogue.tables().items()
            if any(each is fact for each in facts.values())
        )
        weak = fact.model_copy(update={"sure": "unproved"})
        changed = {key: weak if each is fact else each for key, each in table.items()}
        catalogue = replace(catalogue, **{field: changed})
    return catalogue


def warnings(site: Plain, catalogue: Catalogue, today: date = TODAY) -> list[str]:
    """Return the warnings of a site's plan about its pool."""
    plan = resolve(site.site(), catalogue, today)
    assert isinstance(plan, Plan), plan
    return [told for told in plan.warnings if told.startswith("pool_a: ")]


@pytest.mark.parametrize(
    ("wishes", "identifier", "leans"),
    [
        ({}, "branch/580", True),
        ({}, "branch/595", False),
        ({}, "gpu/a100", True),
        ({}, "architecture/ampere", True),
        ({}, "architecture/volta", False),
        (MIG, "mig/a100-1g", True),
        (MIG, "mig/a100-3g", False),
        (MIG, "mig/b200-1g", False),
        ({}, "mig/a100-1g", False),
        (MPS, "mps/from-13", True),
        (MPS, "mps/before-13", False),
        (MPS | OLD, "mps/before-13", True),
        ({}, "mps/from-13", False),
        (OLD | {"cuda": ["12.9"]}, "cuda-major/12", True),
        (OLD | {"cuda": ["12.2"]}, "cuda-major/12", False),  # the toolkit's own driver
        (FORWARD, "forward/13.0", True),
        (FORWARD, "cuda-major/13", False),
        ({"cuda": ["13.0"]}, "forward/13.0", False),
    ],
)
def test_what_a_choice_refers_to_is_leant_on(
    wishes: dict[str, Any], identifier: str, leans: bool
) -> None:
    told = f"pool_a: relies on unchecked information: {identifier}"
    assert (told in warnings(one(**wishes), weakened(identifier))) == leans


def test_a_framework_leans_on_what_runs_its_cuda() -> None:
    catalogue = weakened("cuda-major/11", "cuda-major/12", "cuda-major/13", "forward/13.0")
    build = next(iter(catalogue.frameworks.values())).value
    site = one(frameworks=[f"{build.framework}-{build.version}"])
    plan = resolve(site.site(), catalogue, TODAY)
    assert isinstance(plan, Plan)
    ((chosen,), told) = plan.lock.pools["pool_a"].frameworks, "\n".join(plan.warnings)
    major = chosen.cuda.partition(".")[0]
    assert f"pool_a: relies on unchecked information: cuda-major/{major}" in told.splitlines()


def test_an_accelerator_is_leant_on() -> None:
    name, fact = next(iter(world().accelerators.items()))
    board = {"vendor": fact.value.vendor, "model": name, "count": 1}
    told = warnings(one([], accelerator=board), weakened(fact.id))
    assert f"pool_a: relies on unchecked information: {fact.id}" in told


def test_one_line_for_a_subject_and_grade() -> None:
    weak = [
        told
        for told in warnings(one(), weakened("gpu/a100", "architecture/ampere", "branch/580"))
        if "unchecked" in told
    ]
    assert weak == [
        ("pool_a: relies on unchecked information: architecture/ampere, branch/580, gpu/a100")
    ]


@pytest.mark.parametrize(
    ("branch", "today", "told"),
    [
        ("535", TODAY, "driver branch R535 reached its end of life on 2026-06-30 (tests/"),
        (
            "595",
            date(2026, 12, 1),
            (
                "driver branch R595 reached its end of life on 2026-11-21; by the catalogue of "
                "2026-11-21 it was supported (tests/"
            ),
        ),
        ("595", TODAY, None),
    ],
)
def test_a_branch_at_its_end(branch: str, today: date, told: str | None) -> None:
    found = [
        line
        for line in warnings(one(driver={"branch": branch}), world(), today)
        if "end of life" in line
    ]
    assert len(found) == (told is not None)
    assert all(line.startswith(f"pool_a: {told}") for line in found)


def test_another_kind_than_the_policy_claims_nothing_else() -> None:
    told = warnings(one(driver={"branch": "595", "policy": "lts"}), world())
    assert [line for line in told if "R595" in line] == [
        "pool_a: R595 is production, policy is lts"
    ]
    told = warnings(one(driver={"policy": "lts"}), world())
    assert not any("policy" in line for line in told)


@pytest.mark.parametrize(
    ("source", "shared", "told"),
    [
        (None, {"sources": MIRROR, "pins": {"cri_o": "1.36.0"}}, True),
        # Who wishes for it knows of it.
        ("vendor-repo", {"sources": MIRROR}, False),
        (None, {"sources": MIRROR}, False),  # the mirror's archive
        (None, {}, False),
    ],
)
def test_a_runtime_that_no_mirror_has_is_told(
    source: str | None, shared: dict[str, Any], told: bool
) -> None:
    plan = resolve(crio(source, **shared).site(), world(), TODAY)
    assert isinstance(plan, Plan), plan
    line = (
        "cluster: cri-o 1.36.0 comes from its vendor's repository, which the mirror does not have; "
        "write bedplate_container_runtime.source: archive, or vendor-repo where hosts reach one"
    )
    assert (line in plan.warnings) == told


def told(model: str, today: date = TODAY, **wishes: Any) -> str:
    """Return what a plan of the real catalogue warns of, its lines in one."""
    plan = resolve(one(model, **wishes).site(), load_catalogue(), today)
    assert isinstance(plan, Plan), plan
    return "\n".join(plan.warnings)


@pytest.mark.parametrize(
    ("model", "cuda", "found"),
    [
        ("b300-sxm6", "12.8", "CUDA 12.8.1 does not compile for b300-sxm6, of compute"),
        ("b300-sxm6", "12.9", ""),
        ("gb10", "12.8", "CUDA 12.8.1 does not compile for gb10, of compute"),
        ("b200", "12.8", ""),
    ],
)
def test_a_toolkit_without_a_target_for_the_gpu(model: str, cuda: str, found: str) -> None:
    """CUDA 12.8 compiles for 10.0 and 12.0, and 10.3 and 12.1 came with 12.9."""
    text = told(model, cuda=[cuda])
    assert ("does not compile for" in text) == bool(found)
    assert found in text


@pytest.mark.parametrize(
    ("model", "compiled", "fails"),
    [("rtx-5090", True, True), ("b200", True, True), ("h100-sxm5-80gb", False, False)],
)
def test_a_framework_without_code_for_the_newest_gpus(
    model: str, compiled: bool, fails: bool
) -> None:
    """TensorFlow 2.21 has code up to 9.0; what it compiles by XLA fails beyond that."""
    text = told(model, frameworks=["tensorflow-2.21"])
    assert (f"tensorflow 2.21.0 has no code for {model}" in text) == compiled
    assert ("what XLA compiles at run time fails" in text) == fails
    assert ("tensorflow/tensorflow/issues/111958" in text) == fails
    assert "has no code for" not in told(model, frameworks=["pytorch-2.11"])


@pytest.mark.parametrize(
    ("model", "profile", "found"),
    [
        ("rtx-pro-6000-bwe", "1g.24gb", "MIG on rtx-pro-6000-bwe needs display mode compute"),
        ("rtx-pro-6000-max-q-bwe", "1g.24gb", "and VBIOS 98.02.6A.00.00 or newer"),
        ("rtx-pro-5000", "1g.24gb", "MIG on rtx-pro-5000 needs VBIOS 98.02.73.00.00 or newer"),
        ("rtx-pro-6000-bse", "1g.24gb", ""),
    ],
)
def test_what_a_workstation_gpu_needs_before_mig(model: str, profile: str, found: str) -> None:
    """Said in the plan with its source, and of no pool without MIG."""
    text = told(model, sharing={"mode": "mig", "profile": profile})
    assert ("MIG on " in text) == bool(found)
    assert found in text
    assert "MIG on " not in told(model)


@pytest.mark.parametrize(
    ("version", "day", "found"),
    [
        ("1.33", date(2026, 6, 28), ""),
        ("1.33", date(2026, 6, 29), '1.33 reached its end of life on 2026-06-28; write "1.36"'),
        ("1.36", date(2026, 11, 27), ""),
    ],
)
def test_the_end_of_a_kubernetes_release(version: str, day: date, found: str) -> None:
    """Warned of as that of a driver's branch."""
    text = told("l40s", day, kubernetes=version)
    assert ("reached its end of life on" in text) == bool(found)
    assert found in text


def test_what_stops_a_command_comes_first_in_the_order_of_commands() -> None:
    """However many others there are: the screen has room for few kinds."""
    plan = resolve(one().site(), world(), TODAY)
    assert isinstance(plan, Plan)
    notices = (
        Notice("a driver's end"),
        Notice("no certificate", stops=Stops.PULUMI_UP),
        Notice("another"),
        Notice("no root", stops=Stops.SITE_YML),
        Notice("no kernel", stops=Stops.SITE_YML),
    )
    found = replace(plan, notices=notices).warnings
    assert found == ("no root", "no kernel", "no certificate", "a driver's end", "another")


@pytest.mark.parametrize(
    ("site", "catalogue", "text", "stops"),
    [
        (crio(None, sources=MIRROR, pins={"cri_o": "1.36.0"}), world, "vendor's", Stops.SITE_YML),
        (
            one("rtx-pro-5000", sharing={"mode": "mig", "profile": "1g.24gb"}),
            load_catalogue,
            "MIG on rtx-pro-5000 needs",
            Stops.SITE_YML,
        ),
        (
            one("b300-sxm6", cuda=["12.8"]),
            load_catalogue,
            "does not compile for",
            Stops.NOTHING,
        ),
    ],
)
def test_which_command_a_notice_stops(
    site: Plain, catalogue: Callable[[], Catalogue], text: str, stops: Stops
) -> None:
    plan = resolve(site.site(), catalogue(), TODAY)
    assert isinstance(plan, Plan), plan
    assert {notice.stops for notice in plan.notices if text in notice.text} == {stops}
