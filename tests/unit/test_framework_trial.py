"""The Job that tries an image, and what its program makes of what it finds."""

from __future__ import annotations

import runpy

import pytest

from tests.frameworks import trial

FAILURE = runpy.run_path(str(trial.PROGRAM))["_failure"]
NO_GPU = "no GPU — the pod asks for none, or the driver does not run this CUDA — allowed one"


@pytest.mark.parametrize(
    ("has", "asked", "devices", "failure"),
    [
        (None, "cpu", ["cpu"], ""),
        ("12.6", "12.6", ["gpu:0"], ""),
        ("12", "12.6", ["cuda:0"], ""),
        ("12.6", "cpu", ["gpu:0"], "build differs — CUDA 12.6 — allowed cpu"),
        (None, "12.6", ["cpu"], "build differs — no CUDA — allowed 12.6"),
        ("13.0", "12.6", ["gpu:0"], "CUDA differs — 13.0 — allowed 12.6"),
        ("12.6", "12.6", ["cpu"], NO_GPU),
    ],
)
def test_another_build_fails(has: str | None, asked: str, devices: list[str], failure: str) -> None:
    said = {"version": "1.2.3+cu126", "cuda": has, "computed": dict.fromkeys(devices, 64.0**3)}
    assert FAILURE(said, "1.2.3", asked, devices) == failure
    assert FAILURE(said, "1.2", asked, devices) == "version differs — 1.2.3 — allowed 1.2"
    if not failure:
        said["computed"] = dict.fromkeys(devices, 1.0)
        assert FAILURE(said, "1.2.3", asked, devices) == (
            f"computes wrongly — {devices[0]} — allowed 262144"
        )


def test_the_job_runs_the_program_once_with_what_it_is_given() -> None:
    config, job = trial.objects(
        "jax", "course", "images.example/jax:1", ("jax", "1.0", "12.6"), {"nvidia.com/gpu": "1"}
    )
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["spec"]["backoffLimit"] == 0
    assert container["command"] == [
        "python3", "/etc/bedplate/trial/framework.py", "jax", "1.0", "12.6"
    ]  # fmt: skip
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["volumes"] == [
        {"name": "program", "configMap": {"name": config["metadata"]["name"]}}
    ]
    compile(config["data"][trial.PROGRAM.name], trial.PROGRAM.name, "exec")
