"""What verify finds on a host of Slurm, and what the lock makes of the cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.bedplate.gpu.plugins.filter.slurm_nodes import slurm_nodes

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence import slurm as slurm_evidence
from bedplate.portable.evidence.area import Wishes
from bedplate.portable.host import Host, Result
from bedplate.portable.slurm import gpus as slurm_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = {"name": "b1", "address": "192.0.2.9", "partition": "batch", "gpu": "t4", "count": 1}
PART = {
    "node": NODE,
    "controls": False,
    "nodes": ["b1"],
    "credential": "MUNGE:x:",
    "try_job": True,
}
GOOD = {
    "systemctl": "ActiveState=active\n",
    "sh": "",
    "scontrol ping": "Slurmctld(primary) at ctl is UP\n",
    "nvidia-smi": "<log><gpu><uuid>GPU-a</uuid><minor_number>0</minor_number></gpu></log>",
    "scontrol --oneliner": "NodeName=b1 Gres=gpu:t4:1 State=IDLE\n",
    "scontrol show": "ConstrainDevices       = yes\nConstrainCores = yes\nConstrainRAMSpace = yes\n"
    "TaskPlugin              = task/affinity,task/cgroup\n",
    "srun": "/dev/nvidia0\n",
}
MIG_ON = (
    "<log><gpu><uuid>GPU-a</uuid><minor_number>0</minor_number><mig_mode><current_mig>Enabled"
    "</current_mig></mig_mode><mig_devices>None</mig_devices></gpu></log>"
)


class Runner:
    """Commands with canned answers; a text is success, a Result is itself."""

    def __init__(self, **changed: str | Result) -> None:
        self.answers = GOOD | {key.replace("__", " --"): value for key, value in changed.items()}
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], _timeout: float, _env: object = None) -> Result:
        self.asked.append(list(argv))
        answer = self.answers.get(" ".join(argv[:2]), self.answers.get(argv[0], ""))
        return answer if isinstance(answer, Result) else Result(0, answer, "")


def collected(
    root: Path, runner: Runner, part: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    host = Host(str(root), runner)
    found = host_evidence.collect(host, Wishes(slurm=PART if part is None else part), ["slurm"])
    return {check["id"]: check for check in found["checks"]}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose links are right."""
    found = slurm_gpus.reported(0, str(GOOD["nvidia-smi"]), str)
    slurm_gpus.apply(str(tmp_path), slurm_gpus.compare(str(tmp_path), found))
    return tmp_path


def failures(checks: dict[str, dict[str, Any]]) -> list[str]:
    return evidence.failures(checks.values(), "b1")


def test_a_good_node_passes_everything(node: Path) -> None:
    checks = collected(node, Runner())
    assert {check["result"] for check in checks.values()} == {evidence.PASS}
    assert sorted(checks) == [
        "slurm.controller",
        "slurm.credential",
        "slurm.gres",
        "slurm.isolation",
        "slurm.job",
        "slurm.munge",
        "slurm.node",
        "slurm.slots",
        "slurm.slurmd",
    ]


def test_a_host_that_is_not_in_slurm_is_skipped(tmp_path: Path) -> None:
    checks = collected(tmp_path, Runner(), {})
    assert [check["result"] for check in checks.values()] == [evidence.SKIPPED]


