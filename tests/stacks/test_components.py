"""The stacks' components under Pulumi's mocks: what is registered, in which order, with what."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks, rpc, stack

from bedplate.components.cluster import flannel
from bedplate.components.cluster.cluster import Cluster, ClusterArgs
from bedplate.components.cluster.manifest import Manifest, token
from bedplate.components.config import StackError
from bedplate.components.frameworks import pod_log
from bedplate.components.frameworks.smoke import Smoke
from bedplate.components.schedulers.dra import Dra
from bedplate.components.schedulers.node_labels import NodeLabels, asserted, discovered
from bedplate.components.schedulers.runtime_class import GpuRuntime
from bedplate.provider import sdk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {name: kube-flannel}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data:
  net-conf.json: '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}'
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel-ds, namespace: kube-flannel}
spec: {template: {spec: {containers: [{name: kube-flannel, env: [{name: EVENT, value: "1"}]}]}}}
"""


@dataclass
class Registered:
    """What the program asked the engine for."""

    name: str
    inputs: dict[str, Any]
    provider: str
    depends_on: set[str]
    retained: bool


class Engine(mocks.MockMonitor):
    """Notes every registration and answers with its inputs."""

    def __init__(self) -> None:
        super().__init__(Answers())
        self.seen: dict[str, list[Registered]] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        """Note a resource and say that it is made."""
        if request.custom:
            self.seen.setdefault(request.type, []).append(
                Registered(
                    request.name,
                    rpc.deserialize_properties(request.object),
                    request.provider,
                    {urn.rsplit("::", 1)[1] for urn in request.dependencies},
                    request.retainOnDelete,
                )
            )
        return super().RegisterResource(request)

    def one(self, kind: str) -> Registered:
        """Return the only resource of a type."""
        (found,) = self.seen[kind]
        return found


class Answers(mocks.Mocks):
    """Outputs of resources: their inputs, and what only the provider knows."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """Return id and outputs."""
        outputs = dict(args.inputs)
        if args.typ == "bedplate:index:ControlPlane":
            outputs |= {"kubeconfig": "Geheimnis", "authority": "00"}
        return args.name, outputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        """Refuse: no component calls a function."""
        raise AssertionError(f"no call is expected, got {args.token}")


def run(program: Callable[[], dict[str, pulumi.Output[Any]] | None]) -> tuple[Engine, Any]:
    """Run a program under mocks; return what it registered, and its outputs with their secrecy."""
    engine = Engine()

    async def whole() -> dict[str, tuple[Any, bool]]:
        outputs: dict[str, pulumi.Output[Any]] = {}
        await stack.run_pulumi_func(lambda: outputs.update(program() or {}))
        return {
            key: (await output.future(), await output.is_secret())
            for key, output in outputs.items()
        }

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        mocks.set_mocks(Answers(), "test", "demo", preview=False, monitor=engine)
        return engine, loop.run_until_complete(whole())
    finally:
        loop.close()


def machine(name: str) -> sdk.MachineArgs:
    """Return a host's connection data."""
    return {"name": name, "address": f"{name}.example", "port": 22, "user": "root"}


@pytest.fixture
def cluster() -> ClusterArgs:
    """A cluster of one control plane and two workers, one of them with GPUs of this stack."""
    return {
        "kubernetes": {
            "version": "1.36.3",
            "endpoint": "192.0.2.1:6443",
            "pod_subnet": "10.64.0.0/16",
            "service_subnet": "10.96.0.0/12",
            "kubelet": {"failSwapOn": False},
            "kube_proxy": {},
            "controller_requests": 40,
            "ignore_preflight": ["SystemVerification"],
        },
        "etcd_image_tag": "3.6.8-0",
        "dns_image_tag": "v1.14.2",
        "control_planes": [machine("cp1")],
        "workers": [machine("gpu-a"), machine("gpu-b")],
        "gpus": {"gpu-a": {"resource": "nvidia.com/gpu", "count": 8}},
        "gpu_seconds": 300,
        "cni_manifest": MANIFEST,
    }


