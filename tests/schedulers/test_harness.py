"""The harness itself: the real scheduler binds, the real controllers count, nothing is left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.schedulers.api import ApiError, eventually
from tests.schedulers.control_plane import ControlPlane
from tests.schedulers.kubelets import SECONDS, KubeletDouble
from tests.schedulers.nodes import GPU, add_nodes, node, remove_nodes
from tests.schedulers.workloads import job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.schedulers.api import Api


@pytest.fixture
def two_nodes(control_plane: ControlPlane) -> Iterator[str]:
    """Two nodes with four GPUs, one of them for a class; they go with their pods."""
    add_nodes(control_plane.api, [node("a", 4), node("b", 4, {"pool": "class"})])
    namespace = control_plane.namespace("harness")
    yield namespace
    control_plane.clear(namespace)
    remove_nodes(control_plane.api)


def pods(control_plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """Return the pods of a namespace."""
    return control_plane.api.get("pods", "v1", namespace)


def succeeded(api: Api, namespace: str) -> list[str]:
    """Return the names of the jobs that are done."""
    jobs = api.get("jobs", "batch/v1", namespace)
    return sorted(one["metadata"]["name"] for one in jobs if one["status"].get("succeeded"))


def test_jobs_are_bound_and_run_to_their_end(control_plane: ControlPlane, two_nodes: str) -> None:
    """Three jobs of four GPUs on two nodes: the third is bound when another is done."""
    api = control_plane.api
    with KubeletDouble(api) as kubelets:
        api.create_all([job(f"job-{n}", two_nodes, gpus=4, seconds=0.5) for n in range(3)])
        eventually(lambda: succeeded(api, two_nodes) == ["job-0", "job-1", "job-2"])
    assert len(kubelets.started) == 3
    assert {one["spec"]["nodeName"] for one in pods(control_plane, two_nodes)} == {"a", "b"}


def test_a_pod_that_fits_nowhere_says_why(control_plane: ControlPlane, two_nodes: str) -> None:
    """The scheduler is real: nine GPUs are on no node, and a selector is obeyed."""
    api = control_plane.api
    api.create(job("large", two_nodes, gpus=5))
    api.create(job("chosen", two_nodes, gpus=1, selector={"pool": "class"}))

    def waits() -> str:
        found = [
            one for one in pods(control_plane, two_nodes) if "large" in one["metadata"]["name"]
        ]
        conditions = found[0]["status"].get("conditions", []) if found else []
        return next((one["message"] for one in conditions if one["status"] == "False"), "")

    # A node that has only just come is not counted yet.
    eventually(waits, until=lambda said: f"2 Insufficient {GPU}" in said)
    bound = eventually(
        lambda: [
            one["spec"]["nodeName"]
            for one in pods(control_plane, two_nodes)
            if one["spec"].get("nodeName")
        ]
    )
    assert bound == ["b"]


def test_another_user_is_refused(control_plane: ControlPlane) -> None:
    """Authorisation is real, and the client can act as somebody."""
    student = control_plane.api.acting_as("alice", "students")
    with pytest.raises(ApiError, match='User "alice" cannot list resource "nodes"') as refused:
        student.get("nodes")
    assert refused.value.status == 403


def test_a_control_plane_that_cannot_start_leaves_no_process(tmp_path: Path) -> None:
    """A scheduler with a wrong configuration is reported with its own words; the others end."""
    plane = ControlPlane(tmp_path, scheduler_config={"profiles": [{"schedulerName": ""}]})
    with pytest.raises(RuntimeError, match="schedulerName"):
        plane.__enter__()
    assert set(plane.processes) == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    }
    assert not [name for name, process in plane.processes.items() if process.running]
    for process in plane.processes.values():
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_a_pod_succeeds_after_its_annotation() -> None:
    """The annotation that the double reads is the one that jobs of the tests carry."""
    assert job("a", "b", seconds=2)["spec"]["template"]["metadata"]["annotations"] == {SECONDS: "2"}
