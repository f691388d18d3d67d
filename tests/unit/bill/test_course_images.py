"""The images of courses: in the bill of the sites that have courses, each with its frameworks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.errors import ResolveError
from bedplate.bill.match import differences
from bedplate.bill.model import Bill
from bedplate.bill.needs import NeededImage, Needs, images_of
from bedplate.bill.partial import Partial
from bedplate.bill.places import Places
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.components.frameworks import hub_settings
from bedplate.lock import load_lock
from bedplate.lock.courses import Course, Hub, Share
from bedplate.lock.model import Framework
from tests.substrate.images import layers, recipes
from tests.substrate.internet.fixtures import serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.lock.model import Lock

DEMO = Path(__file__).parents[3] / "inventories/demo"
BUILDS = [
    Framework(name=name, version=version, variant=variant, cuda="12.1")
    for name, version, variant in (
        ("jax", "0.12.0.1", "cuda12"),
        ("paddle", "3.3.1", "cu126"),
        ("pytorch", "2.8.0", "cu126"),
        ("pytorch", "2.10.0", "cu126"),
        ("pytorch", "2.9.1", "cu128"),
    )
]
JAX = "notebook-jax-0.12.0.1-cuda12"
SHARE = Share(resource="nvidia.com/gpu.shared", count=1)


def with_courses(
    *asked: list[str], team: bool = False, frameworks: Sequence[Framework] = BUILDS
) -> Lock:
    """The demo's lock with a course for each list of frameworks, and with its team or none."""
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    courses = {
        f"course-{at}": Course(
            students=2, share=SHARE, pool="pool_class", frameworks=named, idle_timeout_s=600
        )
        for at, named in enumerate(asked)
    }
    hub = Hub(sign_in="native") if courses else None
    teams = {"lab": lock.cluster.teams["lab"]} if team else {}
    cluster = lock.cluster.model_copy(update={"courses": courses, "hub": hub, "teams": teams})
    pool = lock.pools["pool_class"].model_copy(update={"frameworks": list(frameworks)})
    pools = {**lock.pools, "pool_class": pool}
    return lock.model_copy(update={"cluster": cluster, "pools": pools})


@pytest.mark.parametrize(
    ("courses", "found"),
    [
        ([], set()),
        ([["jax"]], {"hub", "hub-proxy", JAX}),
        (
            [["jax-0.12", "paddle"], []],
            {"hub", "hub-proxy", "notebook-base", JAX, "notebook-paddle-3.3.1-cu126"},
        ),
    ],
)
def test_a_bill_has_the_images_of_its_courses(courses: list[list[str]], found: set[str]) -> None:
    needed = {one.needed_by for _, one in images_of(with_courses(*courses), load_catalogue())}
    assert {one for one in needed if one.startswith(("hub", "notebook"))} == found


def test_a_bill_has_the_registry_of_the_courses_that_have_one() -> None:
    lock = with_courses(["jax"], ["jax"])
    assert lock.cluster is not None
    first, second = lock.cluster.courses.items()
    given = dict([first, (second[0], second[1].model_copy(update={"registry_mib": 20480}))])
    pushed = lock.model_copy(update={"cluster": lock.cluster.model_copy(update={"courses": given})})
    added = (
        dict(images_of(pushed, load_catalogue())).items()
        - dict(images_of(lock, load_catalogue())).items()
    )
    assert {one.needed_by for _, one in added} == {"registry", "registry-proxy"}


def test_two_versions_of_a_framework_are_two_images_and_its_name_is_the_newest() -> None:
    """Each with the profile that says its version; a build that is asked for twice is one."""
    lock = with_courses(["pytorch-2.8", "pytorch", "pytorch-2.10", "jax"])
    asked = {name: one for name, one in images_of(lock, load_catalogue()) if "-pytorch" in name}
    assert {name: (one.needed_by, one.built) for name, one in asked.items()} == {
        f"images.bedplate.internal/notebook-pytorch:{version}-cu126": (
            f"notebook-pytorch-{version}-cu126",
            True,
        )
        for version in ("2.8.0", "2.10.0")
    }
    profiles = hub_settings.settings(lock, str)["courses"]["course-0"]["profiles"]
    assert [(one["slug"], one["title"], one["image"]) for one in profiles] == [
        ("course-0-pytorch-2-8-0", "course-0 with pytorch 2.8.0", "notebook-pytorch-2.8.0-cu126"),
        (
            "course-0-pytorch-2-10-0",
            "course-0 with pytorch 2.10.0",
            "notebook-pytorch-2.10.0-cu126",
        ),
        ("course-0-jax", "course-0 with jax 0.12.0.1", JAX),
    ]
    assert [one["about"].partition(" on ")[0] for one in profiles] == [
        "Pytorch 2.8.0",
        "Pytorch 2.10.0",
        "Jax 0.12.0.1",
    ]


def test_an_image_that_a_fact_says_to_hold_the_build_is_taken() -> None:
    catalogue, mine = load_catalogue(), "registry.example/jax:1"
    base = catalogue.images["notebook-base"]
    fact = base.value.model_copy(update={"notebook": "jax-0.12.0.1-cuda12", "reference": mine})
    images = {**catalogue.images, "mine": base.model_copy(update={"value": fact})}
    found = dict(images_of(with_courses(["jax"]), replace(catalogue, images=images)))
    assert (found[mine].needed_by, found[mine].built) == (JAX, False)
    assert not any(one.built for one in found.values())


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
        if one.needed_by == JAX
    ]
    with serving(tmp_path / "internet") as internet:
        web, places = Web(internet.authority), Places(internet.url, {})
        needs = Needs(images={reference: NeededImage(JAX, "nobody", built=True)})
        asked = [web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml"]
        with pytest.raises(ResolveError) as refused:
            Resolver(*asked).bill(needs)
        internet.tree.image(reference)
        assert list(Resolver(*asked).bill(needs).images) == [reference]
        web.close()
    (problem,) = refused.value.problems
    assert problem.what == f"image {reference} is one that the site builds, and is not there"
    assert problem.got == "HTTP 404 Not Found"
    assert problem.fix.startswith("build it from the files of `bedplate frameworks SITE")
    assert "to a registry that images.bedplate.internal leads to" in problem.fix


def test_teams_have_images_of_builds_that_no_course_has_once_they_are_built(tmp_path: Path) -> None:
    """The bill is whole without them, and has them as soon as a registry does."""
    images = dict(images_of(with_courses(["jax"], team=True), load_catalogue()))
    mine = {name: one for name, one in images.items() if one.optional}
    assert sorted(mine) == [
        "images.bedplate.internal/notebook-paddle:3.3.1-cu126",
        *(
            f"images.bedplate.internal/notebook-pytorch:{version}"
            for version in ("2.10.0-cu126", "2.8.0-cu126", "2.9.1-cu128")
        ),
    ]
    (course,) = [name for name, one in images.items() if one.needed_by == JAX]
    with serving(tmp_path / "internet") as internet:
        internet.tree.image(course)
        web, places = Web(internet.authority), Places(internet.url, {})
        needs = Needs(images={course: images[course], **mine})
        asked = [web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml"]
        bill = Resolver(*asked).bill(needs)
        assert list(bill.images) == [course]
        assert not list(differences(needs, bill))
        internet.tree.image(built := min(mine))
        bill = Resolver(*asked).bill(needs)
        assert set(bill.images) == {course, built}
        assert not list(differences(needs, bill))
        web.close()
