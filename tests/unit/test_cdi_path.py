"""Where the CDI specification may be: what reads them takes files of certain names alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOUND = ("/etc/cdi/nvidia.yaml", "/run/cdi/gpus.yaml", "/var/run/cdi/nvidia.yaml")
#: The readers of the Container Device Interface (its SPEC.md) pass by what ends in neither .yaml
#: nor .json, and nvidia-ctk writes YAML into whatever it is told.
PASSED_BY = ("/etc/cdi/nvidia.yml", "/etc/cdi/nvidia", "/etc/cdi/a/nvidia.yaml", "/srv/nvidia.yaml")


def test_a_specification_that_runtimes_would_not_find_is_refused(tmp_path: Path) -> None:
    """Validation touches nothing: each path is one host, and all of them are this machine."""
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nvidia_container_toolkit_source": "vendor-repo",  # which needs no packages by digest
    }
    hosts = {
        f"h{number}": {**here, "nvidia_container_toolkit_cdi_spec": path}
        for number, path in enumerate([*FOUND, *PASSED_BY])
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    tasks = ROOT / "roles/nvidia_container_toolkit/tasks/validate.yml"
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"import_tasks": str(tasks)}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            f"--inventory={tmp_path / 'hosts.yml'}",
            tmp_path / "play.yml",
        ],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    refused = set(re.findall(r'"msg": "(.*)"', done.stdout))
    assert refused == {
        "the CDI specification would not be found — nvidia_container_toolkit_cdi_spec — "
        f"got {path} / allowed a .yaml file in /etc/cdi or /var/run/cdi — "
        "Use the default, /etc/cdi/nvidia.yaml."
        for path in PASSED_BY
    }, done.stdout + done.stderr