def up(args: ClusterArgs) -> tuple[Engine, Any]:
    """Run a program of one cluster."""

    def program() -> dict[str, pulumi.Output[Any]]:
        hosts = sdk.Provider("hosts", site="../../inventories/demo")
        made = Cluster("demo", args, pulumi.ResourceOptions(providers=[hosts]))
        return {"kubeconfig": made.kubeconfig, "endpoint": made.endpoint, "nodes": made.nodes}

    return run(program)


def test_cluster_registers_what_the_lock_says(cluster: ClusterArgs) -> None:
    engine, outputs = up(cluster)
    assert engine.one("bedplate:index:ControlPlane").inputs == {
        "host": machine("cp1"),
        "version": "1.36.3",
        "endpoint": "192.0.2.1:6443",
        "podSubnet": "10.64.0.0/16",
        "serviceSubnet": "10.96.0.0/12",
        "etcdImageTag": "3.6.8-0",
        "dnsImageTag": "v1.14.2",
        "kubelet": {"failSwapOn": False},
        "kubeProxy": {},
        "controllerRequests": 40,
        "ignorePreflight": ["SystemVerification"],
        "taint": True,
    }
    nodes = engine.seen["bedplate:index:Node"]
    assert [node.inputs["host"]["name"] for node in nodes] == ["gpu-a", "gpu-b"]
    assert all(node.inputs["controlPlane"] == machine("cp1") for node in nodes)
    gpus = engine.one("bedplate:index:GpuReady")
    assert (gpus.inputs["resource"], gpus.inputs["count"]) == ("nvidia.com/gpu", 8)
    assert outputs["kubeconfig"] == ("Geheimnis", True)
    assert outputs["endpoint"] == ("192.0.2.1:6443", False)
    assert outputs["nodes"] == (["demo-gpu-a", "demo-gpu-b"], False)


def test_members_are_told_of_another_runtime_than_containerd_and_of_no_other(
    cluster: ClusterArgs,
) -> None:
    socket = "unix:///run/crio/crio.sock"
    engine, _ = up({**cluster, "cri_socket": socket})
    members = [engine.one("bedplate:index:ControlPlane"), *engine.seen["bedplate:index:Node"]]
    assert [one.inputs["criSocket"] for one in members] == [socket] * 3


def test_every_resource_has_its_explicit_provider(cluster: ClusterArgs) -> None:
    engine, _ = up(cluster)
    for kind, resources in engine.seen.items():
        if kind.startswith("pulumi:providers:"):
            continue
        expected = "kubernetes" if kind.startswith("kubernetes:") else "bedplate"
        for resource in resources:
            assert f"pulumi:providers:{expected}::" in resource.provider, kind


def test_nodes_come_after_the_network_and_never_after_each_other(cluster: ClusterArgs) -> None:
    engine, _ = up(cluster)
    for node in engine.seen["bedplate:index:Node"]:
        assert "demo-flannel-daemonset-kube-flannel-kube-flannel-ds" in node.depends_on
        assert "demo-cp1" in node.depends_on
        assert not {"demo-gpu-a", "demo-gpu-b"} & node.depends_on
    assert "demo-gpu-a" in engine.one("bedplate:index:GpuReady").depends_on


def test_the_guard_depends_on_all_of_the_cluster_so_that_it_goes_first(
    cluster: ClusterArgs,
) -> None:
    engine, _ = up(cluster)
    guard = engine.one("bedplate:index:DeletionGuard")
    others = {
        resource.name
        for kind, resources in engine.seen.items()
        if not kind.startswith(("pulumi:providers:", "bedplate:index:DeletionGuard"))
        for resource in resources
    }
    assert others - guard.depends_on == set()


def test_more_control_planes_join_the_first_one_by_one(cluster: ClusterArgs) -> None:
    cluster["control_planes"] = [machine("cp1"), machine("cp2"), machine("cp3")]
    engine, _ = up(cluster)
    first, second, third = engine.seen["bedplate:index:ControlPlane"]
    assert "join" not in first.inputs
    assert second.inputs["join"] == third.inputs["join"] == machine("cp1")
    assert "demo-cp2" in third.depends_on


