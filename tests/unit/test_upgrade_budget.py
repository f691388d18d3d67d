"""When upgrade.yml begins no further wave: the playbook itself, on hosts that need not be there.

Reached hosts are this machine, on which the roles are stand-ins that only say that they were asked:
what is looked at is who gets a turn, who is told what, and what is left as evidence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.site.cluster import recap
from tests.unit.bill.made import make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: Reached by the connection that the command line names: the plan wants hosts over SSH.
HERE: dict[str, Any] = {"ansible_python_interpreter": sys.executable}
#: Nobody listens at port 1.
LOST: dict[str, Any] = {
    "ansible_connection": "ssh",
    "ansible_host": "127.0.0.{}",
    "ansible_port": 1,
}
#: Reached, and its driver fails in whatever way.
SICK = HERE | {"tests_fault": "the driver is not healthy"}
WISHES = {
    "bedplate_host": {"os": "debian-12", "kind": "bare-metal"},
    "bedplate_gpu": {"model": "t4-16gb", "count": 1},
    "bedplate_driver": {"branch": "580", "flavour": "open", "source": "vendor-repo"},
    "bedplate_kubernetes": {"version": "1.36", "endpoint": "192.0.2.1:6443", "cni": "flannel"},
    "bedplate_sources": {"mode": "mirror", "url": "http://192.0.2.2:5080", "packages": "hosts"},
}
#: In place of a role's tasks. The driver's fail where it is not healthy, as the role's own do.
ENTRY = """\
- ansible.builtin.debug: {{msg: "{role} {entry}"}}
- ansible.builtin.fail: {{msg: "{{{{ tests_fault }}}}"}}
  when: "'{role} {entry}' == 'nvidia_driver change' and tests_fault is defined"
