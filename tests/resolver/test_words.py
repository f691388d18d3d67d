"""What refusals propose: the nearest change that fits, or what is known instead."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate import catalogue as catalogue_of
from bedplate.catalogue import load_catalogue
from bedplate.catalogue.load import read_catalogue
from bedplate.resolver import Refusal, resolve
from tests.resolver.cases import one, share
from tests.resolver.cases_of_sharing import SEATS, TWO_BOARDS
from tests.resolver.judging import TODAY
from tests.resolver.small_world import WORLD, world

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from tests.properties.building import Plain


def refused(site: Plain, catalogue: Catalogue) -> Problem:
    """Return the one problem of a site."""
    answer = resolve(site.site(), catalogue, TODAY)
    assert isinstance(answer, Refusal)
    (problem,) = answer.problems
    return problem


SHARED_DEBIAN = """
- value:
    bad: shared-debian
    all: [{dimension: os, equal: debian-12}, {dimension: sharing, equal: time-slicing}]
  reason: A small world for the tests of the rules.
  source: {url: "tests/resolver/world", read: 2026-11-21}
  sure: tested
"""
FACTS = Path(catalogue_of.__file__).with_name("facts")
#: What is allowed where nothing can be shared.
NO_SHARING = "mode none, which gives whole GPUs"
BOTH = "gpu[0].model a100, gpu[1].model b200"


@pytest.mark.parametrize(
    ("site", "beside", "fits"),
    [
        (one(sharing=share("time-slicing", seats=50, **SEATS)), "gpu[0].model a100", 48),
        (one(hosts=2, sharing=share("mps", replicas=2, seats=17)), "gpu[0].model a100", 16),
        (one(TWO_BOARDS, sharing=share("mig", profile="3g.40gb", seats=50)), BOTH, 20),
    ],
)
def test_seats_are_told_how_many_fit(site: Plain, beside: str, fits: int) -> None:
    problem = refused(site, world())
    (pool,) = site.pools.values()
    seats = pool.wishes["sharing"]["seats"]
    assert problem.rule == "share-divides"
    assert problem.key == "bedplate_sharing.seats"
    assert str(problem.got).startswith(f"{seats} with {beside}")
    assert problem.allowed == str(fits)
    assert problem.fix == f"write {fits}"


def test_fifty_students_on_four_real_cards() -> None:
    """At 0.08 of a card each, twelve have room on a card."""
    board = [{"model": "v100-sxm2-32gb", "count": 4}]
    sharing = share("mps", seats=50, **SEATS)
    problem = refused(one(board, os="debian-12", sharing=sharing), load_catalogue())
    assert (problem.rule, problem.fix) == ("share-divides", "write 48")


@pytest.mark.parametrize(
    ("parent", "allowed", "fix"),
    [
        ("gpu_pools", "mps, none", "write mps"),
        ("slurm", NO_SHARING, "write mode: none, and remove replicas"),
    ],
)
def test_slurm_is_proposed_no_mode_that_it_does_not_have(
    tmp_path: Path, parent: str, allowed: str, fix: str
) -> None:
    folder = shutil.copytree(WORLD, tmp_path / "facts")
    for path in FACTS.glob("*.yml"):
        if not (folder / path.name).exists():
            (folder / path.name).write_text("[]\n")
    with (folder / "known-bad.yml").open("a") as facts:
        facts.write(SHARED_DEBIAN)
    site = one(parent=parent, os="debian-12", sharing=share("time-slicing", replicas=2))
    problem = refused(site, read_catalogue(folder))
    assert (problem.rule, problem.key) == ("known-bad", "bedplate_sharing.mode")
    assert problem.allowed == allowed
    assert problem.fix == fix


@pytest.mark.parametrize(
    ("zone", "fix"),
    [
        ("Europe/Kiev", None),
        ("CET", None),
        ("Europe/Berlim", "write Europe/Berlin"),
        ("Berlin", "write Europe/Berlin"),
        ("UTC+2", "write one that timedatectl list-timezones lists"),
    ],
)
def test_a_time_zone_is_one_that_there_is(zone: str, fix: str | None) -> None:
    """A name that has the form of one would leave a course without lessons."""
    site = one(shared={"hub": {"timezone": zone}})
    if fix is None:
        assert not isinstance(resolve(site.site(), world(), TODAY), Refusal)
        return
    problem = refused(site, world())
    assert (problem.rule, problem.key) == ("timezone-known", "bedplate_hub.timezone")
    assert problem.fix == fix


MIG_OF_4500 = "1g.16gb, 1g.16gb+gfx, 1g.16gb+me.all, 1g.16gb-me, 2g.32gb, 2g.32gb+gfx"
WHOLE = "write mode: mps, time-slicing or none, and remove profile"


@pytest.mark.parametrize(
    ("model", "profile", "allowed", "fix"),
    [
        ("rtx-pro-4500-bse", "1g.17gb", MIG_OF_4500, "write 1g.16gb"),
        ("rtx-pro-4500-bse", "1g.10gb", MIG_OF_4500, "write 1g.16gb"),
        ("l40s", "1g.17gb", "none", WHOLE),
        ("l40s", "1g.10gb", NO_SHARING, "write mode: none, and remove profile"),
    ],
)
def test_a_wrong_profile_is_told_those_of_its_own_gpu(
    model: str, profile: str, allowed: str, fix: str
) -> None:
    """Whether some other GPU has the profile or none: never a profile of another GPU."""
    problem = refused(one(model, sharing=share("mig", profile=profile)), load_catalogue())
    assert problem.rule == "mig-geometry"
    assert model in str(problem.got)
    assert (problem.allowed, problem.fix) == (allowed, fix)


def test_claims_of_a_gpu_without_a_memory_of_its_own_are_refused_for_that() -> None:
    """A combination that was reported as broken is refused with what was reported."""
    problem = refused(one("gb10", 1, sharing=share("dra")), load_catalogue())
    assert (problem.rule, problem.key) == ("known-bad", "bedplate_sharing.mode")
    assert "(NVML reports no memory of a GB10, which shares it with its CPU, so" in str(problem.got)
    assert problem.fix == "write mode: none"
    assert problem.sources == (
        "https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1073",
    )


def test_claims_on_an_older_kubernetes_are_told_the_one_that_has_them() -> None:
    """The release first, since that keeps the sharing; and no key that the file does not have."""
    sharing = share("dra", share={"memory": "8Gi"})
    problem = refused(one(kubernetes="1.35", sharing=sharing), world())
    assert (problem.rule, problem.key) == ("component-kubernetes", "bedplate_sharing.mode")
    wanted = 'write "1.36" for bedplate_kubernetes.version, or mode: none, and remove share'
    assert problem.fix == wanted


@pytest.mark.parametrize(
    ("vendor", "model"), [("amd", "mi300z"), ("ascend", "mi300x"), ("kunlun", "kunlun-p801")]
)
def test_what_is_not_known_of_other_boards_is_not_guessed(vendor: str, model: str) -> None:
    accelerator = {"vendor": vendor, "model": model, "count": 8}
    problem = refused(one([], os="debian-12", accelerator=accelerator), load_catalogue())
    assert problem.what == "unknown accelerator, or one among others"
    assert problem.rule == "accelerator-known"
    assert problem.key == "bedplate_accelerator.model"
    assert problem.got == model
    assert problem.fix == "use one of these"


REFUSED: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("data").joinpath("refused-shares.yml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['model']}-{case['sharing']}")
def test_refusals_of_shares(case: dict[str, Any]) -> None:
    """What is refused, what this GPU can have, and what to write."""
    site = one(case["model"], os="debian-12", sharing=case["sharing"])
    said = str(refused(site, load_catalogue())).partition("\n")[0]
    assert said.partition("bedplate_sharing")[2].strip() == case["said"]