def test_the_gpus_of_control_planes_are_waited_for_after_the_network(cluster: ClusterArgs) -> None:
    cluster["control_planes"] = [machine("cp1"), machine("cp2"), machine("cp3")]
    cluster["workers"] = []
    cluster["gpus"] = {name: {"resource": "nvidia.com/gpu", "count": 2} for name in ("cp1", "cp3")}
    cluster["kubernetes"]["untainted"] = ["cp1", "cp3"]
    engine, outputs = up(cluster)
    taints = [one.inputs["taint"] for one in engine.seen["bedplate:index:ControlPlane"]]
    assert taints == [False, True, False]
    gpus = {one.name: one for one in engine.seen["bedplate:index:GpuReady"]}
    assert set(gpus) == {"demo-cp1-gpus", "demo-cp3-gpus"}
    for name, one in gpus.items():
        assert one.inputs["controlPlane"] == machine("cp1")
        assert name.removesuffix("-gpus") in one.depends_on
        assert "demo-flannel-daemonset-kube-flannel-kube-flannel-ds" in one.depends_on
    assert set(gpus) <= engine.one("bedplate:index:DeletionGuard").depends_on
    assert outputs["nodes"] == ([], False)


def test_every_resource_of_gpus_that_differ_is_waited_for(cluster: ClusterArgs) -> None:
    also = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 3}
    cluster["gpus"] = {"gpu-a": {"resource": "nvidia.com/gpu", "count": 1, "also": also}}
    engine, _ = up(cluster)
    waits = engine.seen["bedplate:index:GpuReady"]
    assert {one.name: (one.inputs["resource"], one.inputs["count"]) for one in waits} == {
        "demo-gpu-a-gpus": ("nvidia.com/gpu", 1),
        "demo-gpu-a-gpus-mig-3g.40gb": ("nvidia.com/mig-3g.40gb", 1),
        "demo-gpu-a-gpus-mig-1g.10gb": ("nvidia.com/mig-1g.10gb", 3),
    }
    assert all("demo-gpu-a" in one.depends_on for one in waits)


def test_flannel_gets_the_sites_pod_network_and_is_else_unchanged() -> None:
    wished = list(yaml.safe_load_all(MANIFEST))
    found = flannel.objects(MANIFEST, "10.64.0.0/16")
    assert yaml.safe_load(found[1]["data"].pop("net-conf.json")) == {
        "Network": "10.64.0.0/16",
        "Backend": {"Type": "vxlan"},
    }
    assert found[2]["metadata"].pop("annotations") == {"pulumi.com/skipAwait": "true"}
    del wished[1]["data"]["net-conf.json"]
    (container,) = found[2]["spec"]["template"]["spec"]["containers"]
    # The interface with the node's address, where the default route is on another.
    assert container["env"].pop() == {
        "name": "FLANNELD_IFACE",
        "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
    }
    assert found == wished


def test_flannel_gets_the_mtu_of_the_hosts_network() -> None:
    found = flannel.objects(MANIFEST, "10.64.0.0/16", mtu=8950)
    assert yaml.safe_load(found[1]["data"]["net-conf.json"])["Backend"] == {
        "Type": "vxlan",
        "MTU": 8950,
    }


def test_a_pod_network_of_ipv6_is_refused() -> None:
    """flannel does not start with it: its keys for IPv6 are not set here."""
    with pytest.raises(ValueError, match=r"^pod network fd00::/48 is not IPv4$"):
        flannel.objects(MANIFEST, "fd00::/48")


def test_another_manifest_is_not_taken_for_flannels() -> None:
    with pytest.raises(ValueError, match=r"^no ConfigMap with net-conf\.json in it$"):
        flannel.objects("kind: Namespace\nmetadata: {name: x}", "10.64.0.0/16")


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("v1", "Namespace", "kubernetes:core/v1:Namespace"),
        ("apps/v1", "DaemonSet", "kubernetes:apps/v1:DaemonSet"),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole",
        ),
    ],
)
def test_type_tokens_are_the_providers(version: str, kind: str, expected: str) -> None:
    assert token({"apiVersion": version, "kind": kind}) == expected


def test_namespaces_come_before_what_lies_in_them() -> None:
    objects = list(yaml.safe_load_all(MANIFEST))

    def program() -> None:
        cluster = pulumi.CustomResource("bedplate:index:ControlPlane", "cp", {})
        Manifest("m", {"objects": objects, "cluster": cluster})

    engine, _ = run(program)
    assert "m-namespace-kube-flannel" in engine.one("kubernetes:apps/v1:DaemonSet").depends_on


