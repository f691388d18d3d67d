"""Packing's component."""

from __future__ import annotations

from bedplate.components.schedulers.packing import Packing
from bedplate.components.schedulers.packing_objects import objects
from tests.stacks.test_components import run

ARGS = {"scheduler_image": "scheduler:1", "python_image": "python:1", "nodes": {"b": 4, "a": 8}}


def test_the_component_makes_the_documents_and_labels_the_nodes() -> None:
    engine, outputs = run(lambda: {"name": Packing("packing", ARGS).scheduler})  # type: ignore[arg-type]
    assert outputs["name"] == ("bedplate-packing", False)
    made = {kind.rpartition(":")[2] for kind in engine.seen}
    assert made == {one["kind"] for one in objects("", "")} | {"NodePatch"}
    labels = [
        (one.inputs["metadata"]["name"], one.inputs["metadata"]["labels"], one.retained)
        for one in engine.seen["kubernetes:core/v1:NodePatch"]
    ]
    assert labels == [
        ("a", {"bedplate.io/packed-gpus": "8"}, True),
        ("b", {"bedplate.io/packed-gpus": "4"}, True),
    ]
    deployment = engine.one("kubernetes:apps/v1:Deployment").inputs["spec"]
    images = [one["image"] for one in deployment["template"]["spec"]["containers"]]
    assert (deployment["replicas"], images) == (2, ["scheduler:1", "python:1"])


def test_pods_start_again_when_their_configuration_changes() -> None:
    def digest(python: str) -> str:
        (found,) = [one for one in objects("", python) if one["kind"] == "Deployment"]
        return str(found["spec"]["template"]["metadata"]["annotations"])

    assert digest("a") == digest("b"), "the image is no part of it"
    assert "bedplate.io/configuration" in digest("a")
