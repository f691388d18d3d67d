"""Fields of kubelet's configuration by pool: the role's files, read by the real kubelet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.schedulers.control_plane import tool

ROLE = Path(__file__).parents[2] / "roles/kubernetes_node"
PLAY = Path(sys.executable).with_name("ansible-playbook")


def rendered(folder: Path, fields: dict[str, Any]) -> tuple[str, str]:
    """Return the unit's drop-in and the pool's file, as the role's templates make them."""
    templates = {"drop-in": "10-kubeadm.conf.j2", "50-pool.conf": "kubelet-pool.conf.j2"}
    tasks = [
        {"ansible.builtin.template": {"src": str(ROLE / "templates" / source), "dest": dest}}
        for dest, source in ((str(folder / name), one) for name, one in templates.items())
    ]
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": tasks,
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = json.dumps({"kubernetes_node_kubelet": fields})
    done = subprocess.run(
        [PLAY, "-i", "localhost,", "-c", "local", "-e", given, folder / "play.yml"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "drop-in").read_text(), (folder / "50-pool.conf").read_text()


def test_without_fields_kubelet_has_one_configuration(tmp_path: Path) -> None:
    drop_in, _ = rendered(tmp_path, {})

    assert '"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"' in drop_in


def test_kubelet_reads_the_pools_file(tmp_path: Path) -> None:
    """It says which value it does not take, before it touches anything: this one."""
    drop_in, text = rendered(tmp_path, {"topologyManagerPolicy": "single-numa-nod"})
    folder = tmp_path / "kubelet.conf.d"
    folder.mkdir()
    (folder / "50-pool.conf").write_text(text)
    whole = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    base = {**whole, "containerRuntimeEndpoint": f"unix://{tmp_path}/nothing.sock"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(base))

    assert "config.yaml --config-dir=/etc/bedplate/kubelet.conf.d" in drop_in
    assert yaml.safe_load(text) == {**whole, "topologyManagerPolicy": "single-numa-nod"}
    done = subprocess.run(
        [
            tool("kubernetes") / "kubelet",
            f"--config={tmp_path}/config.yaml",
            f"--config-dir={folder}",
            f"--root-dir={tmp_path}/root",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert 'topologyManagerPolicy (--topology-manager-policy) \\"single-numa-nod\\"' in done.stderr


@pytest.mark.parametrize("pods", ["-1", "0", "110.5", '"110"', "true", "110", None])
def test_a_number_of_pods_of_a_pool_is_one(pods: str | None, tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/validate.yml").read_text())
    (task,) = [one for one in tasks if "number of pods" in one["name"]]
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    fields = "{}" if pods is None else f'{{"maxPods": {pods}}}'
    done = subprocess.run(
        [
            *(PLAY, "-i", "localhost,", "-c", "local", tmp_path / "play.yml"),
            *("-e", f'{{"kubernetes_node_kubelet": {fields}}}'),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) is (pods in ("110", None))
    refused = "no number of pods — localhost, kubernetes_node_kubelet.maxPods — got"
    assert (refused in done.stdout + done.stderr) is (pods not in ("110", None))
