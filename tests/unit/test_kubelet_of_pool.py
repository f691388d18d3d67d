"""Fields of kubelet's configuration by pool: the role's files, read by the real kubelet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.filter.kubelet_fields import kubelet_fields

from tests.schedulers.control_plane import tool

ROLE = Path(__file__).parents[2] / "roles/kubernetes_node"
PLAY = Path(sys.executable).with_name("ansible-playbook")


#: As the lock has it, and a host with 503 of its 512 GiB for Linux, and 64 CPUs.
ROOM = {
    "memory": {"base": 330, "percent": 5},
    "cpu": {"base": 80, "percent": 1},
    "processes": 4096,
}
#: As iproute2 prints them: another network on the interface of the default route.
ADDRESSES = """\
2: eth0    inet 192.0.2.11/24 brd 192.0.2.255 scope global eth0\\       valid_lft forever
2: eth0    inet6 2001:db8::11/64 scope global \\       valid_lft forever
3: eth1    inet 10.0.0.11/24 brd 10.0.0.255 scope global eth1\\       valid_lft forever
"""
SIZE: dict[str, Any] = {
    "files": {"memory": "MemTotal:       527433728 kB\nMemFree:        20684092 kB\n"},
    "commands": {"cpus": {"out": "64"}, "addresses": {"out": ADDRESSES}},
}
#: 330 MiB and 5 % of 503 GiB, in whole 64 MiB; 80 m and 1 % of 64 CPUs.
KEPT: dict[str, Any] = {"kubeReserved": {"cpu": "720m", "memory": "26112Mi"}, "podPidsLimit": 4096}


def rendered(
    folder: Path, fields: dict[str, Any], room: dict[str, Any] | None = None, **more: str
) -> tuple[str, str]:
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
    given = json.dumps(
        {
            "kubernetes_node_kubelet": fields,
            "kubernetes_node_room": room or {},
            "__kubernetes_node_size": SIZE,
            **more,
        }
    )
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


@pytest.mark.parametrize(
    ("of_site", "reached_at", "chosen"),
    [
        ("", "10.0.0.11", "10.0.0.11"),
        ("", "2001:db8::11", "2001:db8::11"),
        ("10.0.0.11", "192.0.2.11", "10.0.0.11"),
        # Behind address translation, or a name: kubelet chooses.
        ("", "203.0.113.7", ""),
        ("", "g1.example", ""),
        ("", "0.0.0.1", ""),
    ],
)
def test_a_node_has_the_address_by_which_it_is_reached(
    of_site: str, reached_at: str, chosen: str, tmp_path: Path
) -> None:
    given = {"kubernetes_node_ip": of_site, "kubernetes_node_address": reached_at}
    drop_in, _ = rendered(tmp_path, {}, **given)

    told = f" --node-ip={chosen}" if chosen else ""
    assert f'"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml{told}"' in drop_in


def test_kubelet_reads_the_pools_file(tmp_path: Path) -> None:
    """It says which value it does not take, before it touches anything: this one."""
    drop_in, text = rendered(tmp_path, {"topologyManagerPolicy": "single-numa-nod"}, ROOM)
    folder = tmp_path / "kubelet.conf.d"
    folder.mkdir()
    (folder / "50-pool.conf").write_text(text)
    whole = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    base = {**whole, "containerRuntimeEndpoint": f"unix://{tmp_path}/nothing.sock"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(base))

    assert "config.yaml --config-dir=/etc/bedplate/kubelet.conf.d" in drop_in
    assert yaml.safe_load(text) == {**whole, **KEPT, "topologyManagerPolicy": "single-numa-nod"}
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
    assert "eserved" not in done.stderr, "nothing else is wrong with the file"


@pytest.mark.parametrize(
    ("given", "room", "fields"),
    [
        ({}, ROOM, KEPT),
        ({"kubeReserved": {"cpu": "1"}}, ROOM, {"podPidsLimit": 4096}),
        ({"systemReserved": {"memory": "1Gi"}}, ROOM, {"podPidsLimit": 4096}),
        ({"podPidsLimit": -1}, ROOM, {"kubeReserved": KEPT["kubeReserved"]}),
        # The site has said it for the whole cluster: the lock has nothing of it.
        ({}, {"processes": 4096}, {"podPidsLimit": 4096}),
        ({}, {}, {}),
    ],
)
def test_what_a_node_keeps_is_the_sites_to_change(
    given: dict[str, Any], room: dict[str, Any], fields: dict[str, Any]
) -> None:
    meminfo, cpus = SIZE["files"]["memory"], SIZE["commands"]["cpus"]["out"]
    assert kubelet_fields(meminfo, cpus, room, given) == fields


def test_a_kernel_that_shows_less_memory_changes_no_file() -> None:
    less = "MemTotal:       527100000 kB\n"
    assert kubelet_fields(less, 64, ROOM, {}) == KEPT
    # Nothing is made up for a host that says nothing of its memory.
    assert kubelet_fields("", 64, ROOM, {}) == {"podPidsLimit": 4096}


@pytest.mark.parametrize("pods", ["-1", "0", "110.5", '"110"', "true", "110", None])
def test_a_number_of_pods_of_a_pool_is_one(pods: str | None, tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/validate.yml").read_text())
    (task,) = [one for one in tasks if "maxPods" in one["name"]]
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
    where = "localhost, kubernetes_node_kubelet.maxPods"
    refused = f"maxPods is not a positive whole number — {where} — got"
    assert (refused in done.stdout + done.stderr) is (pods not in ("110", None))
