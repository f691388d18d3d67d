"""Another machine takes the name of a host that is gone: control planes and workers alike."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bedplate.common import kubeconfig
from bedplate.lock.file import write_lock
from tests.schedulers.api import eventually
from tests.stacks.conftest import machine, start
from tests.stacks.locks import of_control_planes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stacks.conftest import Engine
    from tests.stacks.world import World

Values = dict[str, Any]
PLANES = ("cp1", "cp2", "cp3")
OURS = "# Managed by Bedplate (role control_plane_endpoint)."


@pytest.fixture
def others(control_plane: Values) -> dict[str, Values]:
    """Inputs of the control planes that are not the first by name."""
    return {
        name: {**control_plane, "host": machine(name), "join": machine("cp1")}
        for name in PLANES[1:]
    }


@pytest.fixture
def planes(
    site: Path, world: World, engine: Engine, control_plane: Values, others: dict[str, Values]
) -> Engine:
    """Start a cluster with three control planes."""
    write_lock(site, of_control_planes(PLANES, control_plane["endpoint"]))
    for name in others:
        world.add(name)
    for inputs in (control_plane, *others.values()):
        engine.create("ControlPlane", inputs).result()
    return engine


def dies(world: World, host: str) -> None:
    """Let a host answer no more, and the API notice it."""
    world.root(host).rename(world.directory / f"gone-{host}")
    world.write_api({**world.api, "gone": [host]})


def replaced(world: World, host: str, gpus: int = 0) -> None:
    """Put another machine in the place of a host."""
    dies(world, host)
    world.add(host, gpus=gpus)


def has_keepalived(world: World, host: str, text: str) -> None:
    """Put a configuration of keepalived on a host."""
    config = world.root(host) / "etc/keepalived/keepalived.conf"
    config.parent.mkdir(parents=True)
    config.write_text(text)


def began(world: World) -> list[str]:
    return world.journal("kubeadm init --config")


def test_the_first_by_name_joins_those_that_serve(
    planes: Engine, world: World, control_plane: Values, site: Path
) -> None:
    replaced(world, "cp1")
    assert planes.read("ControlPlane", control_plane).id == ""
    planes.create("ControlPlane", control_plane).result()
    assert len(began(world)) == 1
    assert world.journal("kubeadm join")[-1].startswith("cp1: ")
    assert world.members == [*PLANES]
    assert set(world.api["nodes"]) == {*PLANES}
    assert kubeconfig.path_in(site).exists()
    # It is the first by name as before, whatever brought it into the cluster.
    planes.create("ControlPlane", control_plane).result()
    assert len(began(world)) == 1
    assert len([line for line in world.journal("kubeadm join") if line.startswith("cp1")]) == 1


def test_another_one_takes_its_place_among_the_members(
    planes: Engine, world: World, others: dict[str, Values]
) -> None:
    replaced(world, "cp3")
    planes.create("ControlPlane", others["cp3"]).result()
    assert world.members == [*PLANES]
    removed = world.journal("member remove")
    assert len(removed) == 1
    assert removed[0].startswith("cp1: ")


def test_a_worker_takes_the_name_of_a_dead_one(planes: Engine, world: World, node: Values) -> None:
    planes.create("Node", node).result()
    replaced(world, "gpu-a", gpus=8)
    assert planes.read("Node", node).id == ""
    planes.create("Node", node).result()
    assert world.journal("delete node gpu-a")
    assert world.journal("etcdctl") == [] or "gpu-a" not in world.journal("etcdctl")[-1]


def test_a_machine_in_service_keeps_its_name(
    planes: Engine, world: World, node: Values, others: dict[str, Values]
) -> None:
    planes.create("Node", node).result()
    for name, kind, inputs in (
        ("gpu-a", "Node", node),
        ("cp3", "ControlPlane", others["cp3"]),
    ):
        world.root(name).rename(world.directory / f"runs-on-{name}")
        world.add(name)
        with pytest.raises(grpc.RpcError, match="another machine is in service under this name"):
            planes.create(kind, inputs).result()
        assert name in world.api["nodes"]
    assert world.members == [*PLANES]


@contextmanager
def forced(world: World, site: Path) -> Iterator[Engine]:
    """Another run, by force."""
    engine = start(world)
    engine.configure(site, force=True)
    yield engine
    engine.close()
    engine.process.terminate()
    engine.process.wait(timeout=120)


def test_no_new_cluster_while_those_with_the_old_one_are_silent(
    planes: Engine, world: World, control_plane: Values, site: Path
) -> None:
    replaced(world, "cp1")
    for name in PLANES[1:]:
        dies(world, name)
    with pytest.raises(grpc.RpcError, match="no answer from cp2, cp3, which may have the site's"):
        planes.create("ControlPlane", control_plane).result()
    assert len(began(world)) == 1
    with forced(world, site) as engine:
        engine.create("ControlPlane", control_plane).result()
    assert len(began(world)) == 2


def test_none_is_the_last_while_others_are_silent(
    planes: Engine, world: World, control_plane: Values, others: dict[str, Values], site: Path
) -> None:
    for name in PLANES[1:]:
        dies(world, name)
    with pytest.raises(grpc.RpcError, match="no answer from cp2, cp3"):
        planes.delete("ControlPlane", control_plane)
    assert world.journal("kubeadm reset") == []
    assert kubeconfig.path_in(site).exists()


def test_none_leaves_while_another_one_is_down(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    """Of three members one would be left, and no quorum."""
    dies(world, "cp2")
    with pytest.raises(grpc.RpcError, match=r"etcd could lose its quorum.*got cp2 not"):
        planes.delete("ControlPlane", others["cp3"])
    assert world.journal("kubeadm reset") == []
    write_lock(site, of_control_planes(PLANES[:1], others["cp3"]["endpoint"]))
    with forced(world, site) as engine:
        engine.delete("ControlPlane", others["cp3"])
    # The dead one, which is of the site no more, has left before it.
    removed, leaves = world.journal("member remove")
    steps = [removed, *world.journal(" drain cp3 "), leaves, *world.journal("kubeadm reset")]
    journal = world.journal()
    assert [*map(journal.index, steps)] == sorted(map(journal.index, steps))
    assert world.members == ["cp1"]


def test_none_leaves_that_etcd_cannot_spare(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    """A kubelet may be Ready above an etcd that is not; kubeadm would reset the host all the same.

    Nothing is gone then: the node takes pods again.
    """
    world.write_api({**world.api, "silent": ["cp2"]})
    has_keepalived(world, "cp3", OURS)
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    with pytest.raises(grpc.RpcError, match=r"etcd refuses to remove.*unhealthy"):
        planes.delete("ControlPlane", others["cp3"])
    assert world.journal("kubeadm reset") == []
    assert world.journal(" drain cp3 ")
    assert world.journal(" uncordon cp3")
    assert world.journal("keepalived")[-1] == "cp3: systemctl enable --now keepalived.service"
    world.write_api({**world.api, "silent": []})
    planes.delete("ControlPlane", others["cp3"])
    assert world.members == ["cp1", "cp2"]


@pytest.mark.parametrize(("hiccup", "still"), [("list", 2), ("remove", 3)])
def test_one_that_may_have_left_etcd_does_not_serve_again(
    planes: Engine,
    world: World,
    others: dict[str, Values],
    site: Path,
    hiccup: str,
    still: int,
) -> None:
    """etcd has removed it, or does so yet: pods on it would be lost with it."""
    has_keepalived(world, "cp3", OURS)
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    world.write_api({**world.api, "members": world.api["members"][:still], "hiccup": hiccup})
    with pytest.raises(grpc.RpcError, match=r"whether etcd has removed.*deadline exceeded"):
        planes.delete("ControlPlane", others["cp3"])
    assert world.journal(" drain cp3 ")
    assert world.journal(" uncordon cp3") == world.journal("kubeadm reset") == []
    assert world.journal("keepalived")[-1] == "cp3: systemctl disable --now keepalived.service"
    world.write_api({**world.api, "hiccup": ""})
    planes.delete("ControlPlane", others["cp3"])
    assert world.journal("cp3: kubeadm reset")


@pytest.mark.parametrize("again", ["cancel", "end"])
def test_one_stays_in_service_that_is_cancelled_as_it_gives_the_address_away(
    planes: Engine, world: World, others: dict[str, Values], site: Path, again: str
) -> None:
    """A second cancellation, or the engine's end, waits until both are returned."""
    has_keepalived(world, "cp3", OURS)
    world.set("cp3", keepalived_seconds=2)
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    with ThreadPoolExecutor() as beside:
        call = beside.submit(planes.delete, "ControlPlane", others["cp3"])
        eventually(lambda: world.journal("disable --now keepalived"))
        planes.cancel()
        eventually(lambda: world.journal("enable --now keepalived"))
        if again == "cancel":
            planes.cancel()
        else:
            planes.process.send_signal(signal.SIGINT)
            planes.process.wait(timeout=60)
        with pytest.raises(grpc.RpcError):
            call.result(timeout=60)
    assert world.journal("keepalived")[-1] == "cp3: systemctl enable --now keepalived.service"
    assert world.journal()[-1].endswith("uncordon cp3")


