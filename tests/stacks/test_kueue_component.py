"""The Kueue component under Pulumi's mocks: order, names, and what stays when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers.kueue import Kueue, KueueArgs
from tests.schedulers.locks import lock_of, queues_of
from tests.stacks.test_components import Engine, run

if TYPE_CHECKING:
    import pulumi

IMAGE = "registry.k8s.io/kueue/kueue:v0.19.2@sha256:" + "a" * 64


@pytest.fixture
def up() -> tuple[Engine, Any]:
    """Register the component for two teams."""
    lock = lock_of(
        {"pool_a": [{}]},
        {"b": {"gpus": {"pool_a": (4, None)}}, "a": {"gpus": {"pool_a": (2, 0)}}},
    )

    def program() -> dict[str, pulumi.Output[Any]]:
        chart = "charts/kueue-0.19.2.tgz"
        args: KueueArgs = {"chart": chart, "image": IMAGE, "queues": queues_of(lock)}
        return {"queues": Kueue("kueue", args).queues}

    return run(program)


def test_the_chart_is_the_given_one_and_its_image_by_digest(up: tuple[Engine, Any]) -> None:
    engine, outputs = up
    release = engine.one("kubernetes:helm.sh/v3:Release").inputs
    assert release["chart"] == "charts/kueue-0.19.2.tgz"
    assert (release["name"], release["namespace"], release["atomic"]) == (
        "kueue",
        "kueue-system",
        True,
    )
    image = release["values"]["controllerManager"]["manager"]["image"]
    assert f"{image['repository']}:{image['tag']}" == IMAGE
    assert outputs["queues"] == (["a", "b"], False)


def test_queues_come_after_the_release_and_their_namespace(up: tuple[Engine, Any]) -> None:
    engine, _ = up
    queues = engine.seen["kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"]
    assert {one.name for one in queues} == {
        "kueue-localqueue-a-default",
        "kueue-localqueue-b-default",
    }
    for one in queues:
        namespace = one.inputs["metadata"]["namespace"]
        assert {"kueue-release", f"kueue-namespace-{namespace}"} <= one.depends_on
    policies = engine.seen[
        "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"
    ]
    assert all("kueue-release" in one.depends_on for one in policies)


def test_namespaces_stay_when_the_stack_goes(up: tuple[Engine, Any]) -> None:
    engine, _ = up
    for kind, resources in engine.seen.items():
        for one in resources:
            assert one.retained == (kind == "kubernetes:core/v1:Namespace"), one.name


def test_the_webhooks_are_asked_about_gpus_once_they_are_there(up: tuple[Engine, Any]) -> None:
    engine, _ = up
    kind = "kubernetes:admissionregistration.k8s.io/v1:MutatingWebhookConfigurationPatch"
    (patch,) = engine.seen[kind]
    assert "kueue-release" in patch.depends_on
    assert patch.inputs["metadata"]["name"] == "kueue-mutating-webhook-configuration"
    asked = {one["name"]: one["matchConditions"] for one in patch.inputs["webhooks"]}
    assert set(asked) == {"mpod.kb.io", "mjob.kb.io", "mdeployment.kb.io", "mstatefulset.kb.io"}
    assert all("nvidia.com/" in one["expression"] for (one,) in asked.values())
