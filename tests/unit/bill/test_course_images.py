"""The images of courses: in the bill of the sites that have courses, each with its frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.errors import ResolveError
from bedplate.bill.model import Bill
from bedplate.bill.needs import NeededImage, Needs, images_of
from bedplate.bill.partial import Partial
from bedplate.bill.places import Places
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from bedplate.lock.courses import Course, Hub, Share
from tests.substrate.images import layers, recipes
from tests.substrate.internet.fixtures import serving

if TYPE_CHECKING:
    from bedplate.lock.model import Lock

DEMO = Path(__file__).parents[3] / "inventories/demo"
SHARE = Share(resource="nvidia.com/gpu.shared", count=1)


def with_courses(*frameworks: list[str]) -> Lock:
    """The demo's lock with a course for each list of frameworks."""
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    courses = {
        f"course-{at}": Course(
            students=2, share=SHARE, pool="pool_class", frameworks=named, idle_timeout_s=600
        )
        for at, named in enumerate(frameworks)
    }
    hub = Hub(sign_in="native") if courses else None
    cluster = lock.cluster.model_copy(update={"courses": courses, "hub": hub})
    return lock.model_copy(update={"cluster": cluster})


@pytest.mark.parametrize(
    ("courses", "found"),
    [
        ([], set()),
        ([["jax"]], {"hub", "hub-proxy", "notebook-jax"}),
        (
            [["jax-0.12", "paddle"], []],
            {"hub", "hub-proxy", "notebook-base", "notebook-jax", "notebook-paddle"},
        ),
    ],
)
def test_a_bill_has_the_images_of_its_courses(courses: list[list[str]], found: set[str]) -> None:
    needed = {one.needed_by for _, one in images_of(with_courses(*courses), load_catalogue())}
    assert {one for one in needed if one.startswith(("hub", "notebook"))} == found


def test_the_demos_mirror_has_them_under_their_names() -> None:
    names = {image.name for image in recipes.images(recipes.known_tools())}
    everything = with_courses(["jax"], ["paddle"], [])
    asked = {
        name: one.needed_by
        for name, one in images_of(everything, load_catalogue())
        if one.needed_by.startswith(("hub", "notebook"))
    }
    assert len(asked) == 5
    assert set(asked) <= names


def test_a_layer_leaves_out_what_an_earlier_one_has() -> None:
    (jax,) = (one for one in recipes.images(recipes.known_tools()) if "jax" in one.name)
    (_, notebook), (_, more) = layers._texts(jax)
    earlier, later = set(layers.requirements(notebook)), set(layers.requirements(more))
    assert {name.partition("==")[0] for name in later} >= {"jax", "jaxlib", "numpy"}
    assert {name.partition("==")[0] for name in earlier}.isdisjoint(
        name.partition("==")[0] for name in later
    )
    for name in ("hub", "notebook", "jax", "paddle", "node"):
        text = (layers.REQUIREMENTS / f"{name}.txt").read_text()
        entries = layers.requirements(text)
        assert len(entries) == sum("==" in line for line in text.splitlines())
        assert all("--hash=sha256:" in entry for entry in entries.values())


def test_an_image_that_the_site_builds_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (reference,) = [
        name
        for name, one in images_of(with_courses(["jax"]), load_catalogue())
        if one.needed_by == "notebook-jax"
    ]
    with serving(tmp_path / "internet") as internet:
        web, places = Web(internet.authority), Places(internet.url, {})
        needs = Needs(images={reference: NeededImage("notebook-jax", "nobody", built=True)})
        asked = [web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml"]
        with pytest.raises(ResolveError) as refused:
            Resolver(*asked).bill(needs)
        internet.tree.image(reference)
        assert list(Resolver(*asked).bill(needs).images) == [reference]
        web.close()
    (problem,) = refused.value.problems
    assert problem.what == f"image {reference} is one that the site builds, and is not there"
    assert problem.got == "HTTP 404 Not Found"
    assert problem.fix.startswith("build it by `bedplate frameworks SITE --output DIR --base")
    assert problem.fix.endswith("to a registry that images.bedplate.internal leads to")
