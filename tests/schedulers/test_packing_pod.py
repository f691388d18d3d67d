"""Packing's whole manifest on a real API server, and its pod's two programs as the pod has them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.schedulers.packing_config import NAME, NAMESPACE
from bedplate.components.schedulers.packing_objects import ARCHIVE, HEALTH, archive, objects
from bedplate.pods.api import ACCOUNT
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.control_plane import ControlPlane, tool
from tests.schedulers.nodes import add_nodes, node, remove_nodes
from tests.schedulers.packing import Packing, packed_node, place, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

TEAM = "packing-pod"
LEASES = "coordination.k8s.io/v1"
#: In a mount namespace of its own: the account's folder where kubelet would put it, then the rest.
AS_IN_A_POD = (
    "mount -t tmpfs tmpfs /var/run && mkdir -p {account} /var/run/bedplate && "
    'cp {folder}/account/* {account} && hostname {host} && shift && exec "$@"'
)
CONTROL = {"node-role.kubernetes.io/control-plane": ""}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Apply all documents, as the stack does; two control plane nodes and one with GPUs."""
    api = control_plane.api
    documents = objects("registry.invalid/kube-scheduler", "registry.invalid/python")
    documents.append(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        }
    )
    # First, since its two pods are kept apart only where there is a second node for them.
    add_nodes(api, [node(name, labels=CONTROL) for name in ("cp1", "cp2")])
    add_nodes(api, [packed_node("gpus", 2)])
    for one in documents:
        api.apply(one)
    control_plane.namespace(TEAM)
    yield control_plane
    control_plane.clear(TEAM)
    for one in reversed(documents):
        api.delete(api.path_of(one))
    eventually(lambda: not pods_of(api))
    remove_nodes(api)


def pods_of(api: Api) -> list[dict[str, Any]]:
    """Return the pods of packing's own Deployment; nobody ends those that are deleted."""
    found = [
        one
        for one in api.get("pods", "v1", NAMESPACE)
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME
    ]
    for one in found:
        if "deletionTimestamp" in one["metadata"]:
            api.delete(
                api.path_of({"apiVersion": "v1", "kind": "Pod", **one}), gracePeriodSeconds=0
            )
    return found


def test_the_manifest_makes_two_pods_of_its_account_that_the_service_finds(
    plane: ControlPlane,
) -> None:
    made = eventually(lambda: len(pods_of(plane.api)) == 2 and pods_of(plane.api))
    for one in made:
        assert one["spec"]["serviceAccountName"] == NAME
        assert one["spec"]["priority"] == 2_000_000_000  # of system-cluster-critical
        mounts = [mount["mountPath"] for mount in one["spec"]["containers"][1]["volumeMounts"]]
        assert str(ACCOUNT) in mounts, "admission has mounted the account's token"
    placed = eventually(
        lambda: (
            all(one["spec"].get("nodeName") for one in pods_of(plane.api)) and pods_of(plane.api)
        ),
    )
    assert {one["spec"]["nodeName"] for one in placed} == {"cp1", "cp2"}
    ready = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "phase": "Running",
        "podIP": "192.0.2.7",
        "podIPs": [{"ip": "192.0.2.7"}],
    }
    path = plane.api.path("pods", "v1", NAMESPACE, placed[0]["metadata"]["name"])
    plane.api.patch(path, {"status": ready}, "status")

    def found() -> list[tuple[str, int]]:
        slices = plane.api.get("endpointslices", "discovery.k8s.io/v1", NAMESPACE)
        return [
            (address, port["port"])
            for one in slices
            if one["metadata"]["labels"].get("kubernetes.io/service-name") == NAME
            for end in one.get("endpoints") or []
            for address in end["addresses"]
            for port in one["ports"]
        ]

    eventually(lambda: found() == [("192.0.2.7", HEALTH)])


def test_its_account_may_do_its_work_and_no_more(plane: ControlPlane) -> None:
    """Asked of the API server in the account's name, by the rights that the manifest gives."""
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    mine = plane.api.acting_as(account, "system:serviceaccounts")
    for plural in ("pods", "nodes", "persistentvolumes"):
        mine.get(plural)
    with pytest.raises(ApiError, match="cannot list resource"):
        mine.get("secrets", "v1", NAMESPACE)
    with pytest.raises(ApiError, match="cannot create resource"):
        mine.create(pod("any", TEAM, 100))
    with pytest.raises(ApiError, match="cannot patch resource"):
        mine.patch(mine.path("nodes", "v1", None, "gpus"), {"spec": {"unschedulable": True}})
    other = mine.path("leases", LEASES, NAMESPACE, "kube-controller-manager")
    with pytest.raises(ApiError, match="cannot update resource"):
        mine.call("PUT", other, {"apiVersion": LEASES, "kind": "Lease", "metadata": {}})


def test_its_containers_take_their_lead_and_bind_by_the_account_alone(
    plane: ControlPlane,
) -> None:
    """Both commands of the pod as they are written: account, address and Lease come from the pod.

    Kubelet and image are not there: the programs are this machine's, files lie where they do.
    """
    api = plane.api
    (pod_spec, *_) = [one["spec"] for one in eventually(lambda: pods_of(api))]
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    where = api.path("serviceaccounts", "v1", NAMESPACE, NAME)
    answer = api.call("POST", f"{where}/token", token)
    account = plane.folder / "account"
    account.mkdir()
    (account / "token").write_text(answer["status"]["token"])
    (account / "ca.crt").write_bytes(plane.authority.path.read_bytes())
    (account / "namespace").write_text(NAMESPACE)
    config = api.get("configmaps", "v1", NAMESPACE, NAME)
    (plane.folder / "scheduler.yml").write_text(config["data"]["scheduler.yml"])
    (plane.folder / ARCHIVE).write_bytes(archive())
    address = plane.server.removeprefix("https://").split(":")
    inside = dict(zip(("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"), address, strict=True))
    programs = {
        "kube-scheduler": str(tool("kubernetes") / "kube-scheduler"),
        "python3": sys.executable,
    }
    for container in pod_spec["containers"]:
        command = [programs.get(one, one) for one in container["command"] + container["args"]]
        command = [one.replace("/etc/bedplate", str(plane.folder)) for one in command]
        script = AS_IN_A_POD.format(account=ACCOUNT, folder=plane.folder, host="of-the-pod")
        unshared = ["unshare", "--mount", "--uts", "sh", "-ec", script, "sh", "sh", *command]
        plane.add(f"pod-{container['name']}", unshared, **inside)
    extender = Packing(plane, "of-the-pod", health=HEALTH)
    try:
        eventually(lambda: extender.page("/readyz") == "ok\n")
        lease = api.get("leases", LEASES, NAMESPACE, NAME)
        assert re.match(r"of-the-pod_", lease["spec"]["holderIdentity"])
        api.create_all(pod(f"half-{number}", TEAM, 500) for number in range(4))
        eventually(lambda: all(place(one) for one in api.get("pods", "v1", TEAM)))
        given = sorted(place(one) or () for one in api.get("pods", "v1", TEAM))
        assert given == [("gpus", "0")] * 2 + [("gpus", "1")] * 2
    finally:
        for container in pod_spec["containers"]:
            plane.processes[f"pod-{container['name']}"].kill()
