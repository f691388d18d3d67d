"""The first control plane is gone: workers join, are drained and leave through another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bedplate.lock.file import write_lock
from bedplate.portable import encryption_keys
from bedplate.provider import on_host
from tests.stacks.conftest import machine
from tests.stacks.locks import of_control_planes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stacks.conftest import Engine
    from tests.stacks.world import World

Values = dict[str, Any]
# In this order they are asked: the second is a host of the lock that has not joined.
PLANES = ("cp1", "cp2", "cp3", "cp4")


@pytest.fixture
def second(control_plane: Values) -> Values:
    """Inputs of another control plane, which is not the next by name."""
    return {**control_plane, "host": machine("cp3"), "join": machine("cp1")}


@pytest.fixture
def planes(
    site: Path, world: World, engine: Engine, control_plane: Values, second: Values
) -> Engine:
    """Start a cluster with two of the lock's control planes; a third waits, a fourth is off."""
    write_lock(site, of_control_planes(PLANES, control_plane["endpoint"]))
    for name in PLANES[1:]:
        world.add(name)
    engine.create("ControlPlane", control_plane).result()
    engine.create("ControlPlane", second).result()
    dies(world, "cp4")
    return engine


def dies(world: World, host: str) -> None:
    """Let a host answer no more."""
    world.root(host).rename(world.directory / f"gone-{host}")


def test_a_worker_comes_and_goes_through_another(
    planes: Engine, world: World, node: Values, gpus: Values
) -> None:
    dies(world, "cp1")
    planes.create("Node", node).result()
    *_, invited = world.journal("token create")
    assert invited.startswith("cp3: ")
    assert planes.create("GpuReady", gpus).result()
    assert planes.read("Node", node).id == "x"
    planes.delete("Node", node)
    (drain,) = world.journal(" drain gpu-a ")
    assert drain.startswith("cp3: ")
    assert "gpu-a" not in world.api["nodes"]


def test_one_that_leaves_is_not_asked_to_drain_itself(
    planes: Engine, world: World, second: Values
) -> None:
    dies(world, "cp1")
    with pytest.raises(grpc.RpcError, match="no answer from cp1, cp4"):
        planes.delete("ControlPlane", second)
    assert world.journal("kubeadm reset") == []
    assert "cp3" in world.api["nodes"]


def test_another_joins_through_one_that_answers(
    planes: Engine, world: World, second: Values
) -> None:
    dies(world, "cp1")
    planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
    assert world.api["nodes"]["cp2"]["control_plane"]
    assert [line.partition(":")[0] for line in world.journal("upload-certs")][-1] == "cp3"


def test_the_guard_asks_another(planes: Engine, world: World, control_plane: Values) -> None:
    dies(world, "cp1")
    guard = {"host": control_plane["host"], "endpoint": control_plane["endpoint"]}
    world.write_api({**world.api, "upper": ["namespace/courses"]})
    with pytest.raises(grpc.RpcError, match="still in use by the upper stacks"):
        planes.delete("DeletionGuard", guard)
    world.write_api({**world.api, "upper": []})
    planes.delete("DeletionGuard", guard)


def test_none_answers(planes: Engine, world: World, node: Values) -> None:
    for name in ("cp1", "cp3"):
        dies(world, name)
    with pytest.raises(grpc.RpcError, match="cp1 cannot be reached"):
        planes.create("Node", node).result()


def test_a_control_plane_of_no_lock_is_asked_alone(
    planes: Engine, world: World, site: Path, node: Values
) -> None:
    """Nobody knows that the site's hosts are of the same cluster."""
    write_lock(site, of_control_planes(PLANES[1:], node["endpoint"]))
    dies(world, "cp1")
    with pytest.raises(grpc.RpcError, match="cp1 cannot be reached"):
        planes.create("Node", node).result()


def test_a_control_plane_of_another_cluster_is_not_asked(
    planes: Engine, world: World, site: Path, node: Values
) -> None:
    """A host may have come into the site before it has left its old cluster."""
    write_lock(site, of_control_planes(PLANES, "192.0.2.9:6443"))
    dies(world, "cp1")
    with pytest.raises(grpc.RpcError, match="cp1 cannot be reached"):
        planes.create("Node", node).result()
    assert [line for line in world.journal("token create") if line.startswith("cp3")] == []


def test_one_that_lost_its_disk_does_not_speak_for_the_cluster(
    planes: Engine, world: World, node: Values
) -> None:
    """A refresh would drop every node, and one that leaves would not be drained."""
    planes.create("Node", node).result()
    dies(world, "cp1")
    world.add("cp1")
    assert planes.read("Node", node).id == "x"
    planes.delete("Node", node)
    (drain,) = world.journal(" drain gpu-a ")
    assert drain.startswith("cp3: ")


def test_all_have_the_key_that_secrets_are_encrypted_with_and_no_state_has_it(
    planes: Engine, world: World, second: Values
) -> None:
    """kubeadm does not copy it; without it an API server could not read what the others wrote."""
    (key,) = encryption_keys.read((world.root("cp1") / on_host.ENCRYPTION).read_text())
    for name in ("cp2", "cp3"):
        if name == "cp2":
            planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
        path = world.root(name) / on_host.ENCRYPTION
        assert encryption_keys.read(path.read_text()) == [key]
        assert path.stat().st_mode & 0o777 == 0o600
    assert key.secret not in repr(planes.read("ControlPlane", second))


def test_one_joins_a_cluster_whose_secrets_are_not_encrypted(
    planes: Engine, world: World, second: Values
) -> None:
    """An older Bedplate has made it, without the option."""
    for name in ("cp1", "cp3"):
        (world.root(name) / on_host.ENCRYPTION).unlink()
    planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
    assert not (world.root("cp2") / on_host.ENCRYPTION).exists()


def test_none_joins_where_the_key_is_gone(planes: Engine, world: World, second: Values) -> None:
    (world.root("cp1") / on_host.ENCRYPTION).unlink()
    manifest = world.root("cp1") / on_host.API_SERVER
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(f"- --{encryption_keys.OPTION}={encryption_keys.FILE}\n")
    with pytest.raises(grpc.RpcError, match="the key of Secrets is gone"):
        planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
    assert world.journal("kubeadm join cp2") == []
    assert "cp2" not in world.api["nodes"]


def test_a_key_that_was_replaced_meanwhile_is_named(
    planes: Engine, world: World, second: Values
) -> None:
    planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
    text = encryption_keys.written([encryption_keys.named(2, encryption_keys.fresh())])
    (world.root("cp1") / on_host.ENCRYPTION).write_text(text)
    with pytest.raises(
        grpc.RpcError, match="was replaced while it came into the cluster: it has key1-"
    ):
        planes.create("ControlPlane", {**second, "host": machine("cp2")}).result()
