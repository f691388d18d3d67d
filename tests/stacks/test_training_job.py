"""The TrainingJob component under Pulumi's mocks: order, the key, and refusals before anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill import Bill, Image, Known
from bedplate.bill.needs import images_of
from bedplate.catalogue import load_catalogue
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.config import StackError
from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.training import TrainingJob, request_of, training_args
from bedplate.lock.model import Framework, TeamImage
from tests.frameworks.examples import EXAMPLES, HOUR, QUEUED, lock, objects
from tests.stacks.test_components import Engine, run

if TYPE_CHECKING:
    import pulumi

    from bedplate.lock import Lock

SITE = Path("site")
#: By this key the engine knows that a value is a secret.
SECRET = "4dabf18193072939515e22adb298388d"


def cluster(*addons: str) -> jobs.JobsArgs:
    """Return what the lock of the examples' site decides."""
    return jobs.jobs_args(lock(*addons))


def up(name: str = "train", /, **args: Any) -> tuple[Engine, Any]:
    """Register the component on the examples' site, or on the cluster that is given."""
    given: Any = {"cluster": cluster(*QUEUED), "team": "vision", "command": ["x"], **args}

    def program() -> dict[str, pulumi.Output[Any]]:
        found = TrainingJob(name, given)
        return {"job": found.job}

    return run(program)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_component_makes_what_the_example_of_its_form_applies(example: str) -> None:
    """The examples start on the real Kueue, JobSet and Volcano: see tests/frameworks."""
    _, addons, asked = EXAMPLES[example]
    given: dict[str, Any] = {
        "form": asked.form,
        "image": asked.image,
        "command": list(asked.command),
        "pods": asked.pods,
        "gpus": asked.gpus,
        "time_limit": f"{(asked.seconds or 0) // HOUR}h",
        "data": [{"claim": one.claim, "at": one.at} for one in asked.volumes],
    }
    engine, outputs = up(asked.name, cluster=cluster(*addons), **given)
    documents = objects(example)
    for one in documents:
        (made,) = engine.seen[token(one)]
        assert made.inputs["metadata"]["name"] == one["metadata"]["name"]
        assert made.inputs["metadata"]["namespace"] == "vision"
        for part in ("labels", "annotations"):
            wanted = one["metadata"].get(part, {}).items()
            assert wanted <= made.inputs["metadata"][part].items()
        rest = {"kind", "apiVersion", "metadata"}
        assert {key: made.inputs[key] for key in one if key not in rest} == {
            key: value for key, value in one.items() if key not in rest
        }
    assert outputs["job"][0] == f"{documents[-1]['kind'].lower()}/vision/{asked.name}"


def test_an_mpi_job_has_a_key_of_its_own_that_no_output_shows() -> None:
    engine, outputs = up(form="MPI", image="i@sha256:0", pods=2, gpus=2, time_limit="1h")
    secret = engine.one("kubernetes:core/v1:Secret")
    assert secret.inputs["metadata"]["name"] == "train-ssh"
    hidden = secret.inputs["stringData"]
    assert SECRET in hidden
    assert hidden["value"]["ssh-privatekey"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    job = engine.one("kubernetes:batch/v1:Job")
    assert {"train-key", "train-service", "train-configmap"} <= job.depends_on
    labels = job.inputs["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "bedplate"
    assert labels["kueue.x-k8s.io/max-exec-time-seconds"] == "3660"
    # What waits in a queue would hold up `pulumi up`.
    assert job.inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert outputs["job"] == ("job/vision/train", False)


def with_jax() -> Lock:
    """The examples' site with a build of JAX, which no course has."""
    found = lock(*QUEUED)
    build = Framework(name="jax", version="0.12.0.1", variant="cuda12", cuda="12.1")
    pool = found.pools["pool_train"].model_copy(update={"frameworks": [build]})
    return found.model_copy(update={"pools": {"pool_train": pool}})


def test_a_framework_runs_in_its_image_that_the_bill_has_for_teams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, digest = with_jax(), f"sha256:{'0' * 64}"
    name = "images.bedplate.internal/notebook-jax:0.12.0.1-cuda12"
    needed = dict(images_of(site, load_catalogue()))[name]
    known = Known(registry="images.bedplate.internal")
    entry = Image(digest=digest, manifest=digest, size=1, needed_by=needed.needed_by, known=known)
    bills = iter([Bill(images={name: entry}), Bill()])
    monkeypatch.setattr(artifact, "bill_of", lambda *_: next(bills))
    engine, _ = up(cluster=training_args(SITE, site), framework="jax", gpus=1)
    spec = engine.one("kubernetes:batch/v1:Job").inputs["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == f"{name}@{digest}"
    with pytest.raises(StackError, match="take it by bedplate mirror add, and run bedplate mirror"):
        up(cluster=training_args(SITE, site), framework="jax", gpus=1)


def test_an_own_image_that_the_bill_refuses_runs_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    site = with_jax()
    assert site.cluster is not None
    own = {"mine": TeamImage(image=f"registry/mine@sha256:{'0' * 64}", pool="pool_train")}
    site = site.model_copy(update={"cluster": site.cluster.model_copy(update={"images": own})})
    refused = iter([{}, {"mine": "driver is too old for the image's CUDA"}])
    monkeypatch.setattr(artifact, "bill_of", lambda *_: Bill())
    monkeypatch.setattr(artifact, "refused", lambda *_: next(refused))
    up(cluster=training_args(SITE, site), image="mine", gpus=1)
    with pytest.raises(StackError, match="image is refused: driver is too old"):
        up(cluster=training_args(SITE, site), image="mine", gpus=1)


def test_an_input_that_there_is_not_is_refused_with_the_nearest() -> None:
    """Python's own error would name neither the job nor what is allowed."""
    with pytest.raises(StackError) as refused:
        up(gpu=1, data=[{"claim": "c", "att": "/d"}])
    said = str(refused.value)
    assert "unknown input of a job — train — got gpu / allowed cluster, team, " in said
    assert "— write gpus" in said
    assert "train.data — got att / allowed claim, at, read_only — write at" in said
    assert "input of a job is missing — train.data — got nothing / allowed at" in said
    with pytest.raises(StackError, match="missing — train — got nothing / allowed cluster") as none:
        request_of("train", {"command": ["x"]})
    assert "allowed team — write team" in str(none.value)


def test_what_is_wrong_is_refused_before_anything_is_made() -> None:
    with pytest.raises(StackError) as refused:
        TrainingJob(
            "train",
            {
                "cluster": cluster("kueue"),
                "team": "sound",
                "form": "JobSet",
                "image": "i@sha256:0",
            },
        )
    text = str(refused.value)
    assert "unknown team — train.team — got sound" in text
    assert "form needs the add-on jobset — train.form — got JobSet" in text
