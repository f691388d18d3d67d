"""`bedplate preflight` on a real API server without kubelets, and what it makes of figures."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.cli.main import main
from bedplate.common.evidence_file import Result, load_evidence
from bedplate.components.preflight import command, judge, objects
from bedplate.evidence.report import assemble, render
from bedplate.lock import digest
from bedplate.lock.file import write_lock
from bedplate.lock.model import HpcTools
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.schedulers.control_plane import ControlPlane

LOCK = lock_of({"pool_train": [{}, {}], "pool_class": [{}]}, {})
NODES = ["pool-class-0", "pool-train-0", "pool-train-1"]
SAID = {
    "nodes": NODES,
    "pairs": [[1, 0.5, 9000.0], [2, 20.25, 1100.5], [4, 21.0, 1090.0]],
    "rdma": [],
}
MEASURED = judge.read(json.dumps(SAID))


def site_of(folder: Path, kubeconfig: Path) -> Path:
    """Return a site with a lock and the kubeconfig of a cluster."""
    site = folder / "site"
    (site / ".bedplate").mkdir(parents=True)
    shutil.copy(kubeconfig, site / ".bedplate/kubeconfig")
    write_lock(site, LOCK)
    return site


def test_one_pod_on_each_node_of_all_pools_without_root_queue_or_gpu() -> None:
    *first, job = objects.objects(LOCK, "image", "the key", 60)
    assert [one["kind"] for one in first] == ["Namespace", "Secret", "Service", "ConfigMap"]
    assert first[1]["stringData"]["ssh-privatekey"] == "the key"
    assert job["metadata"] == {"name": "preflight", "namespace": "bedplate-preflight"}
    spec = job["spec"]["template"]["spec"]
    assert (job["spec"]["completions"], "nodeSelector" in spec) == (3, False)
    affinity = json.dumps(spec["affinity"])
    assert all(name in affinity for name in NODES)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "resources" not in container


def test_figures_become_evidence_that_the_report_shows(tmp_path: Path) -> None:
    found = judge.checked(LOCK, NODES, MEASURED, simulated=True)
    told = {one["id"]: one["what"] if one["result"] == "pass" else one["reason"] for one in found}
    assert told["preflight.mpi.memory"] == (
        "Open MPI inside a pod on pool-class-0: 9000 MB/s, 0.5 microseconds"
    )
    assert told["preflight.mpi.pool-train-1"] == (
        "Open MPI from pool-class-0 to pool-train-1: 1090 MB/s, 21 microseconds"
    )
    assert told["preflight.rdma"] == "no RDMA device was found"
    silicon = "the GPUs are simulated: there is no silicon to measure"
    assert told["preflight.nvbandwidth"] == told["preflight.nccl-tests"] == silicon
    left = HpcTools(left={"nvbandwidth": "published as source only"})
    pool = LOCK.pools["pool_train"].model_copy(update={"hpc_tools": left})
    lock = LOCK.model_copy(update={"pools": {**LOCK.pools, "pool_train": pool}})
    real = {
        one["id"]: one["reason"] for one in judge.checked(lock, NODES, MEASURED, simulated=False)
    }
    assert real["preflight.nvbandwidth"] == "published as source only"
    assert real["preflight.nccl-tests"] == "the preflight's image does not have it"

    command.write(tmp_path, "sha256:1", found, "image", simulated=True)
    (evidence,) = load_evidence(tmp_path)
    page = render(assemble("site", LOCK, "sha256:1", [evidence], {}))
    assert "Open MPI from pool-class-0 to pool-train-1: 1090 MB/s" in page
    # Measured under another lock: another cluster.
    assert "Open MPI from" not in render(assemble("site", LOCK, "sha256:2", [evidence], {}))


def test_a_node_without_processes_fails() -> None:
    few = judge.read(json.dumps(SAID | {"nodes": NODES[:2], "pairs": SAID["pairs"][:2]}))
    (first, *_) = judge.checked(LOCK, NODES, few, simulated=False)
    assert (first["result"], first["found"]) == ("fail", NODES[:2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Segmentation fault", "Invalid JSON"),
        ("[1]", "Input should be an object"),
        ("{}", "nodes: Field required"),
        ("[" * 100_000, "Invalid JSON"),
        (json.dumps(SAID | {"nodes": []}), "nodes: List should have at least 1 item"),
        (json.dumps(SAID | {"pairs": [[9, 1, 1]]}), "a rank of no node"),
        (
            json.dumps(SAID | {"pairs": [[1, float("nan"), 1]]}),
            "pairs.0.1: Input should be a finite",
        ),
        (json.dumps(SAID | {"pairs": [["1", 2, 3]]}), "pairs.0.0: Input should be a valid integer"),
        (json.dumps(SAID | {"rdma": "x"}), "rdma: Input should be a valid"),
    ],
)
def test_last_words_that_are_no_figures_are_a_reason(text: str, said: str) -> None:
    """A pod says them, of whatever image."""
    found = judge.read(text)
    assert isinstance(found, str)
    assert found.startswith("the job left no figures: ")
    assert said in found


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_figures_are_numbers_in_a_document(
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is all that is printed. The cluster is none: what its job measured is given."""
    config = tmp_path / "kubeconfig"
    user = {"name": "c", "user": {"token": "a token"}}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [user],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }
    config.write_text(json.dumps(content))
    site = site_of(tmp_path, config)
    monkeypatch.setattr(command, "_measured", lambda *_: MEASURED)
    assert main(["preflight", str(site), "--image", "image", "-o", form]) == 0
    printed = capsys.readouterr()
    found = yaml.safe_load(printed.out)
    assert (found["ok"], printed.err) == (True, "")
    figures = {one["id"]: one["found"] for one in found["checks"]}
    assert figures["preflight.mpi.pool-train-0"] == {
        "megabytes_per_second": 1100.5,
        "microseconds": 20.25,
    }
    (evidence,) = load_evidence(site)
    assert [one.id for one in evidence.checks] == list(figures)
    assert (site / ".bedplate/evidence/preflight.json").samefile(found["evidence"])


