"""What playbooks work out by themselves, on hosts that need not be there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
PLAY = Path(sys.executable).with_name("ansible-playbook")
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
#: Nobody listens at port 1.
LOST = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def play(
    folder: Path,
    hosts: dict[str, Any],
    tasks: list[Any],
    planes: dict[str, Any] | None = None,
    **keys: Any,
) -> str:
    """Run tasks on hosts of gpu_pools with the playbooks' variables; return what was printed.

    `planes` are the control planes, none of which is in a pool.
    """
    groups = {"gpu_pools": {"hosts": hosts}, "control_plane": {"hosts": planes or {}}}
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"children": groups}}, sort_keys=False)
    )
    book = {
        "hosts": "gpu_pools",
        "gather_facts": False,
        "roles": [str(PLAYBOOKS / "roles" / "from_lock")],
        "vars_files": [str(PLAYBOOKS / "vars" / "upgrade.yml")],
        "tasks": tasks,
    }
    path = folder / "play.yml"
    path.write_text(yaml.safe_dump([book | keys], sort_keys=False))
    done = subprocess.run(
        [PLAY, "-i", folder / "hosts.yml", path],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_SSH_RETRIES": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_no_play_has_the_lock_read_again_for_each_task() -> None:
    """Ansible parses files of vars_files twice for each task of each host, a role's once."""
    plays = [play for path in PLAYBOOKS.glob("*.yml") for play in yaml.safe_load(path.read_text())]
    taking = [play for play in plays if "from_lock" in play.get("roles", [])]
    assert len(taking) >= 10
    assert not [play for play in plays if "vars/from_lock.yml" in play.get("vars_files", [])]


def test_a_host_that_is_lost_counts_against_the_upgrades_budget(tmp_path: Path) -> None:
    tasks = [
        {"ansible.builtin.command": "true", "changed_when": False},
        {
            "ansible.builtin.fail": {"msg": "this one failed"},
            "when": "inventory_hostname == 'two'",
        },
        {"ansible.builtin.debug": {"msg": "<{{ __upgrade_set_aside | sort | join('+') }}>"}},
    ]
    hosts = {"one": LOST, "two": HERE, "three": HERE, "four": HERE}
    said = play(tmp_path, hosts, tasks, serial=[3, 1])
    assert re.findall(r"msg: <(.*?)>", said) == ["one+two", "one+two"]


def test_a_node_of_a_cluster_that_the_site_does_not_have_is_left_alone(tmp_path: Path) -> None:
    tasks = [{"ansible.builtin.include_tasks": str(PLAYBOOKS / "tasks" / "exchange.yml")}]
    said = play(tmp_path, {"one": HERE}, tasks)
    assert "the node cannot be drained — one — got no host in control_plane / allowed " in said
    assert "failed=1" in said


def test_a_control_plane_that_answers_drains_and_opens_nodes(tmp_path: Path) -> None:
    """The first is down, the API of the second is: nobody has to reorder the inventory."""
    waves = yaml.safe_load((PLAYBOOKS / "upgrade_nodes.yml").read_text())[-1]["tasks"]
    (looks,) = (
        task for task in waves if "answering.yml" in str(task.get("ansible.builtin.import_tasks"))
    )
    assert "upgrade_control_plane" not in str(waves[: waves.index(looks)])

    def host(name: str, kubectl: str) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        for program, runs in (("kubectl", kubectl), ("python3", f'exec {sys.executable} "$@"')):
            path = tmp_path / name / program
            path.write_text(f"#!/bin/sh\nPATH={tmp_path / name}:$PATH\n{runs}\n")
            path.chmod(0o755)
        return HERE | {"ansible_python_interpreter": str(tmp_path / name / "python3")}

    lost = LOST | {"ansible_python_interpreter": sys.executable}
    asleep, awake = host("asleep", "echo 'connection refused' >&2; exit 1"), host("cp3", "echo ok")
    tasks = [
        {"ansible.builtin.import_tasks": str(PLAYBOOKS / "tasks" / "answering.yml")},
        {"ansible.builtin.debug": {"msg": "<{{ __upgrade_control_plane }}>"}},
    ]
    chosen = []
    for planes in ({"cp1": lost, "cp2": asleep, "cp3": awake}, {"cp1": lost, "cp2": asleep}):
        said = play(tmp_path, {"one": HERE, "two": HERE}, tasks, planes)
        chosen.append(re.findall(r"msg: <(.*?)>", said))
        assert "failed=1" not in said, said
        assert re.search(r"one : .*? unreachable=0 ", said), said
    assert chosen == [["cp3"] * 2, ["cp1"] * 2]