def test_runtime_class_is_marked_as_an_upper_stacks() -> None:
    engine, _ = run(lambda: GpuRuntime("nvidia", {"handler": "nvidia"}) and None)
    found = engine.one("kubernetes:node.k8s.io/v1:RuntimeClass").inputs
    assert found["handler"] == "nvidia"
    assert found["metadata"] == {
        "name": "nvidia",
        "labels": {"app.kubernetes.io/managed-by": "bedplate"},
    }


@pytest.mark.parametrize("limited", [False, True])
def test_gpus_by_claim_have_a_class_for_whole_ones_and_one_for_shares(limited: bool) -> None:
    engine, _ = run(lambda: Dra("dra", {"limited": limited}) and None)
    classes = engine.seen.pop("kubernetes:resource.k8s.io/v1:DeviceClass")
    extended = {
        one.inputs["metadata"]["name"]: one.inputs["spec"].get("extendedResourceName")
        for one in classes
    }
    assert extended == {"gpu.nvidia.com": "nvidia.com/gpu", "gpu-memory.nvidia.com": None}
    policies = [one for of in engine.seen.values() for one in of]
    assert len(policies) == (8 if limited else 0)
    for one in [*classes, *policies]:
        assert one.inputs["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "bedplate"}


def test_labels_are_patched_and_read_back() -> None:
    labels = {"gpu-a": {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe", "nvidia.com/gpu.count": "8"}}
    engine, outputs = run(lambda: {"applied": NodeLabels("gpus", {"labels": labels}).applied})
    patch = engine.one("kubernetes:core/v1:NodePatch")
    assert patch.retained, "taking a patch back would make a Node object for a host that has left"
    found = patch.inputs["metadata"]
    assert found["name"] == "gpu-a"
    assert found["labels"] == labels["gpu-a"]
    assert outputs["applied"] == ({"gpu-a": 2}, False)


def test_labels_that_did_not_arrive_fail_the_stack() -> None:
    with pytest.raises(StackError) as caught:
        asserted("gpu-a", {"nvidia.com/gpu.count": "8", "a": "b"}, {"a": "b"})
    assert str(caught.value) == (
        "labels did not reach the node — Node gpu-a — got {'nvidia.com/gpu.count': None} / "
        "allowed {'nvidia.com/gpu.count': '8'} — see who else manages these labels: `kubectl get "
        "node gpu-a --show-managed-fields -o yaml`"
    )


def test_discovered_labels_leave_the_moment_out(tmp_path: Path) -> None:
    evidence = tmp_path / ".bedplate/evidence"
    evidence.mkdir(parents=True)
    (evidence / "host-gpu-a.json").write_text(
        '{"labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gfd.timestamp": "1"}}'
    )
    assert discovered(tmp_path, ["gpu-a"]) == {"gpu-a": {"nvidia.com/gpu.count": "8"}}


def test_hosts_without_labels_are_named_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(StackError) as caught:
        discovered(tmp_path, ["gpu-a", "gpu-b"])
    assert str(caught.value) == (
        f"no labels of GPU feature discovery — {tmp_path}/.bedplate/evidence — got none for "
        "gpu-a, gpu-b / allowed labels for every GPU host — run `ansible-playbook "
        "bedplate.gpu.verify` on the site first"
    )


def test_smoke_job_asks_for_one_gpu_and_its_log_is_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        pod_log, "of_job", lambda kubeconfig, namespace, job: f"{kubeconfig} {namespace} {job}"
    )
    engine, outputs = run(
        lambda: {
            "log": Smoke(
                "smoke",
                {
                    "namespace": "n",
                    "image": "docker.io/library/debian:12-slim",
                    "resource": "nvidia.com/gpu",
                    "kubeconfig": pulumi.Output.secret("config"),
                },
            ).log
        }
    )
    job = engine.one("kubernetes:batch/v1:Job").inputs["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["nvidia-smi", "-L"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert job["backoffLimit"] == 0
    namespace = engine.one("kubernetes:core/v1:Namespace").inputs["metadata"]
    assert namespace["labels"] == {"app.kubernetes.io/managed-by": "bedplate"}
    assert outputs["log"] == ("config n nvidia-smi", False)
