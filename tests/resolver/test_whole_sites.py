"""Sites of several groups, with the real catalogue: what one wishes must not reach another."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import bedplate.catalogue.load as catalogue_module
from bedplate.catalogue import load_catalogue
from bedplate.common.connection import Connection
from bedplate.resolver import Plan, Refusal, resolve
from bedplate.site.model import Wishes
from bedplate.site.places import Place, Places
from bedplate.site.site import Site, SiteHost
from tests.properties.plain import facts_in

TODAY = date(2026, 11, 21)
FACTS = Path(catalogue_module.__file__).with_name("facts")
BASE: dict[str, Any] = {
    "bedplate_host": {"os": "debian-12"},
    "bedplate_kubernetes": {"endpoint": "k8s.example:6443"},
    "bedplate_sources": {"mode": "mirror", "url": "http://mirror.example:5080"},
}
T4 = {"bedplate_gpu": {"model": "t4-16gb", "count": 4}}
V100 = {"bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 4}}
#: One device id that is boards of different drivers, told apart by the subsystem.
OLDER = {"pci": "10de:2bb3", "subsystem": "1028:204d", "count": 4}
NEWER = {"pci": "10de:2bb3", "subsystem": "1028:227a", "count": 4}


def host(name: str, groups: list[str], wishes: dict[str, Any]) -> SiteHost:
    """A host whose wishes all stand in a file of its group's."""
    pool = next((group for group in groups if group.startswith("pool_")), None)
    known = {(key,): Place(f"group_vars/{groups[-1]}.yml", 1, 1) for key in wishes}
    typed = Wishes.model_validate(BASE | wishes)
    return SiteHost(
        Connection(name=name, address=f"{name}.example"),
        pool,
        tuple(groups),
        typed,
        Places(known, Place("hosts")),
    )


def decide(*hosts: SiteHost) -> Plan | Refusal:
    """Decide a site."""
    groups = frozenset(group for one in hosts for group in one.groups)
    return resolve(
        Site(Path("site"), {one.name: one for one in hosts}, groups), load_catalogue(), TODAY
    )


def node(pool: str, wishes: dict[str, Any]) -> SiteHost:
    """A worker of a pool of its own."""
    return host(pool, ["gpu_pools", f"pool_{pool}"], wishes)


CP = host("cp1", ["control_plane"], {})


def planned(answer: Plan | Refusal) -> Plan:
    """Return a plan, or fail with the reasons why there is none."""
    assert isinstance(answer, Plan), [str(problem) for problem in getattr(answer, "problems", ())]
    return answer


def rules(answer: Plan | Refusal) -> list[str]:
    """Return the rules that refuse."""
    assert isinstance(answer, Refusal), answer
    return [problem.rule for problem in answer.problems]