def test_no_node_is_emptied_for_modules_of_a_kernel_that_it_may_not_boot(tmp_path: Path) -> None:
    waits = {"pending": ["kernel 6.1.0-50-amd64"], "reboot_required": True}
    built = HERE | {"source": "precompiled", "__host_baseline_pinned": waits}
    hosts = {
        "waits": built,
        "moves": built | {"reboots": True},
        "builds": built | {"source": "distro"},
        "runs": built | {"__host_baseline_pinned": {"pending": [], "reboot_required": False}},
        "free": built | {"__host_baseline_pinned": {"skipped": True}},
    }
    pool = {"kernel": "6.1.0-50-amd64", "nvidia_driver": {"source": "{{ source }}"}}
    tasks = [
        {
            "ansible.builtin.include_tasks": str(PLAYBOOKS / "tasks" / "exchange.yml"),
            "vars": {
                "upgrade_reboot_allowed": "{{ reboots | default(false) }}",
                "__upgrade_control_plane": "cp",
                "__bedplate_pool": pool,
            },
        }
    ]
    said = play(tmp_path, hosts, tasks)
    message = (
        "node is not drained: the driver's modules need another kernel, and reboots are not allowed"
        " — {} — got no reboot / allowed a reboot into kernel 6.1.0-50-amd64, for which the"
        " driver is built — Run bedplate.gpu.upgrade with -e upgrade_reboot_allowed=true."
    )
    assert [name for name in hosts if message.format(name) in said] == ["waits"], said
    # The others go on, to where this site's lock is missed.
    gone_on = re.findall(
        r"fatal: \[(\w+)\]: FAILED! => changed: false msg: 'Task failed: Fin", said
    )
    assert sorted(gone_on) == sorted({*hosts} - {"waits"}), said


def test_no_node_is_emptied_for_cards_that_only_a_boot_sets_free(tmp_path: Path) -> None:
    held = HERE | {"__nvidia_driver_module": {"boot_needed": True, "pending": ["the module"]}}
    hosts = {"waits": held, "moves": held | {"reboots": True}, "free": HERE}
    tasks = [
        {
            "ansible.builtin.include_tasks": str(PLAYBOOKS / "tasks" / "exchange.yml"),
            "vars": {
                "upgrade_reboot_allowed": "{{ reboots | default(false) }}",
                "__upgrade_control_plane": "cp",
                "__bedplate_pool": {"nvidia_driver": {"source": "distro"}},
            },
        }
    ]
    said = play(tmp_path, hosts, tasks)
    message = "the node would be drained for a driver that gets no GPU before a boot — {} —"
    assert [name for name in hosts if message.format(name) in said] == ["waits"], said


