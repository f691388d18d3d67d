"""Courses of a site: what is refused, and what the lock has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.site.courses import Course, listed
from tests.resolver.test_teams import SHARED
from tests.resolver.test_whole_sites import decide, host, planned, rules

if TYPE_CHECKING:
    from bedplate.lock.model import Cluster

HOMES = {
    "homes": {"path": "/srv/homes", "shared": True},
    "datasets": {"mnist": {"path": "/srv/mnist"}},
}

LTI = {
    "client_ids": ["bedplate"],
    "issuer": "https://lms.example.org",
    "authorize_url": "https://lms.example.org/authorize",
    "keys_url": "https://lms.example.org/keys",
}


def course(name: str = "intro", **more: Any) -> dict[str, Any]:
    """A course of 36 with one of ten shares for each."""
    return {"name": name, "students": 36, "share": 0.1, "pool": "pool_a"} | more


def answer(*courses: dict[str, Any], **more: Any) -> Any:
    """Decide a site of two nodes with four GPUs of ten shares each."""
    everywhere = {"bedplate_courses": list(courses), "bedplate_schedulers": ["kueue"]} | more
    control_plane = host("cp1", ["control_plane"], everywhere)
    nodes = [host(f"n{n}", ["gpu_pools", "pool_a"], SHARED | everywhere) for n in (1, 2)]
    return decide(control_plane, *nodes)


def cluster(*courses: dict[str, Any], **more: Any) -> Cluster:
    """Return the cluster of a lock."""
    found = planned(answer(*courses, **more)).lock.cluster
    assert found is not None
    return found


def test_a_course_is_a_team_whose_quota_is_the_class() -> None:
    asked = course(
        hours=["Mon 10:00-12:00"],
        idle_timeout="2h",
        storage="2Gi",
        datasets=["mnist"],
        teachers=["ada"],
        members=["group:students", "ada"],
    )
    found = cluster(asked, bedplate_storage=HOMES)
    assert found.courses["intro"].model_dump(exclude_none=True) == {
        "students": 36,
        "share": {"resource": "nvidia.com/gpu", "count": 1, "user_mib": 1187, "user_part": 0.072},
        "notebook": {},
        "per_user": {"shares": 1},
        "pool": "pool_a",
        "then": [],
        "frameworks": [],
        "hours": ["Mon 10:00-12:00"],
        "idle_timeout_s": 7200,
        "storage_mib": 2048,
        "teachers": ["ada"],
        "members": ["group:students", "ada"],
        "datasets": ["mnist"],
    }
    team = found.teams["intro"]
    assert team.namespaces == ["intro"]
    assert team.members == ["ada"]
    assert team.gpus["pool_a"]["nvidia.com/gpu"].model_dump() == {"guaranteed": 36, "borrow": 0}


@pytest.mark.parametrize(
    ("hub", "sent"),
    [
        (None, "passwords and cookies"),
        ({"url": "http://hub.example.org"}, "passwords and cookies"),
        ({"sign_in": "lti", "lti": LTI}, "cookies"),
        ({"certificate": ".tls/hub.pem"}, None),
        ({"url": "https://hub.example.org"}, None),
    ],
)
def test_a_hub_by_plain_http_is_warned_of(hub: dict[str, Any] | None, sent: str | None) -> None:
    found = planned(answer(course(), **({"bedplate_hub": hub} if hub else {})))
    told = [str(one) for one in found.notices if "plain HTTP" in one.text]
    fix = "write bedplate_hub.certificate, or an https bedplate_hub.url where your own proxy "
    text = f"the hub answers by plain HTTP: {sent} travel unencrypted; {fix}ends TLS"
    assert told == ([text] if sent else [])


A100 = {"bedplate_gpu": {"model": "a100-sxm4-80gb", "count": 4}}


@pytest.mark.parametrize(
    ("sharing", "share", "told"),
    [
        ({"mode": "mig", "profile": "1g.10gb"}, {"gpus": 1}, True),
        ({"mode": "mps", "replicas": 4}, 0.25, True),
        ({"mode": "time-slicing", "replicas": 4}, 0.25, False),
        ({}, {"gpus": 1}, False),
    ],
)
def test_a_mode_in_which_idle_shares_are_not_seen_is_said(
    sharing: dict[str, Any], share: Any, told: bool
) -> None:
    courses = [course(students=4, share=share)]
    everywhere = {"bedplate_schedulers": ["kueue"], "bedplate_courses": courses}
    control_plane = host("cp1", ["control_plane"], everywhere)
    more = A100 | everywhere | {"bedplate_sharing": sharing}
    node = host("n1", ["gpu_pools", "pool_a"], more)
    found = [str(one) for one in planned(decide(control_plane, node)).notices if "idle" in one.text]
    text = (
        f"pool_a: {sharing.get('mode')}: idle shares cannot be measured: notebooks are idle by "
        "their kernels and programs, and usage has no idle GPU-hours (https://docs.nvidia.com/"
    )
    assert [one.startswith(text) for one in found] == ([True] if told else [])


def test_what_a_person_may_have_is_in_the_quota() -> None:
    """A notebook and a share on request for each of forty: the pool's eighty shares."""
    asked = course(students=40, per_user={"shares": 2, "time": "2h", "hours": 5})
    found = cluster(asked)
    limits = {"shares": 2, "time_s": 7200, "hours": 5}
    assert found.courses["intro"].per_user.model_dump() == limits
    quota = found.teams["intro"].gpus["pool_a"]["nvidia.com/gpu"]
    assert quota.model_dump() == {"guaranteed": 80, "borrow": 0}


