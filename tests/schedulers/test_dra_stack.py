"""The component of GPUs by claim through the real engine and provider, on a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bedplate.schedulers.dra import SHARE, WHOLE, objects
from tests.substrate.pulumi import environment

if TYPE_CHECKING:
    from tests.schedulers.control_plane import ControlPlane

BIN = Path(sys.executable).parent
PROGRAM = """\
import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.schedulers.dra import Dra

provider = kubernetes.Provider("cluster", kubeconfig={kubeconfig!r})
Dra("dra", {{"limited": True}}, pulumi.ResourceOptions(providers=[provider]))
"""


def test_the_second_up_changes_nothing_and_destroy_takes_all_away(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    state, project = tmp_path / "state", tmp_path / "project"
    for folder in (state, project):
        folder.mkdir()
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(BIN.parent)}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "claims", "runtime": runtime}))
    kubeconfig = str(control_plane.kubeconfig)
    (project / "__main__.py").write_text(PROGRAM.format(kubeconfig=kubeconfig))
    given = os.environ | environment(tmp_path) | {"PULUMI_BACKEND_URL": f"file://{state}"}
    given["PATH"] = f"{BIN}:{given['PATH']}"

    def pulumi(*words: str) -> str:
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color=never"],
            cwd=project,
            env=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def classes() -> set[str]:
        found = control_plane.api.get("deviceclasses", "resource.k8s.io/v1")
        return {one["metadata"]["name"] for one in found}

    pulumi("stack", "init", "claims")
    pulumi("up", "--yes", "--skip-preview")
    try:
        assert {WHOLE, SHARE} <= classes()
        pulumi("preview", "--expect-no-changes")
    finally:
        pulumi("destroy", "--yes", "--skip-preview")
    assert not {WHOLE, SHARE} & classes()
    policies = control_plane.api.get("mutatingadmissionpolicies", "admissionregistration.k8s.io/v1")
    ours = {one["metadata"]["name"] for one in objects(limited=True)}
    assert not ours & {one["metadata"]["name"] for one in policies}