def test_a_node_is_drained_for_a_kernel_only_where_it_may_reboot(tmp_path: Path) -> None:
    reached = {"exists": {"proxy": False}}
    base = {**HERE, "__bedplate_reached": reached}
    pinned = {"pending": ["kernel 6.1.0-50-amd64"]}
    hosts = {
        "waits": {**base, "__host_baseline_pinned": pinned},
        "moves": {**base, "__host_baseline_pinned": pinned, "reboots": True},
        "runs": {**base, "__host_baseline_pinned": {"pending": []}, "reboots": True},
        # No kernel is pinned: the task that says more was skipped.
        "free": {**base, "__host_baseline_pinned": {"skipped": True}, "reboots": True},
    }
    asked = {"upgrade_reboot_allowed": "{{ reboots | default(false) }}"}
    line = "<{{ inventory_hostname }}: {{ __upgrade_pending | join('; ') }}>"
    said = play(tmp_path, hosts, [{"ansible.builtin.debug": {"msg": line}, "vars": asked}])
    found = dict(re.findall(r"msg: ['\"]?<(\w+): (.*?)>", said))
    assert found == dict.fromkeys(hosts, "") | {"moves": "kernel 6.1.0-50-amd64"}, said


def test_only_a_node_is_drained_for_a_way_out_that_goes(tmp_path: Path) -> None:
    hosts = {
        name: HERE | {"__bedplate_reached": {"exists": {"proxy": proxy, "joined": joined}}}
        for name, proxy, joined in (
            ("node", True, True),
            ("yet-to-join", True, False),
            ("never-had-one", False, True),
        )
    }
    line = "<{{ inventory_hostname }}: {{ __upgrade_pending | join('; ') }}>"
    said = play(tmp_path, hosts, [{"ansible.builtin.debug": {"msg": line}}])
    found = dict(re.findall(r"msg: ['\"]?<([\w-]+): (.*?)>", said))
    expected = dict.fromkeys(hosts, "") | {"node": "the outbound proxy"}
    assert found == expected, said


def test_an_upgrade_does_not_fail_for_what_it_does_not_bring(tmp_path: Path) -> None:
    """Else a good driver would be taken back, because a kernel is yet to come."""
    line = "<{{ inventory_hostname }}: {{ __upgrade_waits | join(' ') }}>"
    asked = {"upgrade_reboot_allowed": "{{ reboots | default(false) }}"}
    hosts = {"stays": HERE, "reboots": HERE | {"reboots": True}}
    said = play(tmp_path, hosts, [{"ansible.builtin.debug": {"msg": line}, "vars": asked}])
    found = dict(re.findall(r"msg: ['\"]?<(\w+): (.*?)>", said))
    kept = "certificates.ends certificates.authorities certificates.in_use secrets.encrypted"
    kept += " etcd.healthy etcd.members etcd.room etcd.disk"
    assert found == {"stays": f"{kept} baseline.kernel", "reboots": kept}, said
    plays = "".join(
        (PLAYBOOKS / f"{name}.yml").read_text() for name in ("upgrade", "upgrade_nodes")
    )
    looks = re.findall(r"tasks_from: verify\n(?: +#.+\n)? +vars: {gpu_verify_waits: (.+)}\n", plays)
    # No driver is taken back because of an etcd that is not well.
    assert looks == [
        """"{{ __upgrade_waits | difference(['etcd.healthy']) }}\"""",
        '"{{ __upgrade_waits }}"',
    ]


def test_a_driver_is_built_for_the_kernel_that_a_node_keeps_for_now(tmp_path: Path) -> None:
    hosts: dict[str, Any] = {
        "waits": HERE | {"__host_baseline_pinned": {"pending": ["kernel 6.1.0-50-amd64"]}},
        "runs": HERE | {"__host_baseline_pinned": {"pending": []}},
        "unasked": HERE,
    }
    of_the_pool = {"__bedplate_pool": {"kernel": "6.1.0-50-amd64"}}
    asked = {"ansible.builtin.debug": {"msg": "<{{ nvidia_driver_kernel }}>"}, "vars": of_the_pool}
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", play(tmp_path, hosts, [asked])))
    assert found == {"waits": "", "runs": "6.1.0-50-amd64", "unasked": "6.1.0-50-amd64"}