@pytest.mark.parametrize(
    ("more", "rule", "fix"),
    [
        (
            {"bedplate_schedulers": ["volcano"]},
            "team-queue",
            "add kueue to bedplate_schedulers, or remove it",
        ),
        (
            {"bedplate_kubernetes": {"version": "1.35", "endpoint": "192.0.2.1:6443"}},
            "team-person",
            "take a newer bedplate_kubernetes.version, or remove it",
        ),
    ],
)
def test_hours_of_a_person_need_the_queues_records_and_names(
    more: dict[str, Any], rule: str, fix: str
) -> None:
    refusal = answer(course(per_user={"hours": 5}), **more)
    assert rules(refusal) == [rule]
    (problem,) = refusal.problems
    assert (problem.key, problem.fix) == ("bedplate_courses[0].per_user.hours", fix)


@pytest.mark.parametrize(
    ("homes", "lost"),
    [
        (None, True),
        ({"path": "/srv/homes", "shared": True}, False),
        ({"nfs": {"server": "nfs.example", "path": "/homes"}}, False),
    ],
)
def test_accounts_on_one_host_are_warned_of(*, homes: dict[str, Any] | None, lost: bool) -> None:
    found = planned(answer(course(), **({"bedplate_storage": {"homes": homes}} if homes else {})))
    told = [str(one) for one in found.notices if "accounts" in one.text]
    text = "the hub's accounts are on cp1 alone, and are lost with it; "
    fix = "write bedplate_storage.homes with nfs, or with shared: true"
    assert told == ([text + fix] if lost else [])


@pytest.mark.parametrize(("model", "reserve"), [("a100-pcie-80gb", 400), ("h100-pcie-80gb", 704)])
def test_a_framework_takes_what_was_measured_on_the_architecture(model: str, reserve: int) -> None:
    """A context grows with the GPU: an H100's takes half as much again as older figures say."""
    gpus = SHARED | {"bedplate_gpu": [{"model": model, "count": 4}]}
    everywhere = {"bedplate_courses": [course(frameworks=["pytorch"])]}
    everywhere["bedplate_schedulers"] = ["kueue"]
    control_plane = host("cp1", ["control_plane"], everywhere)
    node = host("n1", ["gpu_pools", "pool_a"], gpus | everywhere)
    found = planned(decide(control_plane, node)).lock.cluster
    assert found is not None
    assert found.courses["intro"].share.user_mib == 80 * 1024 * 92 // 100 // 10 - reserve


