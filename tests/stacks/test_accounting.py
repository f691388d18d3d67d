"""The component of the recorder of usage."""

from __future__ import annotations

from bedplate.lock.courses import Course, Share
from bedplate.schedulers.accounting import Accounting, idle_of
from bedplate.schedulers.accounting_objects import objects
from tests.schedulers.locks import lock_of
from tests.schedulers.nodes import GPU
from tests.stacks.test_components import run

UNITS = {"pool-a": {"nvidia.com/gpu": 1.0}}
IDLE = {"intro": {"shares": 1800.0}, "lab": {"shares": 60.0}}


def test_the_records_stay_when_the_component_goes() -> None:
    args = {"python_image": "python:1", "units": UNITS, "idle": IDLE}
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


def test_it_ends_idle_shares_in_the_namespaces_of_courses_alone() -> None:
    bound = [one for one in objects("", UNITS, IDLE) if one["metadata"]["name"] == "bedplate-idle"]
    (role, *bindings) = bound
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["jobs"], ["list", "patch"])
    assert [(one["kind"], one["metadata"]["namespace"]) for one in bindings] == [
        ("RoleBinding", "intro"),
        ("RoleBinding", "lab"),
    ]
    everywhere = [one for one in objects("", UNITS, IDLE) if one["kind"] == "ClusterRole"]
    changing = [one for one in everywhere for rule in one["rules"] if "patch" in rule["verbs"]]
    assert changing == [role]


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