def test_what_must_equal_the_driver_goes_with_it(tmp_path: Path) -> None:
    driver = {"version": "535.1", "packages": {"libcuda1": "535.1-1", "nvidia-smi": "535.1-1"}}
    fabric = {"kind": "nvswitch", "version": "535.1", "packages": {"nvidia-fabricmanager": "535.1"}}
    pools: dict[str, Any] = {
        "plain": {"sharing": {"mode": "none"}, "nvidia_fabric": None},
        "shared": {"sharing": {"mode": "mps"}},
        "joined": {"sharing": {"mode": "none"}, "nvidia_fabric": fabric},
    }
    hosts = {
        name: HERE | {"__tests_pool": pool | {"nvidia_driver": driver}}
        for name, pool in pools.items()
    }
    words = "<{{ nvidia_driver_packages.keys() | difference(['libcuda1', 'nvidia-smi']) | join }}>"
    tasks = [
        {
            "ansible.builtin.debug": {"msg": words},
            "vars": {"__bedplate_pool": "{{ __tests_pool }}"},
        }
    ]
    said = play(tmp_path, hosts, tasks)
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", said))
    assert found == {"plain": "", "shared": "nvidia-cuda-mps", "joined": "nvidia-fabricmanager"}


def test_evidence_looks_at_the_daemon_of_mps_with_the_driver(tmp_path: Path) -> None:
    driver = {"packages": {"libcuda1": "535.1-1"}}
    pools: dict[str, Any] = {
        "shared": {"sharing": {"mode": "mps"}, "nvidia_driver": driver},
        "whole": {"sharing": {"mode": "none"}, "nvidia_driver": driver},
        # Of NVIDIA's installer there are no packages.
        "installer": {"sharing": {"mode": "mps"}, "nvidia_driver": {"packages": {}}},
        # A control plane has no pool.
        "without": {},
    }
    hosts = {name: HERE | {"__tests_pool": pool} for name, pool in pools.items()}
    tasks = [
        {
            "ansible.builtin.debug": {
                "msg": "<{{ gpu_verify_driver_packages.items() | map('join', '=') | join(' ') }}>"
            },
            "vars": {"__bedplate_pool": "{{ __tests_pool }}"},
        }
    ]
    said = play(tmp_path, hosts, tasks)
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", said))
    assert found == {
        "shared": "libcuda1=535.1-1 nvidia-cuda-mps=535.1-1",
        "whole": "libcuda1=535.1-1",
        "installer": "",
        "without": "",
    }, said


def test_evidence_asks_for_the_holds_of_the_runtimes_packages(tmp_path: Path) -> None:
    vendors = {"docker-ce": "5:29", "containerd.io": "2.2"}
    runtimes: dict[str, tuple[str, dict[str, Any], str]] = {
        "archive": ("containerd", {"source": "archive"}, ""),
        "distro": ("containerd", {"source": "distro"}, "containerd"),
        "docker": ("docker", {"source": "distro", "packages": {}}, "docker.io"),
        "vendors": (
            "docker",
            {"source": "vendor-repo", "packages": vendors},
            "docker-ce containerd.io",
        ),
    }
    hosts = {
        name: HERE | {"__tests_cluster": {engine: runtime, "pause": {"version": "3.10.2"}}}
        for name, (engine, runtime, _) in runtimes.items()
    }
    path = ROOT / "roles/container_runtime/vars/main.yml"
    distro = yaml.safe_load(path.read_text())["__container_runtime_distro"]
    words = "<{{ gpu_verify_containers.packages | join(' ') }}>"
    tasks = [
        {
            "ansible.builtin.debug": {"msg": words},
            "vars": {"__bedplate_shared": "{{ __tests_cluster }}"},
        }
    ]
    said = play(tmp_path, hosts, tasks)
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", said))
    assert found == {name: packages for name, (_, _, packages) in runtimes.items()}, said
    assert [distro["containerd"], distro["docker"]] == [found["distro"], found["docker"]]


