"""Presets: each is for a kind of site, and what does not go together is refused with the reason."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.site.presets import load_presets
from tests.resolver.test_whole_sites import T4, decide, host, planned, rules
from tests.substrate.tools.build import tools

PRESETS = sorted(load_presets())
#: Add-ons that place pods with GPUs: one cluster has one of them.
PLACING = ("hami", "volcano")
RACK = {"bedplate_topology": {"rack": "r1"}}


def answer(everywhere: dict[str, Any], pool: dict[str, Any] | None = None, **more: Any) -> Any:
    """Decide a site of a pool of Kubernetes, and one of Slurm unless `slurm` is false."""
    slurm = more.pop("slurm", True)
    hosts = [
        host("cp1", ["control_plane"], everywhere),
        host("n1", ["gpu_pools", "pool_a"], T4 | everywhere | (pool or {}) | more),
    ]
    if slurm:
        hosts.append(host("s1", ["slurm", "pool_s"], T4 | everywhere))
    return decide(*hosts)


def choice(name: str, **changes: Any) -> dict[str, Any]:
    """A preset with changes."""
    return {"bedplate_preset": {"name": name} | changes}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_alone_is_planned_and_brings_what_it_needs(name: str) -> None:
    lock = planned(answer(choice(name))).lock
    assert lock.cluster is not None
    assert lock.cluster.preset == load_presets()[name]
    assert [addon.name for addon in lock.cluster.addons] == sorted(load_presets()[name].schedulers)


@pytest.mark.parametrize("name", PRESETS)
def test_the_add_ons_of_a_preset_are_the_versions_that_tests_run(name: str) -> None:
    """The charts and programs of the tests' own clusters are of these versions."""
    found = planned(answer(choice(name)))
    assert found.lock.cluster is not None
    run = tools()
    addons = found.lock.cluster.addons
    assert [one.version for one in addons] == [run[one.name].version for one in addons]
    assert not [one for one in found.notices if "addon" in one.short]


def test_an_add_on_in_another_version_than_tests_ran_is_named() -> None:
    """Volcano 1.15 is planned where it is requested: the plan says which version nobody ran."""
    found = planned(answer({"bedplate_schedulers": ["kueue", "volcano-1.15"]}, slurm=False))
    told = [one.items for one in found.notices if "addon" in one.short]
    assert told == [("addon volcano 1.15.1",)]


@pytest.mark.parametrize(
    ("queued", "wished", "requests"),
    [(True, None, 40), (True, 25, 25), (False, None, None), (False, 25, 25)],
)
def test_controllers_may_send_more_beside_kueue_and_what_the_site_says(
    queued: bool, wished: int | None, requests: int | None
) -> None:
    """What is held until there is quota costs the Job controller requests; kubeadm's are few."""
    site = choice("research") if queued else {}
    endpoint = {"endpoint": "192.0.2.1:6443"}
    own = {"bedplate_kubernetes": endpoint | ({"controller_requests": wished} if wished else {})}
    lock = planned(answer(site | own, slurm=False)).lock
    assert lock.cluster is not None
    assert lock.cluster.kubernetes.controller_requests == requests


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_written_for_people_and_names_what_there_is(name: str) -> None:
    preset = load_presets()[name]
    known = {fact.value.addon for fact in load_catalogue().addons.values()}
    assert set(preset.schedulers) <= known
    assert len(set(preset.schedulers) & set(PLACING)) <= 1
    assert "kueue" in preset.schedulers, "queues are Kueue's"
    assert preset.description.endswith(".")
    assert preset.priorities, "a workload has a class to name"
    assert 0 in preset.priorities.values(), "one class is what others are above or below"


def test_what_each_preset_is_for() -> None:
    """The values that a preset promises in its description."""
    of = load_presets()
    assert (of["classroom"].queue.order, of["classroom"].queue.preemption) == (
        "StrictFIFO",
        "Never",
    )
    assert not of["classroom"].queue.borrowing
    assert of["training"].placement.gang
    assert of["training"].placement.pods == "binpack"
    assert of["training"].placement.topology == "preferred"
    assert of["inference"].placement.pods == "spread"
    classes = of["inference"].priorities
    assert classes["latency"] > classes["batch"]
    assert of["research"].queue.fair_sharing
    assert of["research"].queue.reclaim == "Any"
    assert min(of["research"].priorities.values()) < 0, "overflow is what gives way first"
    assert of["batch-hpc"].schedulers == ["kueue"]


@pytest.mark.parametrize(
    ("preset", "value", "changed"),
    [
        (name, f"{part}.{key}", new)
        for name in PRESETS
        for part, key, new in (
            ("queue", "order", "BestEffortFIFO" if name == "classroom" else "StrictFIFO"),
            ("queue", "reclaim", "Never"),
            ("queue", "preemption", "LowerOrNewerEqualPriority"),
            ("placement", "pods", "binpack" if name == "inference" else "spread"),
            ("placement", "topology", "none" if name == "training" else "preferred"),
        )
    ],
)
def test_every_value_can_be_another(preset: str, value: str, changed: str) -> None:
    part, key = value.split(".")
    own = load_presets()[preset]
    lock = planned(answer(choice(preset, **{part: {key: changed}}))).lock
    assert lock.cluster is not None
    assert lock.cluster.preset is not None
    found = lock.cluster.preset.model_dump()
    assert found[part][key] == changed != getattr(getattr(own, part), key)
    found[part][key] = getattr(getattr(own, part), key)
    assert found == own.model_dump(), "nothing else has changed"


