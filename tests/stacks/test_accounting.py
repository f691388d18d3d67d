"""The component of the recorder of usage."""

from __future__ import annotations

from bedplate.schedulers.accounting import Accounting
from bedplate.schedulers.accounting_objects import objects
from tests.stacks.test_components import run

UNITS = {"pool-a": {"nvidia.com/gpu": 1.0}}


def test_the_records_stay_when_the_component_goes() -> None:
    args = {"python_image": "python:1", "units": UNITS}
    engine, outputs = run(lambda: {"name": Accounting("usage", args).namespace})  # type: ignore[arg-type]
    assert outputs["name"] == ("bedplate-accounting", False)
    made = {kind.rpartition(":")[2] for kind in engine.seen}
    assert made == {one["kind"] for one in objects("", UNITS)}
    for kind, resources in engine.seen.items():
        assert all(one.retained == (kind == "kubernetes:core/v1:Namespace") for one in resources)
    deployment = engine.one("kubernetes:apps/v1:Deployment").inputs["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    (container,) = deployment["template"]["spec"]["containers"]
    assert container["image"] == "python:1"


def test_the_recorder_lists_pods_to_ask_the_readers_of_their_nodes() -> None:
    (role,) = [one for one in objects("", UNITS) if one["kind"] == "ClusterRole"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]} in role["rules"]


def test_pods_start_again_when_units_change() -> None:
    def digest(units: dict[str, dict[str, float]]) -> str:
        (found,) = [one for one in objects("", units) if one["kind"] == "Deployment"]
        return str(found["spec"]["template"]["metadata"]["annotations"])

    assert digest(UNITS) != digest({"pool-a": {"nvidia.com/gpu": 0.5}})