def test_evidence_asks_for_no_runtime_of_a_site_of_slurm_alone(tmp_path: Path) -> None:
    cluster = {"containerd": {"source": "distro"}, "pause": {"version": "3.10.2"}}
    hosts = {
        "slurm": HERE | {"__tests_cluster": {}},
        "kubernetes": HERE | {"__tests_cluster": cluster},
    }
    words = (
        "<{{ gpu_verify_containers.runtime if gpu_verify_containers | length > 0 else 'none' }}>"
    )
    tasks = [
        {
            "ansible.builtin.debug": {"msg": words},
            "vars": {"__bedplate_shared": "{{ __tests_cluster }}"},
        }
    ]
    said = play(tmp_path, hosts, tasks)
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", said))
    assert found == {"slurm": "none", "kubernetes": "containerd"}, said


def test_a_compute_mode_is_set_on_cards_that_nobody_shares_too(tmp_path: Path) -> None:
    asks = yaml.safe_load((PLAYBOOKS / "tasks" / "driver_users.yml").read_text())
    (shares,) = (task for task in asks if task["name"] == "GPU sharing")
    none = HERE | {"__tests_mode": "none", "__bedplate_reached": {"exists": {"layout": False}}}
    hosts = {
        "plain": none,
        "modeless": none | {"gpu_sharing_compute_mode": "default"},
        "exclusive": none | {"gpu_sharing_compute_mode": "exclusive-process"},
        "sliced": none | {"__tests_mode": "time-slicing"},
        # What an earlier run has set is taken back.
        "back": none | {"__bedplate_reached": {"exists": {"layout": True}}},
    }
    asked = {
        "ansible.builtin.debug": {"msg": "<goes>"},
        "when": shares["when"],
        "vars": {"gpu_sharing_mode": "{{ __tests_mode }}"},
    }
    said = play(tmp_path, hosts, [asked])
    found = re.findall(r"\[(\w+)\] => msg: <goes>", said)
    assert sorted(found) == ["back", "exclusive", "sliced"], said


def test_a_key_is_made_only_where_a_module_is_built(tmp_path: Path) -> None:
    install = yaml.safe_load((ROOT / "roles/host_baseline/tasks/install.yml").read_text())
    (made,) = (task for task in install if "bedplate.gpu.module_signing" in task)
    base = HERE | {"host_baseline_secure_boot": True}
    hosts = {
        "built": base | {"__tests_pool": {"nvidia_driver": {"source": "distro"}}},
        "precompiled": base | {"__tests_pool": {"nvidia_driver": {"source": "precompiled"}}},
        "without": base | {"__tests_pool": {}},
    }
    role = str(ROOT / "roles/host_baseline/vars/main.yml")
    asked = {
        "ansible.builtin.debug": {"msg": "<makes a key>"},
        "when": made["when"],
        "vars": {"__bedplate_pool": "{{ __tests_pool }}", "host_baseline_secure_boot": True},
    }
    said = play(tmp_path, hosts, [{"ansible.builtin.include_vars": role}, asked])
    assert re.findall(r"\[(\w+)\] => msg: <makes a key>", said) == ["built"], said


