"""The provider's gRPC contract: a client against the real server process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bedplate.provider import wire
from tests.schedulers.api import eventually
from tests.stacks.conftest import REPOSITORY, Engine, half_made, machine, start
from tests.stacks.world import ENVIRONMENT, World

if TYPE_CHECKING:
    from pathlib import Path

Values = dict[str, Any]


def test_check_reports_every_failure_with_its_path(engine: Engine, node: Values) -> None:
    node["host"] = {"name": "GPU_A", "address": "", "port": 70000}
    node["version"] = "1.36"
    node["colour"] = "blue"
    del node["endpoint"]
    found = engine.check("Node", node)
    assert sorted(found) == [
        "colour",
        "endpoint",
        "host.address",
        "host.name",
        "host.port",
        "version",
    ]
    assert found["host.name"] == (
        "wrong value — Node.host.name — got 'GPU_A' / allowed a node name of up to 63 "
        "lower-case letters, digits, '-' and '.' — correct `host.name`"
    )
    assert found["colour"] == (
        "unknown input — Node.colour — got colour / allowed controlPlane, criSocket, endpoint, "
        "host, ignorePreflight, labels, taints, version — remove or rename it"
    )


def test_check_does_not_judge_what_is_not_known_yet(engine: Engine, node: Values) -> None:
    node["controlPlane"] = wire.UNKNOWN
    node["host"]["port"] = wire.UNKNOWN
    assert engine.check("Node", node) == {}


def test_preview_contacts_nothing(engine: Engine, world: World, control_plane: Values) -> None:
    answer = engine.create("ControlPlane", control_plane, preview=True).result()
    outputs = wire.read(answer.properties)
    assert outputs["host"] == control_plane["host"]
    assert outputs["kubeconfig"] is wire.UNKNOWN
    assert "kubeconfig" in wire.secret_keys(answer.properties)
    assert world.journal() == []


def test_control_plane_hides_its_kubeconfig_and_keeps_it_for_its_owner(
    engine: Engine, world: World, site: Path, control_plane: Values
) -> None:
    answer = engine.create("ControlPlane", control_plane).result()
    assert answer.id == "cp1"
    assert "kubeconfig" in wire.secret_keys(answer.properties)
    assert "Geheimnis" in wire.read(answer.properties)["kubeconfig"]
    path = site / ".bedplate/kubeconfig"
    assert "Geheimnis" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert world.journal("systemctl enable kubelet")


def test_control_plane_is_adopted(engine: Engine, world: World, control_plane: Values) -> None:
    first = engine.create("ControlPlane", control_plane).result()
    second = engine.create("ControlPlane", control_plane).result()
    assert first.properties == second.properties
    assert len(world.journal("kubeadm init --config")) == 1


def test_a_control_plane_takes_pods_as_the_site_says_and_changes_its_mind(
    engine: Engine, world: World, control_plane: Values
) -> None:
    """kubeadm registers the node without the taint; a living node gets or loses it by kubectl."""
    own = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    made = engine.create("ControlPlane", {**control_plane, "taint": False}).result()
    assert world.api["nodes"]["cp1"]["taints"] == []
    assert world.journal("kubectl --kubeconfig=/etc/kubernetes/admin.conf taint") == []
    difference = engine.diff("ControlPlane", {**control_plane, "taint": False}, control_plane)
    assert (list(difference.diffs), list(difference.replaces)) == (["taint"], [])
    api = world.api
    api["nodes"]["cp1"]["taints"] = [{"key": "another", "effect": "NoSchedule"}]
    world.write_api(api)
    engine.update("ControlPlane", made.properties, {**control_plane, "taint": True})
    assert world.api["nodes"]["cp1"]["taints"] == [{"key": "another", "effect": "NoSchedule"}, *own]
    engine.update("ControlPlane", made.properties, {**control_plane, "taint": False})
    assert world.api["nodes"]["cp1"]["taints"] == [{"key": "another", "effect": "NoSchedule"}]
    assert len(world.journal("kubeadm init --config")) == 1


def test_foreign_cluster_is_refused_and_left_alone(
    engine: Engine, world: World, control_plane: Values
) -> None:
    folder = world.root("cp1") / "etc/kubernetes"
    folder.mkdir(parents=True)
    (folder / "admin.conf").write_text("not managed by Bedplate")
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("ControlPlane", control_plane).result()
    assert caught.value.details() == (
        "cp1: this host already carries a Kubernetes cluster that bedplate did not make "
        "(admin.conf): run `kubeadm reset` there if it may go, or use another host"
    )
    assert world.journal("kubeadm reset") == []


def test_joins_run_at_the_same_time(engine: Engine, world: World, control_plane: Values) -> None:
    engine.create("ControlPlane", control_plane).result()
    names = [f"w{number}" for number in range(6)]
    for name in names:
        world.add(name)
        world.set(name, joins_together=len(names))  # none ends before all have begun
    calls = [
        engine.create(
            "Node",
            {
                "host": machine(name),
                "controlPlane": machine("cp1"),
                "version": "1.36.3",
                "endpoint": "192.0.2.1:6443",
            },
        )
        for name in names
    ]
    assert [call.result().id for call in calls] == names
    assert len(world.journal("token create")) == 1


def test_two_creates_of_one_host_join_once(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    world.set("gpu-a", join_seconds=1)
    for call in [engine.create("Node", node) for _ in range(3)]:
        call.result()
    assert len(world.journal("gpu-a: kubeadm join")) == 1


def test_killed_in_mid_join_and_run_again_joins_once(
    engine: Engine, world: World, site: Path, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    world.set("gpu-a", join_seconds=2)
    doomed = start(world)
    doomed.configure(site)
    call = doomed.create("Node", node)  # kept: a call that nobody holds is cancelled
    eventually(lambda: world.journal("gpu-a: kubeadm join"))
    doomed.process.kill()
    doomed.process.wait()
    assert call.exception() is not None
    assert engine.create("Node", node).result().id == "gpu-a"
    assert len(world.journal("gpu-a: kubeadm join")) == 1
    assert world.journal("gpu-a: kubeadm reset") == []


def test_half_joined_host_is_reset_and_joined(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    world.set(
        "gpu-a",
        fail="error execution phase kubelet-start: timed out",
        iptables=(
            "*nat\n:KUBE-SERVICES - [0:0]\n:MINE - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT"
        ),
    )
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("Node", node).result()
    assert caught.value.details() == (
        "gpu-a: `kubeadm join` ended with status 1: error execution phase kubelet-start: timed out"
    )
    world.set("gpu-a", fail="")
    engine.create("Node", node).result()
    assert len(world.journal("gpu-a: kubeadm reset --force")) == 1
    kept = (world.root("gpu-a") / "iptables-restore.txt").read_text()
    assert kept == "*nat\n:MINE - [0:0]\nCOMMIT\n"


def test_wrong_version_on_the_host_is_refused(
    engine: Engine, world: World, control_plane: Values
) -> None:
    world.set("cp1", version="1.35.0")
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("ControlPlane", control_plane).result()
    assert caught.value.details() == (
        "cp1: kubeadm on this host is 1.35.0, the lock says 1.36.3: "
        "run ansible-playbook bedplate.gpu.site "
        "for this host, then pulumi up"
    )


def test_node_that_is_not_ready_stays_in_state_and_is_finished_by_update(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    world.set("gpu-a", not_ready="cni plugin not initialized")
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("Node", node, timeout=15).result()
    detail = half_made(caught.value)
    assert detail.id == "gpu-a"
    assert list(detail.reasons) == [
        "node gpu-a is not Ready: KubeletNotReady: cni plugin not initialized"
    ]
    assert wire.read(detail.inputs) == node
    world.set("gpu-a", not_ready="")
    engine.update("Node", detail.properties, node)
    assert len(world.journal("gpu-a: kubeadm join")) == 1


def test_missing_gpus_leave_the_plugins_last_words(
    engine: Engine, world: World, control_plane: Values, node: Values, gpus: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    words = "E1121 main.go:173] error starting plugins: nvml: Driver/library version mismatch"
    plugin = {"attempts": 3, "state": "CONTAINER_EXITED", "log": words}
    world.set("gpu-a", gpus=0, plugin=plugin | {"restarts": True})
    engine.create("Node", node).result()
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("GpuReady", gpus, timeout=600).result()
    assert time.monotonic() - began < 300, "a plugin that ended once more is not waited for"
    detail = half_made(caught.value)
    assert list(detail.reasons) == [
        "gpu-a offers 0 nvidia.com/gpu, the lock expects 8",
        "nvidia-device-plugin on gpu-a is exited (attempt 5), its last log lines:\n" + words,
    ]
    # Mended now, and kubelet's back-off still runs: what ended before is no reason to give up.
    world.set("gpu-a", plugin=plugin | {"attempts": 5})
    threading.Timer(4, world.set, ["gpu-a"], {"gpus": 8}).start()  # some looks later
    mended = engine.update("GpuReady", detail.properties, gpus, timeout=600)
    assert wire.read(mended.properties)["allocatable"] == 8


def test_gpus_of_a_dra_driver_are_the_devices_that_it_has_published(
    engine: Engine, world: World, control_plane: Values, node: Values, gpus: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    engine.create("Node", node).result()
    by_claim = gpus | {"resource": "gpu.nvidia.com"}
    # The extended resource stays at what it was, and says nothing of a DRA driver's node.
    words = "failed to initialize NVML: Unknown Error"
    world.set("gpu-a", gpus=8, devices=3, driver_log=words)
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("GpuReady", by_claim, timeout=4).result()
    detail = half_made(caught.value)
    assert list(detail.reasons) == [
        "gpu-a offers 3 gpu.nvidia.com, the lock expects 8",
        f"bedplate-dra-driver.service on gpu-a, its last log lines:\n{words}",
    ]
    threading.Timer(3, world.set, ["gpu-a"], {"devices": 8}).start()
    mended = engine.update("GpuReady", detail.properties, by_claim, timeout=600)
    assert wire.read(mended.properties)["allocatable"] == 8


def test_gpus_of_a_node_that_takes_no_pods_yet_are_waited_for(
    engine: Engine, world: World, control_plane: Values, gpus: Values
) -> None:
    """kubelet offers them before the network is there: a pod that asks for them would not start."""
    engine.create("ControlPlane", control_plane).result()
    name = gpus["host"]["name"]
    api = world.api
    api["nodes"][name] = {"control_plane": False, "taints": []}
    world.write_api(api)
    world.set(name, gpus=gpus["count"], not_ready="cni plugin not initialized")
    with pytest.raises(grpc.RpcError) as caught:
        engine.create("GpuReady", gpus, timeout=3).result()
    assert list(half_made(caught.value).reasons) == [
        f"node {name} is not Ready: KubeletNotReady: cni plugin not initialized"
    ]
    world.set(name, not_ready="")
    assert engine.create("GpuReady", gpus).result().id


def test_cancel_ends_the_wait_and_keeps_the_node(
    engine: Engine, world: World, control_plane: Values, node: Values
) -> None:
    engine.create("ControlPlane", control_plane).result()
    world.set("gpu-a", not_ready="no network")
    call = engine.create("Node", node, timeout=600)
    eventually(lambda: "gpu-a" in world.api["nodes"])
    looked = len(world.journal("get nodes"))
    eventually(
        lambda: len(world.journal("get nodes")) > looked
    )  # it waits for the node to be Ready
    engine.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        call.result(timeout=120)
    assert half_made(caught.value).reasons[0] == "cancelled while waiting for it"


def test_cancel_before_the_join_leaves_nothing_in_state(
    engine: Engine, world: World, control_plane: Values
) -> None:
    world.set("cp1", join_seconds=3)
    call = engine.create("ControlPlane", control_plane)
    eventually(lambda: world.journal("kubeadm init"))
    engine.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        call.result(timeout=120)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert engine.create("ControlPlane", control_plane).result().id == "cp1"
    assert len(world.journal("kubeadm init --config")) == 1


def test_missing_key_file_is_named(engine: Engine, site: Path) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        engine.configure(site, privateKey="nowhere")
    assert caught.value.details() == (
        f"file not found — bedplate:privateKey of the stack — got {site}/nowhere / allowed a file; "
        "a relative path starts at the site's directory — correct it with `pulumi config set "
        "bedplate:privateKey PATH`"
    )


def test_provider_ends_with_its_engine(world: World) -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tests.stacks.world.provider', 'x'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, ENVIRONMENT: str(world.directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    def gone() -> bool:
        try:
            os.kill(orphan, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(gone)