def test_an_address_that_was_given_away_earlier_is_returned(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    """The first run did not know whether etcd had removed it; to the second etcd says no."""
    has_keepalived(world, "cp3", OURS)
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    world.write_api({**world.api, "hiccup": "remove"})
    with pytest.raises(grpc.RpcError, match="whether etcd has removed"):
        planes.delete("ControlPlane", others["cp3"])
    world.write_api({**world.api, "hiccup": "", "silent": ["cp2"]})
    with pytest.raises(grpc.RpcError, match="etcd refuses to remove"):
        planes.delete("ControlPlane", others["cp3"])
    assert world.journal("keepalived")[-1] == "cp3: systemctl enable --now keepalived.service"
    # One that was stopped by hand may be no peer of the others any more.
    world.set("cp3", keepalived=False)
    with pytest.raises(grpc.RpcError, match="etcd refuses to remove"):
        planes.delete("ControlPlane", others["cp3"])
    assert world.journal("keepalived")[-1] == "cp3: systemctl is-active keepalived.service"
    assert len(world.journal(" uncordon cp3")) == 2


def test_one_stays_in_service_whose_drain_is_cancelled(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    world.write_api({**world.api, "drain_seconds": 600})
    with ThreadPoolExecutor() as beside:
        call = beside.submit(planes.delete, "ControlPlane", others["cp3"])
        eventually(lambda: world.journal(" drain cp3 "))
        planes.cancel()
        with pytest.raises(grpc.RpcError) as caught:
            call.result(timeout=60)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert world.journal()[-1].endswith("uncordon cp3")
    assert "cp3" in world.members


def test_one_leaves_by_force_where_no_api_is_left(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    del planes
    write_lock(site, of_control_planes(PLANES[:2], others["cp3"]["endpoint"]))
    world.write_api({**world.api, "away": 1000, "moves": 1000})
    with forced(world, site) as engine:
        engine.delete("ControlPlane", others["cp3"])
    assert world.journal("cp3: kubeadm reset")
    assert world.journal(" drain ") == world.journal("member remove") == []


def test_no_second_cluster_by_a_plan_of_new_control_planes(
    planes: Engine, world: World, control_plane: Values, site: Path
) -> None:
    """The old ones serve under another address, which nobody asks any more."""
    world.add("cp7")
    wished = {**control_plane, "host": machine("cp7"), "endpoint": "192.0.2.7:6443"}
    write_lock(site, of_control_planes(["cp7"], wished["endpoint"]))
    with pytest.raises(grpc.RpcError, match="a new cluster would be made while the site has one"):
        planes.create("ControlPlane", wished).result()
    assert len(began(world)) == 1
    with forced(world, site) as engine:
        engine.create("ControlPlane", wished).result()
    assert len(began(world)) == 2


def test_another_name_at_the_address_of_a_dead_one(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    dies(world, "cp3")
    world.add("cp4")
    world.set("cp4", address="cp3.example")
    write_lock(site, of_control_planes(["cp1", "cp2", "cp4"], others["cp3"]["endpoint"]))
    fresh = {**others["cp3"], "host": {**machine("cp4"), "address": "cp3.example"}}
    planes.create("ControlPlane", fresh).result()
    assert world.members == ["cp1", "cp2", "cp4"]
    # At its address the old name's resource finds the new one, which stays as it is.
    world.root("cp3").symlink_to(world.root("cp4"))
    planes.delete("ControlPlane", others["cp3"])
    assert world.journal(" drain cp3 ") == world.journal("kubeadm reset") == []
    assert world.members == ["cp1", "cp2", "cp4"]
    assert set(world.api["nodes"]) == {"cp1", "cp2", "cp4"}


def test_a_node_leaves_whose_machine_has_another_name_by_now(
    planes: Engine, world: World, node: Values
) -> None:
    """Where it is in service elsewhere, its address in the site is wrong."""
    planes.create("Node", node).result()
    world.add("gpu-z", gpus=8)
    planes.create("Node", {**node, "host": machine("gpu-z")}).result()
    world.root("gpu-a").rename(world.directory / "elsewhere")
    world.root("gpu-a").symlink_to(world.root("gpu-z"))
    with pytest.raises(grpc.RpcError, match="the node runs on another machine"):
        planes.delete("Node", node)
    assert "gpu-a" in world.api["nodes"]
    world.write_api({**world.api, "gone": ["gpu-a"]})
    planes.delete("Node", node)
    assert world.journal(" drain gpu-a ") == world.journal("kubeadm reset") == []
    assert set(world.api["nodes"]) == {*PLANES, "gpu-z"}


@pytest.mark.parametrize(
    ("endpoint", "own"),
    [
        ("192.0.2.1:6443", {"address": "192.0.2.1"}),
        # A name that leads to it alone.
        ("localhost:1", {"address": "127.0.0.1", "nodeIp": "::1"}),
    ],
)
def test_the_address_of_all_nodes_does_not_leave(
    engine: Engine, world: World, control_plane: Values, site: Path, endpoint: str, own: Values
) -> None:
    state = {**control_plane, "host": {**machine("cp1"), **own}, "endpoint": endpoint}
    write_lock(site, of_control_planes(PLANES[:2], endpoint))
    world.add("cp2")
    engine.create("ControlPlane", state).result()
    second = {**control_plane, "host": machine("cp2"), "endpoint": endpoint}
    engine.create("ControlPlane", {**second, "join": machine("cp1")}).result()
    write_lock(site, of_control_planes(["cp2"], endpoint))
    with pytest.raises(grpc.RpcError, match="endpoint is this control plane's own address"):
        engine.delete("ControlPlane", state)
    assert world.journal("kubeadm reset") == []


def test_one_that_goes_to_come_again_takes_part_in_the_address(
    planes: Engine, world: World, others: dict[str, Values]
) -> None:
    """As all do when a cluster is destroyed and made again."""
    has_keepalived(world, "cp3", OURS)
    planes.delete("ControlPlane", others["cp3"])
    verbs = [line.split()[2] for line in world.journal("keepalived.service")]
    assert verbs == ["is-active", "disable", "enable"]
    assert world.journal("kubeadm reset")


def test_a_dead_one_that_is_forgotten_leaves_etcd(
    planes: Engine, world: World, others: dict[str, Values], site: Path
) -> None:
    del planes
    dies(world, "cp3")
    with forced(world, site) as engine:
        engine.delete("ControlPlane", others["cp3"])
    assert world.members == ["cp1", "cp2"]
    assert "cp3" not in world.api["nodes"]


def test_the_first_by_name_leaves_as_any_other(
    planes: Engine, world: World, control_plane: Values, site: Path, node: Values
) -> None:
    """Its cluster stays where another one is in it, with its workers and all that uses it."""
    planes.create("Node", node).result()
    has_keepalived(world, "cp1", OURS)
    # The address is on it, and moves as it leaves.
    world.write_api({**world.api, "upper": ["namespace/courses"], "moves": 3})
    write_lock(site, of_control_planes(PLANES[1:], control_plane["endpoint"]))
    planes.delete("ControlPlane", control_plane)
    (drain,) = world.journal(" drain cp1 ")
    assert not drain.startswith("cp1: ")
    (leaves,), (moves,) = world.journal("member remove"), world.journal("disable --now keepalived")
    assert moves.startswith("cp1: ")
    steps = [drain, moves, leaves, *world.journal("cp1: kubeadm reset")]
    assert world.journal("enable --now keepalived") == []
    journal = world.journal()
    assert [*map(journal.index, steps)] == sorted(map(journal.index, steps))
    assert world.members == ["cp2", "cp3"]
    assert kubeconfig.path_in(site).exists()
    # The next by name is the first now, and goes on as what it is.
    first = {**control_plane, "host": machine("cp2")}
    planes.create("ControlPlane", first).result()
    assert len(began(world)) == 1
    guard = {"host": control_plane["host"], "endpoint": control_plane["endpoint"]}
    diff = planes.diff("DeletionGuard", guard, {**guard, "host": machine("cp2")})
    assert [*diff.diffs] == ["host"]
    assert [*diff.replaces] == []