def test_evidence_compares_with_what_each_role_says(tmp_path: Path) -> None:
    pool: dict[str, Any] = {"os": "debian-12", "kernel": "6.1.0-50-amd64", "gpu": []}
    full = pool | {
        "cuda_toolkit": ["12.6.3"],
        "rdma": {"stack": "inbox", "method": "dma-buf"},
        "nvidia_driver": {"source": "distro"},
    }
    hosts = {
        "plain": HERE | {"__tests_pool": {"gpu": []}},
        "full": HERE | {"__tests_pool": full},
        # A host that cannot be reached stays among those that are looked at.
        "lost": LOST | {"__tests_pool": full},
    }
    wanted = {
        "kernel": "gpu_verify_baseline.kernel",
        "held": "gpu_verify_baseline.kernel_packages | length > 0",
        "headers": "gpu_verify_baseline.headers",
        "cuda": "gpu_verify_cuda.packages | default({})",
        "rdma": "gpu_verify_rdma.nccl is defined",
    }
    words = ", ".join(f"'{key}': {value}" for key, value in wanted.items())
    actions: list[dict[str, Any]] = [
        {"ansible.builtin.include_tasks": str(PLAYBOOKS / "tasks" / "evidence.yml")},
        {"ansible.builtin.debug": {"msg": f"{{{{ '<' ~ ({{{words}}} | to_json) ~ '>' }}}}"}},
    ]
    of_the_pool = {"vars": {"__bedplate_pool": "{{ __tests_pool }}"}}
    said = play(tmp_path, hosts, [action | of_the_pool for action in actions])
    found = {
        name: json.loads(text) for name, text in re.findall(r"\[(\w+)\] => msg: '?<(.*?)>", said)
    }
    cuda = {"cuda-toolkit-12-6": "12.6.3-1"}
    alike = {"kernel": "6.1.0-50-amd64", "held": True, "headers": True, "cuda": cuda}
    nothing = {"kernel": "", "held": False, "headers": False, "cuda": {}, "rdma": False}
    assert found == {
        "plain": nothing,
        "full": alike | {"rdma": True},
        "lost": alike | {"rdma": False},
    }


#: The version of a joined node's kubelet is the cluster stack's, which drains the node itself.
OF_THE_CLUSTER_STACK = {"__kubernetes_node_archives"}


def said_to_wait(text: str) -> set[str]:
    """Name the answers that a task file's words of what waits are taken from."""
    found: set[str] = set()
    words = "deferred until the node is drained"
    for said in re.findall(rf'msg: "(?:{words})[^"]*"', text):
        names = re.findall(r"__\w+", said)
        # A variable of the task adds several up.
        told = [
            said,
            *(t for name in names for t in re.findall(rf"^ +{name}: (.+)$", text, re.MULTILINE)),
        ]
        found |= set(re.findall(r"(__\w+)\.pending", "\n".join(told)))
    return found


def test_what_a_role_says_waits_has_upgrade_drain_the_node() -> None:
    answers = yaml.safe_load((PLAYBOOKS / "vars/upgrade.yml").read_text())["__upgrade_answers"]
    files = [*ROOT.glob("roles/*/tasks/*.yml"), *PLAYBOOKS.glob("tasks/*.yml")]
    waiting = {name for file in files for name in said_to_wait(file.read_text())}
    assert len(waiting) > 6
    assert waiting - OF_THE_CLUSTER_STACK <= set(answers)
    registered = "\n".join(file.read_text() for file in files)
    assert [
        a for a in answers if not re.search(rf"(register: |^ +){a}\b", registered, re.MULTILINE)
    ] == []


def test_roles_get_the_layout_of_gpus_that_differ(tmp_path: Path) -> None:
    layout = [{"cards": [0], "profiles": {"1g.10gb": 2, "3g.40gb": 1}}, {"cards": [1]}]
    gpu = [{"model": "a100-sxm4-80gb", "count": 2}]
    words = {"memory": "isolated", "compute": "isolated"}
    pools = {
        "mixed": {"sharing": {"mode": "mig", "layout": layout, **words}, "expects": {"count": 1}},
        "equal": {
            "sharing": {"mode": "mig", "profile": "3g.40gb", **words},
            "expects": {"count": 4},
        },
        "whole": {"sharing": {"mode": "none", **words}, "expects": {"count": 2}},
    }
    hosts = {name: HERE | {"mine": pool | {"gpu": gpu}} for name, pool in pools.items()}
    names = "gpu_sharing_mig_profiles, gpu_sharing_mig_layout, nvidia_device_plugin_sharing"
    task = {
        "ansible.builtin.debug": {"msg": f"<{{{{ [{names}] | to_json }}}}>"},
        "vars": {"__bedplate_pool": "{{ mine }}"},
    }
    printed = play(tmp_path, hosts, [task])
    found = dict(re.findall(r"ok: \[(\w+)\] => msg: '?<(.*?)>", printed))
    assert {name: json.loads(text) for name, text in found.items()} == {
        "mixed": [[], layout, {"mode": "mig", "layout": layout}],
        "equal": [["3g.40gb", "3g.40gb"], [], {"mode": "mig", "profile": "3g.40gb"}],
        "whole": [[], [], {"mode": "none"}],
    }, printed


