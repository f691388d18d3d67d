"""Which container runtime a kubelet has: by the lock, in its unit, and never exchanged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.portable.runtime.state import SOCKETS, UNITS
from tests.unit.test_playbook_vars import HERE, ROOT, play

if TYPE_CHECKING:
    from pathlib import Path

ROLE = ROOT / "roles/kubernetes_node"
ENGINES = {"containerd": "containerd", "cri-o": "cri_o"}


def test_the_lock_says_where_kubelet_reaches_the_runtime_and_what_starts_before_it(
    tmp_path: Path,
) -> None:
    hosts = {
        name: HERE | {"__tests_cluster": {key: {"source": "archive"}}}
        for name, key in ENGINES.items()
    }
    unit = f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/kubelet.service.j2') }}}}"
    tasks = [
        {
            "ansible.builtin.debug": {"msg": f"<{{{{ kubernetes_node_cri_socket }}}}> {unit}"},
            "vars": {"__bedplate_shared": "{{ __tests_cluster }}"},
        }
    ]
    said = play(tmp_path, hosts, tasks, vars_files=[str(ROLE / "vars/main.yml")])
    found = re.findall(r"\[([\w-]+)\] => msg:.*?<(.*?)>.*?After=network-online.target (\S+)", said)
    assert {name: (socket, unit) for name, socket, unit in found} == {
        name: (SOCKETS[name], UNITS[name]) for name in ENGINES
    }, said


def test_a_node_that_has_joined_keeps_its_runtime(tmp_path: Path) -> None:
    containerd, crio = (f"runtime-endpoint: {SOCKETS[name]}\ntimeout: 30\n" for name in ENGINES)
    nodes: dict[str, tuple[bool, str | None, str]] = {
        "bare": (False, None, "cri-o"),
        "left": (False, containerd, "cri-o"),
        "same": (True, crio, "cri-o"),
        "longer": (True, containerd.replace("unix:///run", "unix:///var/run"), "containerd"),
        "quoted": (True, f'runtime-endpoint: "{SOCKETS["containerd"]}"\n', "containerd"),
        "bare_path": (True, "runtime-endpoint: /run/containerd/containerd.sock\n", "containerd"),
        "unsaid": (True, None, "cri-o"),
        "other": (True, containerd, "cri-o"),
        "back": (True, crio, "containerd"),
    }
    hosts: dict[str, Any] = {
        name: HERE
        | {
            "__kubernetes_node_now": {"exists": {"joined": joined}, "files": {"crictl": text}},
            "__tests_cluster": {ENGINES[wished]: {"source": "archive"}},
        }
        for name, (joined, text, wished) in nodes.items()
    }
    tasks = yaml.safe_load((ROLE / "tasks/validate.yml").read_text())
    (task,) = (one for one in tasks if one["name"].startswith("Refuse another container runtime"))
    task["vars"]["__bedplate_shared"] = "{{ __tests_cluster }}"
    said = play(tmp_path, hosts, [task])
    refused = dict(
        re.findall(r"fatal: \[(\w+)\].*?bedplate_container_runtime.name — (.*?) —", said)
    )
    assert refused == {
        "other": f"got {SOCKETS['cri-o']} / allowed {SOCKETS['containerd']}",
        "back": f"got {SOCKETS['containerd']} / allowed {SOCKETS['cri-o']}",
    }, said