def test_pods_that_never_start_are_a_failure_with_its_reason_and_nothing_stays(
    control_plane: ControlPlane,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No node of these names is there: the job ends by its own time limit."""
    # The command gives up later, however long a busy machine's controller takes to end the job.
    monkeypatch.setattr(command, "PATIENCE", 600.0)
    site = site_of(tmp_path, control_plane.kubeconfig)
    options = Namespace(site=site, image="image", seconds=4, form="table")
    assert command.run(options) == command.NOT_PROVEN
    assert (
        "fail    processes of MPI send messages to each other on every node — "
        in capsys.readouterr().out
    )
    (evidence,) = load_evidence(site)
    (check,) = evidence.checks
    assert (evidence.lock, check.result) == (digest(site), Result.FAIL)
    assert "longer than specified deadline" in check.reason

    def gone() -> bool:
        spaces: list[dict[str, Any]] = control_plane.api.get("namespaces", "v1")
        names = {one["metadata"]["name"]: one["status"]["phase"] for one in spaces}
        return names.get(objects.NAMESPACE, "Terminating") == "Terminating"

    assert gone()


def test_an_api_that_does_not_answer_is_named(control_plane: ControlPlane, tmp_path: Path) -> None:
    site = site_of(tmp_path, control_plane.kubeconfig)
    path = site / ".bedplate/kubeconfig"
    text = path.read_text().replace(control_plane.api.server, "https://127.0.0.1:1")
    assert "127.0.0.1:1" in text
    path.write_text(text)
    with pytest.raises(command.PreflightError, match="the API refused the job"):
        command.run(Namespace(site=site, image="image", seconds=4, form="table"))