def test_nodes_of_courses_on_nfs_get_its_client(tmp_path: Path) -> None:
    server, folder = {"nfs": {"server": "nas", "path": "/srv"}}, {"path": "/srv"}
    courses = {"intro": {"pool": "pool_class"}}
    several = {"intro": {"pool": "pool_first", "then": [{"pool": "pool_class", "shares": 3}]}}
    clusters: dict[str, tuple[str | None, dict[str, Any]]] = {
        "homes": ("pool_class", {"courses": courses, "storage": {"homes": server}}),
        "data": ("pool_class", {"courses": courses, "storage": {"datasets": {"mnist": server}}}),
        "other_pool": ("pool_train", {"courses": courses, "storage": {"homes": server}}),
        "control_plane": (None, {"courses": courses, "storage": {"homes": server}}),
        "folder": ("pool_class", {"courses": courses, "storage": {"homes": folder}}),
        "second": ("pool_class", {"courses": several, "storage": {"homes": server}}),
        "no_storage": ("pool_class", {"courses": courses}),
        "no_courses": ("pool_class", {}),
    }
    hosts = {
        name: HERE | {"__tests_host": {"pool": pool}, "__tests_cluster": cluster}
        for name, (pool, cluster) in clusters.items()
    }
    of_the_lock = {
        "__bedplate_host": "{{ __tests_host }}",
        "__bedplate_cluster": "{{ __tests_cluster }}",
    }
    asked = {"ansible.builtin.debug": {"msg": "<{{ kubernetes_node_nfs }}>"}, "vars": of_the_lock}
    found = dict(re.findall(r"\[(\w+)\] => msg: <(.*?)>", play(tmp_path, hosts, [asked])))
    assert found == {name: str(name in {"homes", "data", "second"}) for name in clusters}


def test_hosts_trust_the_hubs_certificate_for_its_registry_alone(tmp_path: Path) -> None:
    (tmp_path / ".hub.pem").write_text("of the hub")
    at = ["hub.example:30123", "hub.example.org:30123", "my.hub.example:30123", "hub.example"]
    images = {one: {"image": f"{one}/intro/course@sha256:0"} for one in at}
    names = [("by_host", None)]
    names += [(one, "https://hub.example") for one in ("named", "plain", "none")]
    hosts = {"b": {"address": "other", "groups": ["control_plane"]}}
    hosts["a"] = {"address": "hub.example", "groups": ["control_plane"]}
    tasks = []
    for name, url in names:
        hub = {"url": url} | ({} if name == "plain" else {"certificate": ".hub.pem"})
        courses = {"intro": {"registry_mib": 0 if name == "none" else 20}}
        lock = {"cluster": {"hub": hub, "images": images, "courses": courses}, "hosts": hosts}
        said = f"<{name} {{{{ container_runtime_registry_authorities | to_json }}}}>"
        tasks.append({"ansible.builtin.debug": {"msg": said}, "vars": {"__bedplate_lock": lock}})
    said = dict(re.findall(r"<(\w+) (.*?)>", play(tmp_path, {"one": HERE}, tasks)))
    its = '{"hub.example": "of the hub", "hub.example:30123": "of the hub"}'
    assert said == {"named": its, "by_host": its, "plain": "{}", "none": "{}"}
