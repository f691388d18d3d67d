"""Every image that the stacks have a cluster pull is in the bill, by its digest.

Stacks are run as `bedplate render` runs them. Charts are rendered by the real Helm, since a chart
may name images of its own.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from bedplate.cli.main import main
from bedplate.components.frameworks.jobs import placing
from bedplate.components.frameworks.training import request_of, training_args
from bedplate.components.rendering.program import registered
from bedplate.lock import load_lock
from tests.schedulers.certificates import Authority
from tests.schedulers.kueue import template
from tests.unit.bill import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.bill import Bill

ROOT: Final = Path(__file__).parents[2]
#: An image in JSON or in YAML.
NAMED: Final = re.compile(r"""\bimage["']?:\s*["']?([\w.-]+(?::\d+)?/[^\s"',}]+)""")
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
MINE: Final = f"registry.example/lab/mine@sha256:{'a' * 64}"
OWN: Final = f"bedplate_images: {{mine: {{image: {MINE!r}, pool: POOL}}}}\n"
IN_HUB: Final = frozenset({"hub", "hub-proxy", "kueue", "smoke"})
JAX: Final = "notebook-jax-0.12.0.1-cuda12"


class Case(NamedTuple):
    """A site: another one with these settings by group, and what its stacks pull."""

    base: str
    settings: dict[str, str]
    pulled: frozenset[str]


CASES: Final = {
    "a team alone": Case(
        "inventories/demo",
        {
            "all/zz": "bedplate_courses: []\nbedplate_hub: null\n"
            "bedplate_teams: {lab: {members: [ada], idle_timeout: 1h,"
            " gpus: {pool_class: {guaranteed: 4}, pool_train: {guaranteed: 8}}}}\n"
            + OWN.replace("POOL", "pool_class"),
            "pool_class": "bedplate_frameworks: [jax, paddle, jax-cpu]\n",
            "pool_train": "bedplate_frameworks: [pytorch]\n",
        },
        frozenset({"hub", "kueue", "smoke"}),
    ),
    "courses alone": Case(
        "inventories/demo",
        {
            "all/zz": "bedplate_teams: {}\n"
            "bedplate_hub: {url: https://hub.example, certificate: .tls/hub.pem}\n"
            "bedplate_storage:\n"
            "  homes: {path: /srv/homes}\n"
            "  datasets: {mnist: {url: https://data.example/mnist}}\n"
            "bedplate_courses:\n"
            "- {name: intro, students: 4, share: 0.1, pool: pool_class, frameworks: [jax, mine],\n"
            "   storage: 1Gi, datasets: [mnist], teachers: [ada], registry: {size: 1Gi}}\n"
            "- {name: plain, students: 4, share: 0.1, pool: pool_class}\n"
            + OWN.replace("POOL", "pool_class"),
            "pool_class": "bedplate_frameworks: [paddle, jax-cpu]\n",
        },
        IN_HUB
        | {
            "bedplate_images.mine",
            "data-cache",
            "notebook-base",
            "registry",
            "registry-proxy",
            JAX,
        },
    ),
    "both": Case("inventories/demo", {}, IN_HUB | {JAX}),
    "every scheduler": Case(
        "tests/unit/two_pools",
        {
            "all/zz": "bedplate_schedulers: [kueue, jobset, volcano]\n"
            "bedplate_teams: {vision: {members: [ada], gpus: {pool_train: {guaranteed: 8}}}}\n"
            + OWN.replace("POOL", "pool_train"),
            "pool_train": "bedplate_frameworks: [pytorch, jax-cpu]\n",
        },
        frozenset({"jobset", "kueue", "smoke"})
        | {f"volcano-{one}" for one in ("controllers", "scheduler", "webhooks")},
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Return each of the sites."""
    found: Case = request.param
    return found


@pytest.fixture
def site(case: Case, tmp_path: Path) -> Path:
    """Return the site with its lock."""
    copy = tmp_path / "site"
    shutil.copytree(ROOT / case.base, copy, ignore=shutil.ignore_patterns(".bedplate*"))
    for name, text in case.settings.items():
        with (copy / f"group_vars/{name}.yml").open("a") as file:
            file.write(text)
    (copy / ".tls").mkdir()
    certificate, _ = Authority(tmp_path).issue("hub", names=["hub.example"])
    shutil.copy(certificate, copy / ".tls/hub.pem")
    assert main(["plan", str(copy)]) == 0
    return copy


def listed(bill: Bill) -> dict[str, str]:
    """Return what needs each image of a bill, by the names that pods may have for it.

    By its digest, with its tag or without. Volcano's chart has no place for digests: there by tag.
    """
    found = {}
    for name, one in bill.images.items():
        found[f"{name}@{one.digest}"] = one.needed_by
        found[f"{name.rpartition(':')[0]}@{one.digest}"] = one.needed_by
        if one.needed_by.startswith("volcano-"):
            found[name] = one.needed_by
    return found


def images_in(value: Any) -> Iterator[str]:
    """Yield the images that some data names, in texts such as a ConfigMap's too."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "image" and isinstance(one, str):
                yield one
            else:
                yield from images_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from images_in(one)
    elif isinstance(value, str):
        yield from NAMED.findall(value)


def pulled(site: Path) -> Iterator[str]:
    """Yield the images of what the stacks make: of their objects, and of their charts'."""
    for stack in ("cluster", "schedulers", "frameworks"):
        for one in registered(stack, site):
            if one.kind == RELEASE:
                chart = Path(one.inputs["chart"]).name.partition("-")[0]
                yield from images_in(template(chart, one.inputs["values"]))
            else:
                yield from images_in(one.inputs)


def test_what_the_stacks_pull_is_in_the_bill_by_its_digest(case: Case, site: Path) -> None:
    known = listed(made.make(site))
    found = set(pulled(site))
    assert found - known.keys() == set()
    assert {known[image] for image in found} == case.pulled


def test_what_a_job_may_name_is_in_the_bill_by_its_digest(site: Path) -> None:
    """Of a course's team too: its jobs are an administrator's."""
    known, cluster = listed(made.make(site)), training_args(site, load_lock(site))
    asked = [
        {"team": team, "pool": pool, "framework": f"{build.name}-{build.version}"}
        for team in cluster.teams
        for pool in placing.pools_with_quota(cluster, team)
        for build in cluster.pools[pool].frameworks
    ]
    assert asked
    own = [
        {"team": team, "image": image}
        for image, pool in placing.images(cluster).items()
        for team in cluster.teams
        if pool in placing.pools_with_quota(cluster, team)
    ]
    for one in (*asked, *own):
        request = request_of("train", {"cluster": cluster, "command": ["x"], **one})
        assert placing.image(cluster, request) in known, one