"""
#: What a host is given that needs nothing exchanged, and one that has no turn.
WHOLE = [
    "host_baseline validate",
    "nvidia_driver validate",
    "kubernetes_node validate",
    "host_baseline configure",
    "nvidia_driver change",
    "hpc_tools main",
    "container_runtime main",
    "nvidia_container_toolkit main",
    "kubernetes_node install",
    "kubernetes_node configure",
    "nvidia_device_plugin main",
    "host_baseline part",
    "hpc_tools part",
    "gpu_verify verify",
]
NOTHING: list[str] = []
ASKED = re.compile(r"^ok: \[(\w+)\] => \n    msg: ([a-z_]+ [a-z_]+)$", re.MULTILINE)
REFUSED = re.compile(r"^\[ERROR\]: .*?Action failed: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Upgrade:
    """What a run of upgrade.yml came to.

    Attributes:
        asked: the entry points of roles that each host was given, in their order.
        told: what hosts failed with, each message whole.
        failed: the hosts that count as failed in the end.
        reasons: why a host was set aside, as its evidence says.
    """

    status: int
    asked: Mapping[str, list[str]]
    told: set[str]
    failed: set[str]
    reasons: Mapping[str, str]
    output: str


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_ins(tmp_path_factory.mktemp("collections"))


def stand_ins(folder: Path) -> Path:
    """The collection with its own playbooks and plugins, and stand-ins of its roles."""
    place = folder / "ansible_collections/bedplate/gpu"
    place.mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "playbooks", "plugins"):
        (place / name).symlink_to(ROOT / name)
    for role in (ROOT / "roles").iterdir():
        mine = place / "roles" / role.name
        (mine / "tasks").mkdir(parents=True)
        for name in ("defaults", "meta", "vars"):
            if (role / name).exists():
                (mine / name).symlink_to(role / name)
        for path in (role / "tasks").glob("*.yml"):
            text = ENTRY.format(role=role.name, entry=path.stem)
            (mine / "tasks" / path.name).write_text(text)
    return folder


def upgrade(
    folder: Path,
    collections: Path,
    hosts: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]] | None = None,
    *,
    playbook: str = "bedplate.gpu.upgrade",
    settings: Mapping[str, Any] | None = None,
    **variables: Any,
) -> Upgrade:
    """Plan a site of these hosts and run the playbook: all in a pool, or in *groups*."""
    site = folder / "site"
    (site / "group_vars").mkdir(parents=True)
    reached = {
        name: {k: v.format(n) if k == "ansible_host" else v for k, v in host.items()}
        for n, (name, host) in enumerate(hosts.items(), 1)
    }
    members = {"control_plane": [], "pool_one": list(hosts), **(groups or {})}
    of = {group: {"hosts": {name: {} for name in names}} for group, names in members.items()}
    children = {"gpu_pools": {"children": {"pool_one": of.pop("pool_one")}}, **of}
    site.joinpath("hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": reached, "children": children}}, sort_keys=False)
    )
    site.joinpath("group_vars/all.yml").write_text(yaml.safe_dump(WISHES | dict(settings or {})))
    subprocess.run([BIN / "bedplate", "plan", site], check=True, capture_output=True)
    make(site)  # the roles fetch nothing of it
    given = ["-i", str(site), "-c", "local", playbook, "-e", json.dumps(variables)]
    given += ["--limit", "all"]
    done = subprocess.run(
        [BIN / "ansible-playbook", *given],
        cwd=ROOT,
        env=os.environ
        | {
            "ANSIBLE_COLLECTIONS_PATH": str(collections),
            "NO_COLOR": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    asked: dict[str, list[str]] = {name: [] for name in hosts}
    for host, role in ASKED.findall(done.stdout):
        asked[host].append(role)
    rows = recap(done.stdout)
    return Upgrade(
        done.returncode,
        asked,
        set(REFUSED.findall(done.stdout)),
        {name for name, row in rows.items() if row["failed"] or row["unreachable"]},
        dict(_reason(path) for path in (site / ".bedplate/evidence").glob("*")),
        done.stdout + done.stderr,
    )


def _reason(path: Path) -> tuple[str, str]:
    evidence = json.loads(path.read_text())
    (check,) = evidence["checks"]
    assert check["result"] == "fail"
    return path.stem.removeprefix("host-"), check["reason"]


def test_no_wave_begins_once_more_hosts_are_set_aside_than_the_budget_allows(
    tmp_path: Path, collections: Path
) -> None:
    """One is set aside and the next wave begins; with the second the run ends."""
    hosts = {"one": HERE, "two": LOST, "three": HERE, "four": SICK}
    hosts |= {"five": HERE, "six": HERE, "seven": HERE}
    done = upgrade(tmp_path, collections, hosts, upgrade_waves=[2], upgrade_failure_budget=1)
    assert done.status == 2, done.output
    turns = {"one": WHOLE, "three": WHOLE, "four": WHOLE[:5]}
    assert done.asked == dict.fromkeys(hosts, NOTHING) | turns
    lost = (
        "the host cannot be reached — two — got Task failed: Failed to connect to the host via"
        " ssh: ssh: connect to host 127.0.0.2 port 1: Connection refused / allowed an answer over"
        " SSH — Check its address, its power, its host key and the way to it."
    )
    ends = (
        "the upgrade ends here — {} and the hosts after it — got 2 excluded (two, four) /"
        " allowed 1 (upgrade_failure_budget) — Fix those, or roll "
        "back with bedplate.gpu.rollback, and run"
        " bedplate.gpu.upgrade again."
    )
    assert done.told == {lost, SICK["tests_fault"], ends.format("five"), ends.format("six")}
    assert done.failed == {"two", "four", "five", "six"}
    assert done.reasons == {"two": lost, "four": SICK["tests_fault"]}


def test_a_canary_that_fails_ends_the_run_whatever_the_budget(
    tmp_path: Path, collections: Path
) -> None:
    hosts = {"one": SICK, "two": HERE, "three": HERE}
    done = upgrade(tmp_path, collections, hosts, upgrade_failure_budget=3)
    assert done.status == 2, done.output
    assert (done.told, done.failed) == ({SICK["tests_fault"]}, {"one"})
    assert done.asked == {"one": WHOLE[:5], "two": NOTHING, "three": NOTHING}
    assert done.reasons == {"one": SICK["tests_fault"]}


def test_control_planes_with_gpus_go_one_by_one_before_the_waves(
    tmp_path: Path, collections: Path
) -> None:
    """And workers without GPUs go with the waves, without a word of a driver."""
    hosts = dict.fromkeys(("cp1", "cp2", "cp3", "a1", "w1"), HERE)
    groups = {
        "control_plane": ["cp1", "cp2", "cp3"],
        "pool_one": ["cp1", "cp2", "a1"],
        "workers": ["w1"],
    }
    done = upgrade(tmp_path, collections, hosts, groups, upgrade_waves=[4])
    assert done.status == 0, done.output
    plain = [entry for entry in WHOLE if not entry.startswith(("nvidia", "hpc"))]
    assert done.asked["a1"] == done.asked["cp1"] == done.asked["cp2"] == WHOLE
    assert done.asked["w1"] == plain
    # Who is looked at in which play: a control plane alone, then all others together.
    turns = re.findall(
        r"^TASK \[Reach the host\][^\n]*\n((?:ok: \[\w+\]\n)+)", done.output, re.MULTILINE
    )
    assert [sorted(re.findall(r"\[(\w+)\]", turn)) for turn in turns] == [
        ["cp3"],
        ["cp1"],
        ["cp2"],
        ["a1", "w1"],
    ]
