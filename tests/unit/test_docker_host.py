"""Hosts with Docker and without Kubernetes: nothing is changed under their users' containers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from tests.unit.test_playbook_vars import HERE, PLAYBOOKS, play

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"ansible.builtin.debug": {"msg": "the GPUs are asked for"}}


def tasks_of(book: str) -> list[dict[str, Any]]:
    """Return the tasks of a file, or of the last play of a playbook."""
    read = yaml.safe_load((PLAYBOOKS / book).read_text())
    return list(read[-1]["tasks"] if "hosts" in read[-1] else read)


def judging(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what of tasks refuses a host; whoever asks for holders of GPUs only says so."""
    found = []
    for task in tasks:
        if "ansible.builtin.fail" in task:
            found.append(task)
        elif task.get("bedplate.gpu.nvidia_driver_state", {}).get("unheld"):
            found.append(ASKED | {"when": task["when"]})
    return found


def docker(running: int, version: str = "26.1.5+dfsg1", live: bool = False) -> dict[str, Any]:
    """Return what Docker answers on a host."""
    info = {"ServerVersion": version, "ContainersRunning": running, "LiveRestoreEnabled": live}
    return {"code": 0, "out": json.dumps(info)}


def host(
    info: dict[str, Any] | None = None,
    *,
    slurm: bool = False,
    joined: bool = False,
    loaded: str = "535.1",
    disturbs: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return a host as the tasks before have found it."""
    return {
        **HERE,
        "__bedplate_reached": {"exists": {"joined": joined}},
        "__bedplate_docker": {
            "exists": {"slurm": slurm},
            "commands": {"info": info or {"code": 127, "out": ""}},
        },
        "__bedplate_docker_driver": {"disturbs": disturbs, "loaded": loaded},
        **more,
    }


def told(said: str, words: str) -> set[str]:
    """Return the hosts for which the play printed some words."""
    return set(re.findall(rf"\[(\w+)\](?:: FAILED!)? => (?:changed: false )?msg: .?{words}", said))


def test_nothing_is_changed_under_containers_of_docker(tmp_path: Path) -> None:
    hosts = {
        "bare": host(loaded="", disturbs=True),
        "same": host(docker(3)),
        "idle": host(docker(0, "20.10.24+dfsg1"), disturbs=True),
        "newer": host(docker(3, "20.10.24+dfsg1")),
        "longer": host(docker(1, "26.1.50")),
        "restored": host(docker(3, "20.10.24+dfsg1", live=True)),
        "stopped": host({"code": 1, "out": '{"ServerVersion": "", "ServerErrors": ["no socket"]}'}),
        "driver": host(docker(3), disturbs=True),
        "reboots": host(docker(3), disturbs=True, nvidia_driver_reboot_allowed=True),
        "upgrades": host(docker(3), disturbs=True, __bedplate_may_reboot="yes"),
        "stays": host(
            docker(3),
            disturbs=True,
            __bedplate_may_reboot=False,
            nvidia_driver_reboot_allowed=True,
        ),
        "slurm": host(slurm=True),
        "joined": host(joined=True),
    }
    work: dict[str, Any] = {"block": judging(tasks_of("tasks/docker_host.yml"))}
    work["vars"] = {"container_runtime_version": "26.1.5"}
    said = play(tmp_path, hosts, [work])
    assert told(said, "another Docker would end") == {"newer", "longer"}, said
    assert told(said, "the GPUs are asked for") == {"idle", "driver", "stays"}, said
    assert told(said, "the host is a node of Slurm, and") == {"slurm"}, said
    assert told(said, "the host is a node of a cluster, and") == {"joined"}, said
    assert (
        "the containers that run — newer — got 3 of them on Docker 20.10.24+dfsg1, to be 26.1.5 /"
        " allowed none, or live-restore — Stop them"
    ) in said, said


def test_hosts_of_docker_are_asked_before_anything_is_changed_on_them() -> None:
    (asks,) = (
        task
        for task in tasks_of("tasks/requirements.yml")
        if task.get("ansible.builtin.include_tasks") == "docker_host.yml"
    )
    assert asks["when"] == "container_runtime_engine == 'docker'"


def test_a_reset_refuses_containers_of_docker_before_the_toolkit_goes(tmp_path: Path) -> None:
    """Without the toolkit, which goes before the runtime, no container would start again."""
    tasks = tasks_of("reset.yml")
    names = [task["name"] for task in tasks]
    refuses = names.index("Refuse a host on which Docker runs containers")
    assert refuses < names.index("Take away what the roles brought")
    ids = {"one": "0a1b2c\n3d4e5f\n", "none": "", "down": ""}
    hosts = {
        name: HERE
        | {"__reset_found": {"commands": {"containers": {"out": out, "code": int(not out)}}}}
        for name, out in ids.items()
    }
    said = play(tmp_path, hosts, [tasks[refuses]])
    assert told(said, "Docker runs containers on this host") == {"one"}, said
    assert "got 2 of them / allowed none" in said


def test_an_upgrade_reboots_a_host_that_no_drain_empties() -> None:
    """All of it is changed at once there: what waits for a drain never comes to its turn."""
    text = (PLAYBOOKS / "upgrade_nodes.yml").read_text()
    (first,) = (
        one
        for one in re.split(r"\n\s+- name: ", text)
        if one.startswith("Change what disturbs no workload")
    )
    given = yaml.safe_load(first.split("\n", 1)[1])["vars"]
    allowed = "{{ upgrade_reboot_allowed | bool }}"
    assert given == dict.fromkeys(
        ("nvidia_driver_reboot_allowed", "gpu_sharing_reboot_allowed"), allowed
    )