@pytest.mark.parametrize(
    ("changed", "check", "told"),
    [
        (
            {"sh": Result(15, "", "unmunge: Error: Invalid credential\n")},
            "slurm.credential",
            "got unmunge: Error: Invalid credential / allowed valid",
        ),
        ({"systemctl": "ActiveState=failed\n"}, "slurm.slurmd", "got failed / allowed active"),
        (
            {"scontrol__oneliner": "NodeName=b1 Gres=gpu:t4:2 State=IDLE\n"},
            "slurm.gres",
            "got gpu:t4:2 / allowed gpu:t4:1",
        ),
        (
            {"scontrol__oneliner": "NodeName=b1 Gres=gpu:t4:1 State=IDLE+DRAIN Reason=disk [r]\n"},
            "slurm.node",
            "got drain+idle (disk) / allowed usable",
        ),
        (
            {"scontrol__oneliner": Result(1, "Node b1 not found\n", "")},
            "slurm.node",
            "got Slurm knows no such node / allowed b1",
        ),
        (
            {"scontrol show": GOOD["scontrol show"].replace("Devices       = yes", "Devices = no")},
            "slurm.isolation",
            "got ConstrainDevices=no / allowed ConstrainDevices=yes",
        ),
        (
            {"srun": "/dev/nvidia0\n/dev/nvidia1\n"},
            "slurm.job",
            "got 2 (opened /dev/nvidia0, /dev/nvidia1) / allowed 1",
        ),
        (
            {"srun": Result(1, "", "srun: error: Unable to allocate resources\n")},
            "slurm.job",
            "got srun: error: Unable to allocate resources / allowed a job that ends well",
        ),
        (
            {"nvidia-smi": GOOD["nvidia-smi"].replace("GPU-a", "GPU-b")},
            "slurm.slots",
            "got GPU-b has no slot (these are not so) / allowed nothing",
        ),
        # As of a card that is to be divided and has no instances.
        (
            {"nvidia-smi": MIG_ON},
            "slurm.slots",
            "got gpu0, 0 GPUs instead of 1 (these are not so) / allowed nothing",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else None,
)
def test_each_fault_is_told(
    node: Path, changed: dict[str, str | Result], check: str, told: str
) -> None:
    checks = collected(node, Runner(**changed))
    assert checks[check]["result"] == evidence.FAIL
    assert any(f"[{check}]" in message and told in message for message in failures(checks))


CAPS = ("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
MIG = {"gpu": "1g.10gb", "mode": "mig"}
SHARED = {"mode": "time-slicing", "shares": 4}


@pytest.mark.parametrize(
    ("wished", "gres", "opened", "told"),
    [
        (MIG, "gpu:1g.10gb:1", ["/dev/nvidia0", *CAPS], None),
        (
            MIG,
            "gpu:1g.10gb:1",
            ["/dev/nvidia0", *CAPS, "/dev/nvidia-caps/nvidia-cap21"],
            (
                "a job with one GPU can open that one only — b1 [slurm.job] — got 4 (opened"
                f" /dev/nvidia0, {', '.join(CAPS)}, /dev/nvidia-caps/nvidia-cap21) / allowed 3 —"
            ),
        ),
        (SHARED, "gpu:t4:1,shard:t4:4", ["/dev/nvidia0"], None),
        (
            SHARED,
            "gpu:t4:1,shard:t4:4",
            ["/dev/nvidia0", "/dev/nvidia1"],
            (
                "a job with one shard can open one GPU only — b1 [slurm.share] —"
                " got 2 (opened /dev/nvidia0, /dev/nvidia1) / allowed 1 —"
            ),
        ),
    ],
    ids=["instance", "instances", "share", "shares"],
)
def test_a_job_is_tried_in_the_way_in_which_jobs_share(
    node: Path, wished: dict[str, Any], gres: str, opened: list[str], told: str | None
) -> None:
    said = f"NodeName=b1 Gres={gres} State=IDLE\n"
    runner = Runner(scontrol__oneliner=said, srun="\n".join(opened) + "\n")
    checks = collected(node, runner, PART | {"node": NODE | wished})
    asked = [argv[-4] for argv in runner.asked if argv[0] == "srun"]
    assert asked == ["--gres=gpu:1"] + ["--gres=shard:1"] * (wished is SHARED)
    found = failures(checks)
    assert any(message.startswith(told) for message in found) if told else found == []


@pytest.mark.parametrize(
    ("opened", "told"),
    [
        ("/dev/nvidia0\n", None),
        (
            "/dev/nvidia0\n/dev/nvidia1\n",
            (
                "a container that asks for all GPUs can open those of its job only — b1"
                " [slurm.container] — got 2 (opened /dev/nvidia0, /dev/nvidia1) / allowed 1 —"
            ),
        ),
    ],
)
def test_a_container_of_a_job_is_tried_by_a_user_without_root(
    node: Path, opened: str, told: str | None
) -> None:
    runner = Runner(podman="podman version 4.3.1\n", srun=opened)
    checks = collected(node, runner, PART | {"podman": "4.3.1"})
    assert checks["slurm.podman"]["result"] == evidence.PASS
    (argv,) = [argv for argv in runner.asked if "sh" in argv and argv[0] == "srun"]
    assert argv[argv.index("setpriv") + 1] == "--reuid=65534"
    assert argv[-3:] == ["python3", "-c", slurm_evidence.OPENS]
    found = failures(checks)
    assert any(message.startswith(told) for message in found) if told else found == []


def test_another_podman_than_the_locks_is_told(node: Path) -> None:
    runner = Runner(podman="podman version 5.4.2\n")
    found = failures(collected(node, runner, PART | {"podman": "4.3.1"}))
    (message,) = found
    assert message.startswith("Podman at the lock's version — b1 [slurm.podman] — got 5.4.2 /")


def test_a_job_looks_for_every_file_of_every_gpu(tmp_path: Path) -> None:
    """The job's own program, on a machine whose files all can be opened."""
    for name in ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-caps/nvidia-cap12"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    links = tmp_path / "run/bedplate/slurm"
    links.mkdir(parents=True)
    for link, name in {"gpu0": "dev/nvidia1", "gpu0-gi": "dev/nvidia-caps/nvidia-cap12"}.items():
        (links / link).symlink_to(tmp_path / name)
    (links / "gpu1").symlink_to(tmp_path / "dev/nvidia9")
    program = slurm_evidence.OPENS
    for folder in ("/dev/", "/run/"):
        program = program.replace(f"'{folder}", f"'{tmp_path}{folder}")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert [Path(path).name for path in done.stdout.split()] == [
        "nvidia-cap12",
        "nvidia0",
        "nvidia1",
    ]


def test_a_silent_controller_is_one_failure_and_the_rest_is_skipped(node: Path) -> None:
    down = Result(1, "", "slurm_load_ctl_conf error: Unable to contact slurm controller\n")
    checks = collected(node, Runner(**{"scontrol ping": down}))
    assert len(failures(checks)) == 1
    skipped = {i for i, check in checks.items() if check["result"] == evidence.SKIPPED}
    assert skipped == {"slurm.node", "slurm.gres", "slurm.isolation", "slurm.job"}


@pytest.mark.parametrize(
    ("changed", "part", "reason"),
    [
        (
            {"scontrol__oneliner": "NodeName=b1 Gres=gpu:t4:1 State=MIXED\n"},
            {},
            "jobs run on the node, and none is to wait for this one",
        ),
        ({}, {"try_job": False}, "no job was to be run"),
        ({"systemctl": "ActiveState=inactive\n"}, {}, "slurmd does not run"),
        ({}, {"node": NODE | {"count": 0}}, "the node has no GPU"),
    ],
)
def test_no_job_is_run_where_none_can_be(
    node: Path, changed: dict[str, str], part: dict[str, Any], reason: str
) -> None:
    runner = Runner(**changed)
    checks = collected(node, runner, PART | part)
    assert (checks["slurm.job"]["result"], checks["slurm.job"]["reason"]) == ("skipped", reason)
    assert not any(argv[0] == "srun" for argv in runner.asked)


def test_the_controller_is_to_know_every_node(tmp_path: Path) -> None:
    part = PART | {"node": {}, "controls": True, "nodes": ["b1", "b2"]}
    checks = collected(tmp_path, Runner(), part)
    assert checks["slurm.slurmctld"]["result"] == evidence.PASS
    assert "slurm.slurmd" not in checks
    assert failures(checks) == [
        (
            "Slurm has the nodes that the site declares — b1 [slurm.nodes] —"
            " got b1 / allowed b1, b2 — Run bedplate.gpu.site for this host again."
        )
    ]


def test_a_controller_without_gpus_has_nothing_to_fail(tmp_path: Path) -> None:
    areas = ["kernel", "driver", "gpus", "health", "fabric", "sharing"]
    found = host_evidence.collect(Host(str(tmp_path), Runner()), Wishes(), areas)
    assert {check["result"] for check in found["checks"]} == {evidence.SKIPPED}


@pytest.mark.parametrize(
    ("wish", "result"),
    [
        ({"mode": "none"}, evidence.PASS),
        ({"mode": "mig", "mig_profiles": ["1g.10gb"]}, evidence.FAIL),
    ],
)
def test_sharing_wants_no_device_plugin_in_slurm(
    tmp_path: Path, wish: dict[str, Any], result: str
) -> None:
    runner = Runner(**{"nvidia-smi": "0, GPU-a, Disabled, Disabled, Default\n"})
    found = host_evidence.collect(Host(str(tmp_path), runner), Wishes(sharing=wish), ["sharing"])
    checks = {check["id"]: check["result"] for check in found["checks"]}
    assert checks["sharing.mig"] == result
    assert checks["sharing.replicas"] == checks["sharing.mps"] == evidence.SKIPPED


POOL = {
    "gpu": [{"model": "t4-16gb", "count": 4}],
    "sharing": {"mode": "none"},
    "expects": {"resource": "nvidia.com/gpu", "count": 4, "by": "slurm"},
}


def lock(*hosts: tuple[str, str | None], pool: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "hosts": {
            name: {"address": f"{name}.example", "pool": its, "groups": ["slurm"]}
            for name, its in hosts
        }
        | {"k1": {"address": "k1.example", "pool": "pool_k", "groups": ["gpu_pools"]}},
        "pools": {"pool_batch": POOL | (pool or {})},
    }


def test_the_host_without_a_pool_is_the_controller() -> None:
    made = slurm_nodes(lock(("b1", "pool_batch"), ("z", None)))
    assert (made["controller"], made["address"]) == ("z", "z.example")
    assert made["nodes"] == [
        {
            "name": "b1",
            "host": "b1",
            "address": "b1.example",
            "partition": "batch",
            "gpu": "t4-16gb",
            "count": 4,
            "cards": 4,
            "mode": "none",
            "shares": 0,
        }
    ]


def test_without_one_the_first_node_is_the_controller_too() -> None:
    made = slurm_nodes(lock(("b2", "pool_batch"), ("b1.rack1", "pool_batch")))
    assert made["controller"] == "b1.rack1"
    assert [node["name"] for node in made["nodes"]] == ["b2", "b1"]


def test_a_site_without_slurm_has_no_nodes() -> None:
    assert slurm_nodes(lock()) == {"controller": "", "address": "", "nodes": []}


def test_mig_devices_are_counted_as_the_lock_expects_them() -> None:
    pool = {
        "sharing": {"mode": "mig", "profile": "1g.10gb"},
        "expects": POOL["expects"] | {"count": 28},
    }
    (node,) = slurm_nodes(lock(("b1", "pool_batch"), pool=pool))["nodes"]
    assert (node["gpu"], node["count"], node["cards"]) == ("1g.10gb", 28, 4)
    assert node["mode"] == "mig"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lock(("c1", None), ("c2", None)),
            (
                "more than one Slurm controller — group slurm — got c1, c2, hosts in no pool /"
                " allowed one — Keep one of them in the group, and put the others into a pool or"
                " take them out."
            ),
        ),
        (
            lock(("b1.x", "pool_batch"), ("b1.y", "pool_batch")),
            (
                "two Slurm nodes have one name — group slurm — got b1.x, b1.y / allowed names that"
                " differ before the first dot — Rename one of them in the inventory."
            ),
        ),
        (
            lock(
                ("b1", "pool_batch"),
                pool={"gpu": [{"model": "a", "count": 1}, {"model": "b", "count": 1}]},
            ),
            (
                "GPUs of several models in one Slurm node — pool_batch — got a, b / allowed"
                " one model — Put hosts with equal GPUs into pools of their own."
            ),
        ),
    ],
    ids=["controllers", "names", "models"],
)
def test_what_slurm_cannot_have_is_refused(made: dict[str, Any], told: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        slurm_nodes(made)
    assert caught.value.message == told
