"""The provider's gRPC contract, what comes after a create: read, diff and delete."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bedplate.provider import wire

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stacks.conftest import Engine
    from tests.stacks.world import World

Values = dict[str, Any]


def test_read_notices_a_node_that_left(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    engine.create("Node", node).result()
    assert engine.read("Node", node).id == "x"
    api = world.api
    del api["nodes"]["gpu-a"]
    world.write_api(api)
    time.sleep(1.1)  # one query of the API answers for a second
    assert engine.read("Node", node).id == ""


def test_delete_drains_resets_and_forgets(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    state = engine.create("ControlPlane", control_plane).result().properties
    engine.create("Node", node).result()
    engine.delete("Node", node)
    steps = (" drain gpu-a ", "gpu-a: kubeadm reset ", " delete node gpu-a ")
    order = [step for line in world.journal() for step in steps if step in line]
    assert order == list(steps)
    drained = world.journal(" drain ")[0]
    assert "drain gpu-a --ignore-daemonsets --delete-emptydir-data --force" in drained
    assert world.api["nodes"].keys() == {"cp1"}
    engine.delete("Node", node)  # what is gone already is fine
    assert len(world.journal("kubeadm reset")) == 1
    engine.delete("ControlPlane", wire.read(state))
    assert not (world.root("cp1") / "etc/kubernetes").exists()


def test_dead_host_is_only_forgotten_by_force(
    engine: Engine, world: World, site: Path, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    engine.create("Node", node).result()
    world.root("gpu-a").rename(world.directory / "gone")
    with pytest.raises(grpc.RpcError) as caught:
        engine.delete("Node", node)
    assert "gpu-a cannot be reached" in caught.value.details()
    assert "gpu-a" in world.api["nodes"]
    engine.configure(site, force="true")
    engine.delete("Node", node)
    assert "gpu-a" not in world.api["nodes"]
    assert world.journal(" drain ") == []


@pytest.mark.parametrize(
    ("upper", "workers", "expected"),
    [
        (
            ["namespace/courses", "runtimeclass/nvidia"],
            [],
            (
                "the cluster is still in use by the upper stacks — cluster at 192.0.2.1:6443 — got "
                "namespace/courses, runtimeclass/nvidia / allowed none of their resources — run "
                "pulumi destroy in stacks/frameworks, then in stacks/schedulers, first; or set "
                "BEDPLATE_FORCE=true to take them down with the cluster"
            ),
        ),
        (
            [],
            ["gpu-a"],
            (
                "the cluster still has workers — cluster at 192.0.2.1:6443 — got gpu-a / allowed "
                "control planes only — drain and delete those nodes first (pulumi destroy does it "
                "for its own), or set BEDPLATE_FORCE=true"
            ),
        ),
    ],
)
def test_cluster_refuses_to_go_while_it_is_used(
    engine: Engine,
    world: World,
    site: Path,
    control_plane: Values,
    upper: list[str],
    workers: list[str],
    expected: str,
) -> None:
    engine.create("ControlPlane", control_plane).result()
    api = world.api
    nodes = {**api["nodes"], **{name: {"control_plane": False} for name in workers}}
    world.write_api({**api, "upper": upper, "nodes": nodes})
    time.sleep(1.1)
    with pytest.raises(grpc.RpcError) as caught:
        engine.delete("ControlPlane", control_plane)
    assert caught.value.details() == expected
    engine.configure(site, force="true")
    engine.delete("ControlPlane", control_plane)
    assert world.journal("kubeadm reset")


def test_guard_refuses_before_anything_of_a_used_cluster_goes(
    engine: Engine, world: World, site: Path, control_plane: Values
) -> None:
    guard = {"host": control_plane["host"], "endpoint": control_plane["endpoint"]}
    engine.create("ControlPlane", control_plane).result()
    engine.create("DeletionGuard", guard).result()
    world.write_api({**world.api, "upper": ["namespace/courses"]})
    with pytest.raises(grpc.RpcError) as caught:
        engine.delete("DeletionGuard", guard)
    assert caught.value.details().startswith(
        "the cluster is still in use by the upper stacks — cluster at 192.0.2.1:6443 — got "
        "namespace/courses / allowed none of their resources — "
    )
    world.write_api({**world.api, "upper": []})
    engine.delete("DeletionGuard", guard)
    world.write_api({**world.api, "upper": ["namespace/courses"]})
    engine.configure(site, force="true")
    engine.delete("DeletionGuard", guard)


@pytest.mark.parametrize(
    ("path", "value", "replaces", "diffs"),
    [
        ("host.address", "elsewhere", [], ["host"]),
        ("host.name", "gpu-b", ["host"], ["host"]),
    ],
)
def test_diff_of_a_node(
    engine: Engine, node: Values, path: str, value: str, replaces: list[str], diffs: list[str]
) -> None:
    first, _, second = path.partition(".")
    news = {**node, first: {**node[first], second: value} if second else value}
    answer = engine.diff("Node", node, news)
    assert list(answer.replaces) == replaces
    assert list(answer.diffs) == diffs
    assert (answer.changes == answer.DIFF_NONE) == (not diffs)


def test_diff_refuses_what_a_living_cluster_cannot_change(
    engine: Engine, control_plane: Values
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        engine.diff("ControlPlane", control_plane, {**control_plane, "podSubnet": "10.0.0.0/16"})
    assert caught.value.details() == (
        "podSubnet cannot change while the cluster lives — ControlPlane cp1 — got 10.0.0.0/16 / "
        "allowed 10.244.0.0/16 — set it back, or run pulumi destroy and pulumi up for a new cluster"
    )


def test_members_have_the_runtime_that_they_were_made_with_to_the_end(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    crio = {"criSocket": "unix:///run/crio/crio.sock"}
    state = engine.create("ControlPlane", {**control_plane, **crio}).result().properties
    engine.create("Node", {**node, **crio}).result()
    with pytest.raises(grpc.RpcError) as caught:
        engine.diff("Node", {**node, **crio}, node)
    assert caught.value.details() == (
        "criSocket cannot change while the cluster lives — Node gpu-a — got "
        "unix:///run/containerd/containerd.sock / allowed unix:///run/crio/crio.sock — set it "
        "back, or run pulumi destroy and pulumi up for a new cluster"
    )
    engine.delete("Node", {**node, **crio})
    engine.delete("ControlPlane", wire.read(state))
    resets = world.journal("kubeadm reset")
    assert [line.rpartition("=")[2] for line in resets] == [crio["criSocket"]] * 2


@pytest.mark.parametrize("kind", ["ControlPlane", "Node"])
def test_diff_refuses_another_kubernetes_on_a_running_cluster(
    engine: Engine, world: World, control_plane: Values, node: Values, kind: str
) -> None:
    engine.create("ControlPlane", control_plane).result()
    engine.create("Node", node).result()
    its = {"ControlPlane": control_plane, "Node": node}[kind]
    name = its["host"]["name"]
    done = len(world.journal("kubeadm"))
    for wished, runs, fix in (
        ("1.37.0", "1.36.3", "run ansible-playbook bedplate.gpu.upgrade, then pulumi up again"),
        (
            "1.35.6",
            "1.36.3",
            (
                'Kubernetes is never downgraded: set bedplate_kubernetes.version: "1.36.3" and '
                "run bedplate plan"
            ),
        ),
        (
            "1.37.0",
            "an unknown version",
            "see that the cluster's API answers and knows the host, then run pulumi up again",
        ),
    ):
        if runs == "an unknown version":
            world.write_api({**world.api, "nodes": {}})
        with pytest.raises(grpc.RpcError) as caught:
            engine.diff(kind, its, {**its, "version": wished})
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == (
            f"the host does not run the lock's Kubernetes — {kind} {name} — "
            f"got {runs} / allowed {wished} — {fix}"
        )
        time.sleep(1.1)  # the nodes are asked for again
    assert len(world.journal("kubeadm")) == done


@pytest.mark.parametrize("kind", ["ControlPlane", "Node"])
def test_diff_takes_the_kubernetes_that_the_host_runs_already(
    engine: Engine, world: World, control_plane: Values, node: Values, kind: str
) -> None:
    engine.create("ControlPlane", control_plane).result()
    state = engine.create("Node", node).result().properties
    its = {"ControlPlane": control_plane, "Node": node}[kind]
    world.set(its["host"]["name"], runs="1.37.0")
    time.sleep(1.1)  # the nodes are asked for again
    news = {**its, "version": "1.37.0"}
    answer = engine.diff(kind, its, news)
    assert (list(answer.diffs), list(answer.replaces)) == (["version"], [])
    if kind == "Node":
        answer = engine.update("Node", state, news)
        assert wire.read(answer.properties)["version"] == "1.37.0"
        assert len(world.journal("kubeadm join --config")) == 1


def test_diff_of_the_same_kubernetes_contacts_nothing(
    engine: Engine, world: World, node: Values
) -> None:
    engine.diff("Node", node, {**node, "endpoint": "192.0.2.9:6443"})
    assert world.journal() == []


def test_lost_gpus_are_a_difference(engine: Engine, gpus: Values) -> None:
    assert list(engine.diff("GpuReady", {**gpus, "allocatable": 7}, gpus).diffs) == ["allocatable"]
    assert list(engine.diff("GpuReady", {**gpus, "allocatable": 8}, gpus).diffs) == []