REFUSED = [
    (
        "gang-without-its-scheduler",
        choice("classroom", placement={"gang": True}),
        {},
        "preset-gang",
        (
            "got gang: true with kueue alone / allowed gang with volcano — "
            "add volcano to bedplate_schedulers, or write gang: false"
        ),
    ),
    (
        "gang-of-claims",
        choice("training"),
        {"bedplate_sharing": {"mode": "dra"}},
        "preset-gang",
        (
            "got gang: true with pools of mode dra alone, whose claims Volcano does not allocate / "
            "allowed gang with a pool whose GPUs a device plugin offers — write gang: false, or "
            "another mode for a pool"
        ),
    ),
    (
        "topology-that-nobody-knows",
        choice("training", placement={"topology": "required"}),
        {},
        "preset-topology",
        "got topology: required, and no host says where it stands",
    ),
    (
        "extender-beside-gangs",
        choice("training", placement={"extender": True}),
        {},
        "preset-extender",
        "got extender: true with gang: true, whose pods the extender never sees",
    ),
    (
        "extender-beside-shares",
        choice("inference", placement={"extender": True}),
        {"bedplate_sharing": {"mode": "time-slicing", "replicas": 4}},
        "preset-extender",
        (
            "got time-slicing in pool_a with placement.extender: true / allowed none: the extender "
            "counts shares itself"
        ),
    ),
    (
        "extender-beside-claims",
        choice("research", placement={"extender": True}),
        {"bedplate_sharing": {"mode": "dra"}},
        "preset-extender",
        "got dra in pool_a with placement.extender: true",
    ),
    (
        "fair-share-of-nothing",
        choice("research", queue={"borrowing": False}),
        {},
        "preset-queue",
        "got fair_sharing with borrowing: false",
    ),
    (
        "fair-share-in-a-class",
        choice("classroom", queue={"fair_sharing": True}),
        {},
        "preset-queue",
        "got fair_sharing with borrowing: false",
    ),
    (
        "hpc-without-slurm",
        choice("batch-hpc"),
        {"slurm": False},
        "preset-cluster",
        "got batch-hpc with no host in Slurm",
    ),
    (
        "teams-without-queues",
        {"bedplate_teams": {"a": {"gpus": {"pool_a": {"guaranteed": 1}}}}},
        {},
        "team-queue",
        "got no kueue or volcano",
    ),
    (
        "hami-beside-claims",
        choice("research") | {"bedplate_schedulers": ["hami"]},
        {"bedplate_sharing": {"mode": "dra"}},
        "resource-owner",
        "hami",
    ),
]


@pytest.mark.parametrize(
    ("everywhere", "more", "rule", "words"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
def test_what_does_not_go_together(
    everywhere: dict[str, Any], more: dict[str, Any], rule: str, words: str
) -> None:
    refusal = answer(everywhere, **more)
    assert rules(refusal) == [rule]
    assert words in str(refusal.problems[0])


@pytest.mark.parametrize(
    ("everywhere", "more"),
    [
        (choice("classroom", placement={"gang": True}) | {"bedplate_schedulers": ["volcano"]}, {}),
        (choice("training", placement={"topology": "required"}), RACK),
        (choice("training", placement={"extender": True, "gang": False}), {}),
        (choice("inference", placement={"extender": True}), {}),
        (choice("classroom", queue={"fair_sharing": True, "borrowing": True}), {}),
        (choice("batch-hpc"), {}),
    ],
    ids=["gang", "topology", "extender", "extender-alone", "fair", "hpc"],
)
def test_one_step_away_it_goes(everywhere: dict[str, Any], more: dict[str, Any]) -> None:
    planned(answer(everywhere, **more))


@pytest.mark.parametrize("pair", list(combinations(("dra", "jobset", "kueue", "volcano"), 2)))
def test_parts_that_can_be_had_go_together(pair: tuple[str, str]) -> None:
    """All of them at once, on hosts: `tests/mixes/test_every_part.py`."""
    pool = {"bedplate_sharing": {"mode": "dra"}} if "dra" in pair else {}
    addons = [name for name in pair if name != "dra"]
    lock = planned(answer({"bedplate_schedulers": addons}, pool, slurm=False)).lock
    assert lock.cluster is not None
    assert [addon.name for addon in lock.cluster.addons] == addons
    assert ("nvidia_dra_driver" in lock.cluster.model_dump(exclude_none=True)) == bool(pool)


@pytest.mark.parametrize(("one", "other"), list(combinations(PLACING, 2)))
def test_one_scheduler_places_gpus(one: str, other: str) -> None:
    refusal = answer({"bedplate_schedulers": [one, other]})
    assert rules(refusal) == ["addon-excludes"]
    assert {one, other} <= set(str(refusal.problems[0]).replace(",", " ").split())


@pytest.mark.parametrize("other", [name for name in PLACING if name != "volcano"])
def test_nor_beside_the_one_that_a_preset_brings(other: str) -> None:
    refusal = answer(choice("training") | {"bedplate_schedulers": [other]})
    assert rules(refusal) == ["addon-excludes"]


def test_a_preset_needs_a_cluster() -> None:
    refusal = decide(host("s1", ["slurm", "pool_s"], T4 | choice("research")))
    assert "preset-cluster" in rules(refusal)
    assert "got research without nodes of Kubernetes" in str(refusal.problems[0])
