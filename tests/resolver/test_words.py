"""What refusals propose: the nearest change that fits, or what is known instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import Refusal, resolve
from tests.resolver.cases import one, share
from tests.resolver.cases_of_sharing import SEATS, TWO_BOARDS
from tests.resolver.judging import TODAY
from tests.resolver.small_world import world

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.errors import Problem
    from tests.properties.building import Plain


def refused(site: Plain, catalogue: Catalogue) -> Problem:
    """Return the one problem of a site."""
    answer = resolve(site.site(), catalogue, TODAY)
    assert isinstance(answer, Refusal)
    (problem,) = answer.problems
    return problem


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
    ("vendor", "model", "fix"),
    [
        ("amd", "mi300z", "write mi300x"),
        ("ascend", "mi300x", "choose one of ascend-310, ascend-310p, ascend-910, ascend-910b"),
        ("kunlun", "kunlun-p801", "write kunlun-p800"),
    ],
)
def test_what_is_not_known_of_other_boards_is_not_guessed(
    vendor: str, model: str, fix: str
) -> None:
    accelerator = {"vendor": vendor, "model": model, "count": 8}
    problem = refused(one([], os="debian-12", accelerator=accelerator), load_catalogue())
    assert problem.what == "unknown accelerator, or one among others"
    assert problem.rule == "accelerator-known"
    assert problem.key == "bedplate_accelerator.model"
    assert problem.got == model
    assert problem.fix == fix
