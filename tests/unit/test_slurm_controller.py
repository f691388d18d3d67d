"""What a run remembers of nodes that it does not reach, and which nodes must be empty to change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import owned, removal
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import state
from ansible_collections.bedplate.gpu.plugins.modules.slurm_controller import Plan, ensure_local

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "/etc/slurm/local.conf"
SAID = "CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=4096"


def node(name: str, **more: Any) -> dict[str, Any]:
    wish = {"name": name, "address": "192.0.2.9", "partition": "batch", "gpu": "t4", "count": 4}
    return wish | {"mode": "none", "shares": 0} | more


def planned(*nodes: dict[str, Any], said: dict[str, str] | None = None, record: str = "{}") -> Plan:
    return Plan({"nodes": list(nodes), "hardware": said or {}}, json.loads(record))


def test_a_run_for_one_node_remembers_what_the_others_said() -> None:
    first = planned(node("b1"), node("b2"), said={"b1": SAID, "b2": SAID})
    second = planned(node("b1"), node("b2"), said={"b1": SAID}, record=first.record())
    assert second.unknown == []
    assert second.record() == first.record()
    assert second.differing() == []


def test_a_node_that_never_answered_is_unknown_and_not_recorded() -> None:
    plan = planned(node("b1"), node("b2"), said={"b1": SAID, "b2": "slurmd: command not found"})
    assert plan.unknown == ["b2"]
    assert "b2" not in plan.record()


@pytest.mark.parametrize(
    ("now", "differing"),
    [
        ([node("b1")], []),
        ([node("b1", address="192.0.2.10", partition="other")], []),
        ([node("b1", count=3)], ["b1"]),
        ([node("b1", gpu="a100")], ["b1"]),
        ([node("b1", mode="mps", shares=4)], ["b1"]),
        ([node("b1", mode="mig")], ["b1"]),
        ([], ["b1"]),
    ],
    ids=["same", "elsewhere", "fewer", "others", "shared", "mig", "gone"],
)
def test_nodes_whose_gpus_change_or_that_go_must_be_empty(
    now: list[dict[str, Any]], differing: list[str]
) -> None:
    before = planned(node("b1"), said={"b1": SAID})
    plan = planned(*now, record=before.record())
    assert plan.differing() == differing
    for name in differing:
        plan.hold(name)
    assert plan.record() == before.record() or not differing
    assert plan.pending == differing


def test_the_users_settings_are_no_drift_also_where_an_older_run_watched_them(
    tmp_path: Path,
) -> None:
    host = Host(str(tmp_path))
    (change,) = ensure_local(host, LOCAL, check=False)
    (tmp_path / LOCAL[1:]).write_text("MaxJobCount=5\n")
    assert owned.differences(host) == {}
    # As a run of before has recorded it.
    owned.keep(host, [owned.Writing(LOCAL, change.after, 0o644, None)])
    assert owned.differences(host) != {}
    assert ensure_local(host, LOCAL, check=False) == []
    assert owned.differences(host) == {}
    # A reset sees that it is not ours any more, and leaves it.
    assert removal.files(host, [], check=False) == removal.Outcome([], [])
    assert host.read(LOCAL) == "MaxJobCount=5\n"


def test_a_reset_takes_our_line_out_of_the_users_settings(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (change,) = ensure_local(host, LOCAL, check=False)
    (tmp_path / LOCAL[1:]).write_text(change.after + "MaxJobCount=5\n")
    removal.files(host, [], check=False)
    assert host.read(LOCAL) == "MaxJobCount=5\n"
    host.remove(LOCAL)
    ensure_local(host, LOCAL, check=False)
    removal.files(host, [], check=False)
    assert not host.exists(LOCAL)


def test_settings_that_were_there_before_are_nobodys_to_record(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / LOCAL[1:]).write_text("MaxJobCount=5\n")
    assert ensure_local(host, LOCAL, check=False) == []
    assert owned.load(host) == {}


@pytest.mark.parametrize(
    ("reason", "back"),
    [
        ("bedplate: taken out of service for a change", True),
        # The controller's role drained it for what waits for its jobs, and gives it back itself.
        ("bedplate: waits for a change of its configuration", False),
        ("disk", False),
    ],
)
def test_a_node_that_waits_for_its_jobs_is_not_given_back_before(reason: str, back: bool) -> None:
    told = "NodeName=b1 Gres=gpu:t4:1 State={} Reason={} [root@2026-11-25T10:00:00]\n"
    (drained,) = state.parse(told.format("MIXED+DRAIN", reason))
    assert drained.returnable == back
    assert not state.parse(told.format("IDLE", reason))[0].returnable