def test_the_hub_is_there_where_courses_are() -> None:
    assert cluster().hub is None
    hub = cluster(course()).hub
    assert hub is not None
    assert hub.sign_in == "native"
    urls = {key: f"https://id.example/{key}" for key in ("authorize", "token", "userdata")}
    oauth = {f"{key}_url": url for key, url in urls.items()} | {"client_id": "hub"}
    asked = {"sign_in": "oauth", "oauth": oauth}
    hub = cluster(bedplate_hub=asked).hub
    assert hub is not None
    assert hub.oauth is not None
    assert hub.oauth.token_url == urls["token"]


def test_a_courses_framework_is_decided_with_its_pool() -> None:
    lock = planned(answer(course(frameworks=["jax"]))).lock
    assert [build.name for build in lock.pools["pool_a"].frameworks] == ["jax"]


@pytest.mark.parametrize(
    ("asked", "rule", "words"),
    [
        ([course("kube-system")], "team-namespace", "kube-system, which is not a course's"),
        ([course(), course()], "team-namespace", "intro, the namespace of course intro"),
        ([course("vision")], "team-namespace", "vision, the namespace of team vision"),
        ([course("speech")], "team-namespace", "speech, the name of a team"),
        ([course(pool="pool_b")], "course-pool", "allowed pool_a"),
        ([course(frameworks=["jaxx"])], "framework-known", "write jax"),
        (
            [course(frameworks=["mycourse"])],
            "framework-known",
            "or add your own image mycourse to bedplate_images with pool: pool_a",
        ),
        ([course(datasets=["mnits"])], "course-data", "write mnist"),
    ],
)
def test_refused(asked: list[dict[str, Any]], rule: str, words: str) -> None:
    part = {"gpus": {"pool_a": {"guaranteed": 1}}}
    teams = {"vision": part, "speech": part | {"namespaces": ["talk"]}}
    storage = {"datasets": HOMES["datasets"]}
    refusal = answer(*asked, bedplate_teams=teams, bedplate_storage=storage)
    assert rules(refusal) == [rule]
    assert words in str(refusal.problems[0])


def test_a_registry_needs_the_hubs_certificate_and_its_size_is_counted() -> None:
    asked = course(registry={"size": "20Gi"})
    for hub in (None, {"url": "https://hub.example"}):
        refusal = answer(asked, **({"bedplate_hub": hub} if hub else {}))
        assert rules(refusal) == ["course-registry"]
        assert (
            "course's registry needs the hub's certificate — bedplate_courses[0].registry — got a "
            "registry, and a hub without a certificate / allowed a registry with https — write "
            "bedplate_hub.certificate, or remove registry"
        ) in str(refusal.problems[0])
    found = planned(answer(asked, bedplate_hub={"certificate": ".tls/hub.pem"}))
    assert found.lock.cluster is not None
    assert found.lock.cluster.courses["intro"].registry_mib == 20 * 1024
    (said,) = [one for one in found.notices if "registries" in one.text]
    assert said.text == "registries of intro have up to 20Gi, which is not reserved"
    assert said.hint == "have 20Gi free where the hub's accounts lie: with the homes, or on cp1"


def test_a_size_of_a_course_has_no_registry_of_its_own() -> None:
    size = {"name": "big", "share": 0.5, "at_once": 1}
    asked = Course.model_validate(course(registry={"size": "20Gi"}, sizes=[size]))
    assert [bool(one.course.registry) for one in listed([asked])] == [True, False]


def test_courses_need_queues_and_homes_a_place() -> None:
    assert rules(answer(course(), bedplate_schedulers=[])) == ["team-queue"]
    assert rules(answer(course(storage="2Gi"))) == ["course-data"]
