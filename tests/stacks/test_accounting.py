"""The component of the recorder of usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting.store import NAMESPACE
from bedplate.bill.needs import PYTHON, images_of
from bedplate.catalogue import load_catalogue
from bedplate.components.cluster import artifact
from bedplate.components.frameworks import hub_use
from bedplate.components.frameworks.accounting import Accounting, accounting_args, idle_of
from bedplate.components.schedulers.accounting_objects import objects
from bedplate.components.schedulers.kueue import person_limits
from bedplate.lock import load_lock
from bedplate.lock.courses import Course, PerUser, Share
from bedplate.pods.hub import node_use
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.stacks.locks import DEMO
from tests.stacks.test_components import run

if TYPE_CHECKING:
    from bedplate.accounting import ending
    from bedplate.accounting.hours import Limits

UNITS = {"pool-a": {"nvidia.com/gpu": 1.0}}
IDLE = {"intro": {"shares": 1800.0}, "lab": {"shares": 60.0}}


def test_the_records_stay_when_the_component_goes() -> None:
    args = {"python_image": "python:1", "units": UNITS, "idle": IDLE, "per_user": {}}
    engine, outputs = run(lambda: {"name": Accounting("usage", args).namespace})  # type: ignore[arg-type]
    assert outputs["name"] == ("bedplate-accounting", False)
    made = {kind.rpartition(":")[2] for kind in engine.seen}
    assert made == {one["kind"] for one in objects("", UNITS, IDLE)}
    for kind, resources in engine.seen.items():
        assert all(one.retained == (kind == "kubernetes:core/v1:Namespace") for one in resources)
    deployment = engine.one("kubernetes:apps/v1:Deployment").inputs["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    (container,) = deployment["template"]["spec"]["containers"]
    assert container["image"] == "python:1"


def test_the_recorder_lists_pods_to_ask_the_readers_of_their_nodes() -> None:
    (role,) = [one for one in objects("", UNITS) if one["kind"] == "ClusterRole"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]} in role["rules"]


@pytest.mark.parametrize(
    ("idle", "name", "changes"),
    [
        (IDLE, "bedplate-idle", {"jobs": ["list", "patch"], "events": ["create"]}),
        (
            {"lab": {"jobs": 60.0}, "intro": {"jobs": 60.0}, "remote-lab": {"claims": 60.0}},
            "bedplate-idle-jobs",
            {
                "jobsets": ["list", "patch"],
                "pods": ["list", "patch"],
                "deployments": ["list", "patch"],
                "replicasets": ["get"],
                "workloads": ["patch"],
                "remoteclaims": ["get", "patch"],
            },
        ),
    ],
)
def test_it_ends_what_is_idle_in_the_namespaces_that_say_so_alone(
    idle: ending.Limits, name: str, changes: dict[str, list[str]]
) -> None:
    found = objects("", UNITS, idle)
    (role, *bindings) = [one for one in found if one["metadata"]["name"] == name]
    assert {of: rule["verbs"] for rule in role["rules"] for of in rule["resources"]} == changes
    assert [(one["kind"], one["metadata"]["namespace"]) for one in bindings] == [
        ("RoleBinding", "intro"),
        ("RoleBinding", "lab"),
    ]
    everywhere = [one for one in found if one["kind"] == "ClusterRole"]
    changing = [one for one in everywhere for rule in one["rules"] if "patch" in rule["verbs"]]
    assert {one["metadata"]["name"] for one in changing} == {name}


def test_a_site_without_a_hub_has_recorder_and_readers_where_a_team_has_an_idle_time() -> None:
    lock = lock_of({"pool_a": [{}]}, {"vision": {"gpus": {"pool_a": (1, 0)}}})
    cluster = lock.cluster
    assert cluster is not None
    assert not cluster.usage
    catalogue = load_catalogue()
    known = {one.needed_by for _, one in images_of(lock, catalogue)}
    assert PYTHON not in known
    team = cluster.teams["vision"].model_copy(update={"idle_timeout_s": 900})
    lock = lock.model_copy(
        update={"cluster": cluster.model_copy(update={"teams": {"vision": team}})}
    )
    added = {one.needed_by for _, one in images_of(lock, catalogue)} - known
    assert added == {PYTHON}, "its Python, and no proxy"
    times = {"shares": 900, "jobs": 900}
    assert idle_of(lock) == {"vision": times, "remote-vision": {"claims": 900}}
    readers = hub_use.for_recorder(lock, "python:1")
    args = {"python_image": "python:1", "units": UNITS, "idle": {}, "readers": readers}
    engine, _ = run(lambda: {"name": Accounting("usage", args).namespace})  # type: ignore[arg-type]
    (daemon,) = engine.seen["kubernetes:apps/v1:DaemonSet"]
    assert daemon.inputs["metadata"]["namespace"] == node_use.USE
    # Nobody but the recorder lists them, by what it may do in all namespaces.
    roles = engine.seen["kubernetes:rbac.authorization.k8s.io/v1:Role"]
    assert [one.inputs["metadata"]["namespace"] for one in roles] == [NAMESPACE]


@pytest.mark.parametrize("course", [False, True])
def test_readers_come_with_the_recorder_unless_a_courses_hub_brings_them(
    monkeypatch: pytest.MonkeyPatch, *, course: bool
) -> None:
    """A site may have settings of a hub before its first course: the stack makes no hub then."""
    monkeypatch.setattr(artifact, "image", lambda *_: "python:1")
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    assert lock.cluster.hub is not None
    if not course:
        cluster = lock.cluster.model_copy(update={"courses": {}})
        lock = lock.model_copy(update={"cluster": cluster})
    args = accounting_args(DEMO, lock)
    assert args is not None
    assert bool(args["readers"]) is not course


def test_it_lets_requests_in_in_the_namespaces_of_teams_with_a_limit_alone() -> None:
    """Those of remote claims come with them, and so do its rights there."""
    teams = {
        "vision": {"gpus": {"pool_a": (4, 0)}, "per_user": {"gpus": 2}, "namespaces": ["x", "y"]},
        "audio": {"gpus": {"pool_a": (4, 0)}},
    }
    limits = person_limits.by_namespace(lock_of({"pool_a": [{}]}, teams).teams)
    assert limits == dict.fromkeys(("x", "y", "remote-vision"), ("vision", 2))
    every = objects("", UNITS, None, limits)
    (role, *bindings) = [one for one in every if one["metadata"]["name"] == "bedplate-turns"]
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["workloads"], ["patch"])
    assert [one["metadata"]["namespace"] for one in bindings] == ["x", "y"]


def test_the_hub_reads_who_has_used_up_the_hours_of_a_course() -> None:
    """Of a team nobody but the recorder reads them. Of a course its sizes are counted with it."""
    teams = {"vision": {"gpus": {"pool_a": (4, 0)}, "per_user": {"hours": 40}}}
    lock = lock_of({"pool_a": [{}]}, teams)
    course = Course(
        students=1,
        share=Share(resource=GPU, count=1),
        pool="pool_a",
        idle_timeout_s=900,
        per_user=PerUser(hours=5),
    )
    courses = {"intro": course, "intro-large": course.model_copy(update={"of": "intro"})}
    with_courses = lock.model_copy(
        update={"cluster": lock.cluster.model_copy(update={"courses": courses})}  # type: ignore[union-attr]
    )
    limits = person_limits.hours(with_courses)
    assert limits == {"intro": ("intro", 5), "intro-large": ("intro", 5), "vision": ("vision", 40)}

    def role(hours: Limits) -> list[Any]:
        every = objects("", UNITS, None, person_limits.by_namespace(lock.teams), hours)
        return [one for one in every if one["metadata"]["name"] == "bedplate-accounting-hours"]

    assert role(person_limits.hours(lock)) == []
    of, binding = role(limits)
    (rule,) = of["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["hours"], ["get"])
    assert of["metadata"]["namespace"] == NAMESPACE
    assert binding["subjects"][0]["name"] == "system:serviceaccount:bedplate-hub:hub"


def test_idle_times_are_those_of_courses() -> None:
    lock = lock_of({"pool_a": [{}]}, {"vision": {"gpus": {"pool_a": (1, 0)}}})
    course = Course(
        students=1, share=Share(resource=GPU, count=1), pool="pool_a", idle_timeout_s=900
    )
    cluster = lock.cluster.model_copy(update={"courses": {"intro": course}})  # type: ignore[union-attr]
    assert idle_of(lock) == {}
    assert idle_of(lock.model_copy(update={"cluster": cluster})) == {"intro": {"shares": 900}}


def test_pods_start_again_when_units_or_idle_times_change() -> None:
    def digest(units: dict[str, dict[str, float]], idle: dict[str, dict[str, float]]) -> str:
        (found,) = [one for one in objects("", units, idle) if one["kind"] == "Deployment"]
        return str(found["spec"]["template"]["metadata"]["annotations"])

    assert digest(UNITS, IDLE) != digest({"pool-a": {"nvidia.com/gpu": 0.5}}, IDLE)
    assert digest(UNITS, IDLE) != digest(UNITS, {"intro": {"shares": 60.0}})
