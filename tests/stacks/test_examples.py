"""The programs of `examples/pulumi`: each registers what its head says, without site or lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.rendering.program import registered_in
from bedplate.components.schedulers import dra, packing_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.components.rendering.program import Registered

EXAMPLES = Path(__file__).parents[2] / "examples/pulumi"
LABELS = {"node-1": {"bedplate.io/pool": "train"}}
PLANTED = "planted: kubeconfig\n"


def up(name: str, folder: Path, **settings: str) -> list[Registered]:
    """Run an example's program with settings, as the engine does for a preview."""
    project = EXAMPLES / name
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(PLANTED)
    named = yaml.safe_load((project / "Pulumi.yaml").read_text())["name"]
    given = {"kubeconfig": str(kubeconfig), **settings}
    found = registered_in(project, "mine", {f"{named}:{key}": one for key, one in given.items()})
    assert PLANTED not in str(found)
    return found


def places(found: Sequence[Registered]) -> set[tuple[str, str, str]]:
    """Return what was registered, by kind, namespace and name."""
    objects = [one.inputs for one in found]
    return {
        (
            one.get("kind", "Release"),
            one.get("metadata", one).get("namespace", ""),
            one.get("metadata", one)["name"],
        )
        for one in objects
    }


def one_of(found: Sequence[Registered], kind: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (only,) = [one.inputs for one in found if one.kind.endswith(f":{kind}")]
    return only


def test_nodes(tmp_path: Path) -> None:
    found = up(
        "nodes",
        tmp_path,
        labels='{"node-1": {"bedplate.io/pool": "train"}}',
        nccl='{"train": {"NCCL_IB_HCA": "mlx5_0"}}',
        namespaces='["vision"]',
    )
    assert places(found) == {
        ("RuntimeClass", "", "nvidia"),
        ("Node", "", "node-1"),
        ("ConfigMap", "vision", "nccl-train"),
        ("DeviceClass", "", dra.WHOLE),
        ("DeviceClass", "", dra.SHARE),
    }
    assert one_of(found, "NodePatch")["metadata"]["labels"] == LABELS["node-1"]
    assert one_of(found, "ConfigMap")["data"] == {"NCCL_IB_HCA": "mlx5_0"}


def test_smoke(tmp_path: Path) -> None:
    taint = '[{"key": "nvidia.com/gpu", "operator": "Exists"}]'
    found = up("smoke", tmp_path, image="image:1", resource="example.com/gpu", tolerations=taint)
    assert places(found) == {("Namespace", "", "gpu-smoke"), ("Job", "gpu-smoke", "nvidia-smi")}
    pod = one_of(found, "Job")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "image:1"
    assert container["resources"]["limits"] == {"example.com/gpu": "1"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_schedulers(tmp_path: Path) -> None:
    jobset = {"chart": "charts/jobset.tgz", "image": "registry.example/jobset:v1@sha256:0"}
    found = up("schedulers", tmp_path, **jobset)
    assert places(found) == {("Release", "jobset-system", "jobset")}
    release = one_of(found, "Release")
    assert release["chart"] == "charts/jobset.tgz"
    assert release["values"]["image"]["tag"] == "v1@sha256:0"
    assert found[0].urn.endswith("$kubernetes:helm.sh/v3:Release::jobset-release"), "state has it"

    queued = {"queued": "9", "kueueChart": "charts/kueue.tgz", "kueueImage": "kueue:v1"}
    found = up("schedulers", tmp_path, **jobset, **queued)
    there = places(found)
    assert {one for one in there if one[0] in {"Release", "LocalQueue", "ClusterQueue"}} == {
        ("Release", "jobset-system", "jobset"),
        ("Release", "kueue-system", "kueue"),
        ("LocalQueue", "vision", "default"),
        ("LocalQueue", "speech", "default"),
        ("ClusterQueue", "", "vision"),
        ("ClusterQueue", "", "speech"),
    }
    free = one_of(found, "Cohort")["spec"]["resourceGroups"][0]["flavors"]
    gpu = {"name": "nvidia.com/gpu", "nominalQuota": "1"}
    assert free == [{"name": "train", "resources": [gpu]}], "what neither team has"
    assert not [kind for kind, *_ in there if kind.startswith("Mutating") and "Policy" in kind]
    found = up("schedulers", tmp_path, **jobset, **queued, mutatingApi="example.com/v1")
    changing = [one for one in found if one.inputs.get("kind") == "MutatingAdmissionPolicy"]
    assert {one.inputs["apiVersion"] for one in changing} == {"example.com/v1"}

    images = {"schedulerImage": "scheduler:1", "pythonImage": "python:1"}
    found = up("schedulers", tmp_path, **jobset, **images, packed='{"node-1": 8}')
    kinds = {one.get("kind", "Release") for one in (each.inputs for each in found)}
    assert kinds == {one["kind"] for one in packing_objects.objects("", "")} | {"Release", "Node"}


def test_training(tmp_path: Path) -> None:
    image = f"image@sha256:{'0' * 64}"
    given = {"image": image, "command": '["train.py"]', "nodes": "2", "gpus": "4", "quota": "4"}
    found = up("training", tmp_path, **given)
    assert places(found) == {("Service", "vision", "train"), ("Job", "vision", "train")}
    job = one_of(found, "Job")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == LABELS["node-1"]
    assert pod["containers"][0]["image"] == image
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize("name", ["nodes", "smoke", "schedulers", "training"])
def test_an_example_says_what_it_needs_and_makes(name: str) -> None:
    text = (EXAMPLES / name / "__main__.py").read_text()
    head = text.split('"""')[1]
    assert "\nNeeds: " in head
    assert "\nMakes: " in head
    assert len(text.splitlines()) < 60
    assert "lock" not in text.split('"""', 2)[2]
    assert f"({name}/__main__.py)" in (EXAMPLES / "README.md").read_text()


def test_every_example_is_run() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/__main__.py")} == {
        "nodes",
        "smoke",
        "schedulers",
        "training",
    }