@pytest.mark.parametrize(("first", "second"), [(OLDER, NEWER), (NEWER, OLDER)])
def test_boards_of_one_device_id_are_decided_each(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    driver = {"bedplate_driver": {"branch": "570", "source": "runfile"}}
    alone = {
        str(board): isinstance(decide(CP, node("a", {"bedplate_gpu": board} | driver)), Plan)
        for board in (first, second)
    }
    assert sorted(alone.values()) == [False, True], "the boards do not differ any more"
    both = decide(
        CP,
        node("a", {"bedplate_gpu": first} | driver),
        node("b", {"bedplate_gpu": second} | driver),
    )
    assert isinstance(both, Refusal)


def test_a_pin_of_the_control_plane_counts_whoever_stands_beside_it() -> None:
    pinned = host("cp1", ["control_plane"], {"bedplate_pins": {"kubernetes": "1.36.2"}})
    beside = host("a-first", ["slurm"], {})
    lock = planned(decide(pinned, beside, node("a", T4))).lock
    assert lock.cluster.kubernetes.version == "1.36.2"


@pytest.mark.parametrize(
    ("wishes", "pins"),
    [
        ({}, {"kuberntes": "1.36.2"}),
        ({}, {"pytorch": "2.8.0"}),
        ({"bedplate_frameworks": ["pytorch-2.8"]}, {"pytorch": "2.7.1"}),
        ({"bedplate_cuda": ["12.9"]}, {"cuda_toolkit": "12.6.3"}),
        ({}, {"nvidia_driver": "999.1"}),
    ],
)
def test_a_pin_that_pins_nothing_is_refused(wishes: dict[str, Any], pins: dict[str, str]) -> None:
    assert "pin-known" in rules(decide(CP, node("a", T4 | wishes | {"bedplate_pins": pins})))


def test_a_pin_of_a_series_of_cuda_is_kept() -> None:
    wishes = T4 | {"bedplate_cuda": ["12"], "bedplate_pins": {"cuda_toolkit": "12.6.3"}}
    assert planned(decide(CP, node("a", wishes))).lock.pools["pool_a"].cuda_toolkit == ["12.6.3"]


@pytest.mark.parametrize("versions", [["12.9", "12.9.0"], ["12", "12.9"], ["12.9.1", "12.9.0"]])
def test_two_toolkits_in_one_place_are_refused(versions: list[str]) -> None:
    assert rules(decide(CP, node("a", T4 | {"bedplate_cuda": versions}))) == ["cuda-twice"]


def test_toolkits_side_by_side_are_decided() -> None:
    lock = planned(decide(CP, node("a", T4 | {"bedplate_cuda": ["12.8", "12.9"]}))).lock
    assert [version[:4] for version in lock.pools["pool_a"].cuda_toolkit] == ["12.8", "12.9"]


def test_a_pin_for_all_is_no_fault_of_hosts_without_gpus() -> None:
    pins = {"bedplate_pins": {"nvidia_driver": "580.178.04"}}
    at = Places({("bedplate_pins",): Place("group_vars/all.yml", 1, 1)}, Place("hosts"))
    hosts = [
        SiteHost(one.connection, one.pool, one.groups, one.wishes, at)
        for one in (host("cp1", ["control_plane"], pins), node("a", T4 | pins))
    ]
    driver = planned(decide(*hosts)).lock.pools["pool_a"].nvidia_driver
    assert driver is not None
    assert driver.version == "580.178.04"


def test_a_host_may_be_called_cluster() -> None:
    assert planned(decide(host("cluster", ["control_plane"], {}), node("a", T4)))


@pytest.mark.parametrize("group", ["slurm", "hypervisors"])
def test_hosts_that_are_no_nodes_do_not_hold_the_cluster_back(group: str) -> None:
    kind = {"kind": "hypervisor"} if group == "hypervisors" else {}
    old = {"bedplate_host": {"os": "rocky-8", **kind}}
    outside = host("b", [group, "pool_b"], T4 | old)
    newest = planned(decide(CP, node("a", T4))).lock.cluster.kubernetes.version
    assert planned(decide(CP, node("a", T4), outside)).lock.cluster.kubernetes.version == newest
    inside = planned(decide(CP, node("a", T4), node("b", T4 | old))).lock.cluster
    assert inside.kubernetes.version != newest, "cgroup v1 does not matter to nodes any more"


@pytest.mark.parametrize(
    "wish",
    [
        {"bedplate_sharing": {"mode": "mig", "profile": "1g.10gb"}},
        {"bedplate_sharing": {"mode": "none", "seats": 4}},
        {"bedplate_forward_compatibility": True},
    ],
)
def test_other_makers_boards_take_no_wishes_for_nvidia(wish: dict[str, Any]) -> None:
    board = next(
        fact.value for fact in load_catalogue().accelerators.values() if fact.value.vendor == "amd"
    )
    given = {"vendor": "amd", "model": board.accelerator, "count": 8}
    wishes = {"bedplate_accelerator": given}
    assert planned(decide(CP, node("a", wishes)))
    assert rules(decide(CP, node("a", wishes | wish))) == ["accelerator-known"]


def test_other_makers_boards_are_locked_as_their_facts_have_them() -> None:
    boards = {str(row["accelerator"]): row for row in facts_in(FACTS)["accelerators"]}
    assert {row["vendor"] for row in boards.values()} == {"amd", "ascend", "intel", "kunlun"}
    wishes = {
        name: {"vendor": row["vendor"], "model": name, "count": 3} for name, row in boards.items()
    }
    pools = [node(name, {"bedplate_accelerator": wish}) for name, wish in wishes.items()]
    lock = planned(decide(CP, *pools)).lock
    for name, board in boards.items():
        pool = lock.pools[f"pool_{name}"]
        plugin = {"version": board["device_plugin_version"], "image": board["device_plugin"]}
        right = wishes[name] | {"driver": board["driver"], "runtime": board["runtime"]}
        expects = {"resource": board["resource"], "count": 3, "also": {}, "by": "cluster"}
        assert pool.accelerator is not None
        assert pool.accelerator.model_dump() == right | {"device_plugin": plugin}
        assert pool.expects is not None
        assert pool.expects.model_dump() == expects
        assert pool.nvidia_driver is None


def test_a_subsystem_that_is_another_board_is_refused() -> None:
    wrong = {"model": "a2", "pci": "10de:25b6", "subsystem": "10de:14a9", "count": 4}
    answer = decide(CP, node("a", {"bedplate_gpu": wrong}))
    assert rules(answer) == ["gpu-known"]


def test_the_reason_that_counts_is_named_where_seats_are_wished_too() -> None:
    wishes = V100 | {
        "bedplate_driver": {"branch": "595"},
        "bedplate_sharing": {"mode": "mps", "replicas": 12, "seats": 40},
    }
    assert rules(decide(CP, node("a", wishes))) == ["gpu-branch"]


@pytest.mark.parametrize(
    "wishes",
    [
        V100 | {"bedplate_driver": {"branch": "595"}, "bedplate_cuda": ["13.0"]},
        V100 | {"bedplate_driver": {"branch": "610", "flavour": "open"}},
        T4
        | {
            "bedplate_driver": {"branch": "535"},
            "bedplate_cuda": ["13.0"],
            "bedplate_frameworks": ["pytorch-2.15"],
        },
        V100
        | {
            "bedplate_sharing": {"mode": "mps", "replicas": 50},
            "bedplate_frameworks": ["pytorch-2.15"],
        },
    ],
)
def test_all_changes_that_are_proposed_lead_to_a_plan(wishes: dict[str, Any]) -> None:
    answer = decide(CP, node("a", wishes))
    assert isinstance(answer, Refusal)
    mended: dict[str, Any] = {**wishes}
    for conflict in answer.conflicts:
        key, *inner = conflict.blamed.path
        if conflict.instead is None:
            value: Any = None
        elif inner == ["replicas"]:
            value = int(conflict.instead)
        else:
            value = conflict.instead
        if isinstance(mended[str(key)], list):
            mended[str(key)] = [value] if value is not None else []
        else:
            mended[str(key)] = {**mended[str(key)], str(inner[0]): value}
    assert planned(decide(CP, node("a", mended)))
