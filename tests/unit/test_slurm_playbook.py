"""What slurm.yml does with nodes that carry jobs: what waits, who is drained, in which order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
PLAY = Path(sys.executable).with_name("ansible-playbook")
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
#: Nobody listens at port 1.
LOST = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
PART = (
    {
        "ansible.builtin.include_role": {
            "name": "bedplate.gpu.slurm",
            "tasks_from": "part",
            "public": True,
        }
    },
)
KEPT = "driver 580.1 with its Fabric Manager and CUDA"
REBOOT = "a reboot into kernel 6.1"
WITH = ", with host_baseline_reboot_allowed=true"
UNCUT = "every GPU divided — n [sharing.mig] — got GPU 0=not divided / allowed GPU 0=7 x 1g.10gb"


def answers(
    folder: Path, hosts: dict[str, Any], words: str, *options: str, before: tuple[Any, ...] = ()
) -> dict[str, str]:
    """Ask hosts of Slurm, with what slurm.yml works out of what it knows, after some tasks."""
    inventory = {"all": {"children": {"slurm": {"hosts": hosts}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    asked = {"ansible.builtin.debug": {"msg": "<{{ " + words + " }}>"}}
    book = {"hosts": "slurm", "gather_facts": False, "tasks": [*before, asked]}
    book["vars_files"] = [str(PLAYBOOKS / "vars" / "slurm.yml")]
    path = folder / "play.yml"
    path.write_text(yaml.safe_dump([book], sort_keys=False))
    done = subprocess.run(
        [PLAY, "-i", folder / "hosts.yml", path, *options],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    told = re.findall(r'\[(\w+)\] => \{\s+"msg": "<(.*)>"', done.stdout)
    return {name: text.replace('\\"', '"') for name, text in told}


def found(*, node: bool = True, sharing: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """What the tasks of slurm.yml have found out of a host, as they register it."""
    driver = {"change": False, "disturbs": False, "loaded": "535.1"} | more.pop("driver", {})
    skipped = {"skipped": True, "changed": False}
    return {
        **HERE,
        "slurm_controller": "new",
        "nvidia_driver_version": "580.1",
        "nvidia_driver_source": "distro",
        "host_baseline_kernel": "",
        "__bedplate_slurm_host": {
            "exists": {"node": node},
            "commands": {"kernel": {"out": "6.0"}},
        },
        "__bedplate_slurm_driver": driver if node else skipped,
        "__bedplate_slurm_sharing": skipped if sharing is None else {"differences": sharing},
        **more,
    }


OTHER = {"driver": {"change": True, "disturbs": True}}
UNLOADED = {"driver": {"disturbs": True, "loaded": ""}}
BROKEN = {"driver": {"change": True, "disturbs": True, "loaded": ""}}
KERNEL = {"host_baseline_kernel": "6.1"}
BUILT = {"nvidia_driver_source": "precompiled"}
HOSTS = {
    "new": found(node=False, **KERNEL, host_baseline_reboot_allowed=True),
    "same": found(sharing=["x [sharing.boot]"], host_baseline_reboot_allowed=True),
    "other": found(**OTHER),
    "unloaded": found(**UNLOADED),
    "broken": found(**BROKEN),
    "uncut": found(sharing=[UNCUT]),
    "silent": found(sharing=["n [sharing.mig] — got no driver / allowed an answer — Run it."]),
    "both": found(**OTHER, sharing=[UNCUT]),
    "kernel": found(**KERNEL, host_baseline_reboot_allowed="yes"),
    "waits": found(**KERNEL),
    "built": found(**KERNEL, **OTHER, **BUILT),
    "boots": found(**KERNEL, **OTHER, **BUILT, host_baseline_reboot_allowed=True),
    "loads": found(**OTHER, **BUILT),
}
#: By host: whether the driver stays, whether the node is drained, and what is told to wait.
USUALLY = {
    "new": [False, False, []],
    "same": [False, False, []],
    "other": [True, False, [KEPT]],
    "unloaded": [False, True, []],
    "broken": [True, False, [KEPT]],
    "uncut": [False, True, []],
    "silent": [False, False, []],
    "both": [True, True, [KEPT]],
    "kernel": [False, False, [REBOOT]],
    "waits": [False, False, []],
    "built": [True, False, [KEPT, REBOOT + WITH]],
    "boots": [True, False, [KEPT, REBOOT]],
    "loads": [True, False, [KEPT]],
}
ALLOWED = {
    **{name: [False, drained, []] for name, (_, drained, _) in USUALLY.items()},
    **{name: [False, True, []] for name in ("other", "broken", "kernel", "boots", "loads")},
    "built": USUALLY["built"],
}


@pytest.mark.parametrize(
    ("options", "right"),
    [([], USUALLY), (["-e", "slurm_change_nodes=true"], ALLOWED)],
    ids=["usually", "allowed"],
)
def test_what_jobs_use_waits_or_they_end_first(
    tmp_path: Path, options: list[str], right: dict[str, Any]
) -> None:
    names = ("keeps_driver", "drains", "pending")
    words = ", ".join(f"__bedplate_slurm_{name}" for name in names)
    told = answers(tmp_path, HOSTS, "[" + words + "] | to_json", *options)
    assert {name: json.loads(text) for name, text in told.items()} == right


def test_a_driver_that_waits_is_not_touched(tmp_path: Path) -> None:
    kept = {"__bedplate_keeps_driver": "{{ __bedplate_slurm_keeps_driver }}"}
    stack = {"ansible.builtin.import_tasks": str(PLAYBOOKS / "tasks" / "nvidia_stack.yml")}
    more = {
        "nvidia_fabric_packages": {"nvidia-fabricmanager": "580.1"},
        "cuda_toolkit_versions": ["13.0.1"],
        "hpc_tools_packages": {},
        "__bedplate_sets_gpus": False,
        "__bedplate_driver_answers": True,
        "__bedplate_pool": {},
    }
    hosts = {name: HOSTS[name] | more for name in ("other", "same")}
    # The other's driver role asks for what this play does not have.
    told = answers(tmp_path, hosts, "'untouched'", before=({**stack, "vars": kept},))
    assert told == {"other": "untouched"}


def test_a_controller_that_is_lost_keeps_no_other_host_from_being_looked_at(
    tmp_path: Path,
) -> None:
    cluster = {"slurm_controller": "ctl", "slurm_controller_address": "ctl", "slurm_nodes": []}
    hosts = {"ctl": LOST | cluster, "b1": HERE | cluster}
    assert answers(tmp_path, hosts, "__slurm_part.credential", before=PART) == {"ctl": "", "b1": ""}


def names(tasks: list[dict[str, Any]]) -> list[str]:
    """What tasks do: roles with their entry points, files, and modules."""
    found = []
    for task in tasks:
        if "block" in task:
            found += names(task["block"])
            continue
        verb = next(key for key in task if "." in key)
        given = task[verb]
        if verb.endswith("_role"):
            role = given["name"].rpartition(".")[2]
            found.append(f"{role} {given['tasks_from']}" if "tasks_from" in given else role)
        elif verb.endswith("_tasks"):
            found.append(given)
        else:
            found.append(verb.rpartition(".")[2])
    return found


def test_jobs_end_before_anything_disturbs_and_cards_are_cut_before_slurm_reads_them() -> None:
    tasks = yaml.safe_load((PLAYBOOKS / "slurm.yml").read_text(encoding="utf-8"))[0]["tasks"]
    done = names(tasks)
    assert done[done.index("slurm drain") :] == [
        "slurm drain",
        "host_baseline install",
        "host_baseline configure",
        "tasks/nvidia_stack.yml",
        "nvidia_container_toolkit {{ 'main' if slurm_podman | length > 0 else 'remove' }}",
        "slurm",
        "slurm resume",
    ]
    stack = PLAYBOOKS / "tasks" / "nvidia_stack.yml"
    assert names(yaml.safe_load(stack.read_text(encoding="utf-8"))) == [
        "nvidia_driver change",
        "nvidia_fabric",
        "cuda_toolkit",
        "gpu_passthrough licence",
        "driver_users.yml",
        "hpc_tools",
    ]


def test_a_node_of_slurm_is_refused_before_anything_is_changed_on_it() -> None:
    """A host that was moved to gpu_pools has jobs, whose kernel and driver are not to go."""
    needs = yaml.safe_load((PLAYBOOKS / "tasks" / "requirements.yml").read_text(encoding="utf-8"))
    assert names(needs) == [
        "host_baseline validate",
        "nvidia_driver validate",
        "control_plane_endpoint validate",
        "kubernetes_node validate",
        "docker_host.yml",
    ]
    first = ["reach.yml", "requirements.yml"]
    plays = [
        play
        for book in ("hosts", "upgrade", "upgrade_nodes")
        for play in yaml.safe_load((PLAYBOOKS / f"{book}.yml").read_text(encoding="utf-8"))
        if "tasks" in play
    ]
    # What asks whether a control plane is to be upgraded changes nothing; this does then.
    control_plane = yaml.safe_load((PLAYBOOKS / "tasks/control_plane.yml").read_text("utf-8"))
    assert names(control_plane)[:2] == first
    for play in plays:
        done = [name.removeprefix("tasks/") for name in names(play["tasks"])]
        if "control_plane.yml" not in done:
            assert done[done.index(first[0]) :][:2] == first


def test_hosts_of_both_schedulers_carry_the_same_below_them() -> None:
    stack = yaml.safe_load((PLAYBOOKS / "tasks" / "gpu_stack.yml").read_text(encoding="utf-8"))
    assert names(stack)[0] == "nvidia_stack.yml"


def test_evidence_is_taken_of_every_runtime_that_can_be_decided() -> None:
    """The module refused Podman, and slurm.yml ended on hosts whose jobs run containers."""
    text = (ROOT / "plugins/modules/gpu_evidence.py").read_text(encoding="utf-8")
    (offered,) = re.findall(r"(?s)^CONTAINERS.*?\"choices\": (\[.*?\])", text, re.MULTILINE)
    decided = {one.value.runtime for one in load_catalogue().container_runtimes.values()}
    assert decided <= set(json.loads(offered))
