"""What Slurm is told of its nodes, and what it tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host
from bedplate.portable.slurm import config as slurm_config
from bedplate.portable.slurm import munge as slurm_munge
from bedplate.portable.slurm import state as slurm_state

if TYPE_CHECKING:
    from pathlib import Path

# slurmd -C of Slurm 22.05 on Debian 12.
SAID = (
    "NodeName=b1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2"
    " RealMemory=257655\nUpTime=3-02:04:05\n"
)
FOUND = {
    "CPUs": 64,
    "Boards": 1,
    "SocketsPerBoard": 2,
    "CoresPerSocket": 16,
    "ThreadsPerCore": 2,
    "RealMemory": 257655,
}
LAYOUT = slurm_config.Layout("c", "ctl", "192.0.2.1", 1024, {})


def node(name: str, **more: object) -> slurm_config.Node:
    wish = {"name": name, "address": "192.0.2.9", "partition": "batch", "gpu": "t4", "count": 2}
    return slurm_config.node_of(wish | more)


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_hardware_is_what_slurmd_says_of_the_node() -> None:
    assert slurm_config.hardware(SAID) == FOUND
    assert slurm_config.hardware("slurmd: command not found") == {}
    assert slurm_config.hardware("CPUs=64") == {}


@pytest.mark.parametrize(
    ("found", "expected"), [(257655, 250 * 1024), (3072, 2048), (3071, 1024), (900, 1024)]
)
def test_memory_is_whole_gibibytes_less_the_reserve(found: int, expected: int) -> None:
    assert slurm_config.memory(found, 1024) == expected


def test_nodes_and_partitions_are_written_in_natural_order() -> None:
    nodes = [node("b10"), node("b2"), node("a1", partition="aux", count=0)]
    text = slurm_config.slurm_conf(LAYOUT, nodes, {n.name: FOUND for n in nodes})
    assert [line.split()[0] for line in lines(text, "NodeName=")] == [
        "NodeName=a1",
        "NodeName=b2",
        "NodeName=b10",
    ]
    assert lines(text, "NodeName=b2") == [
        (
            "NodeName=b2 NodeAddr=192.0.2.9 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16"
            " ThreadsPerCore=2 RealMemory=256000 Gres=gpu:t4:2"
        )
    ]
    assert lines(text, "PartitionName=") == [
        "PartitionName=aux Nodes=a1 Default=YES DefMemPerCPU=4000 MaxTime=INFINITE State=UP",
        "PartitionName=batch Nodes=b2,b10 Default=NO DefMemPerCPU=4000 MaxTime=INFINITE State=UP",
    ]
    assert text.endswith("\nInclude local.conf\n")


def test_a_node_that_never_said_what_it_has_is_left_out() -> None:
    nodes = [node("b1"), node("b2")]
    text = slurm_config.slurm_conf(LAYOUT, nodes, {"b1": FOUND})
    assert "b2" not in text
    assert "b2" not in slurm_config.gres_conf(nodes, {"b1": FOUND})


def test_settings_of_the_user_replace_those_of_the_role() -> None:
    layout = LAYOUT._replace(settings={"ReturnToService": "1", "SlurmctldPort": "6900"})
    text = slurm_config.slurm_conf(layout, [node("b1")], {"b1": FOUND})
    assert lines(text, "ReturnToService") == ["ReturnToService=1"]
    assert lines(text, "SlurmctldPort") == ["SlurmctldPort=6900"]


@pytest.mark.parametrize(
    ("sharing", "gres", "files"),
    [
        (
            {},
            "gpu:t4:2",
            [
                "gpu Type=t4 File=/run/bedplate/slurm/gpu0",
                "gpu Type=t4 File=/run/bedplate/slurm/gpu1",
            ],
        ),
        (
            {"mode": "time-slicing", "shares": 4},
            "gpu:t4:2,shard:8",
            [
                "gpu Type=t4 File=/run/bedplate/slurm/gpu0",
                "gpu Type=t4 File=/run/bedplate/slurm/gpu1",
                "shard Count=4 File=/run/bedplate/slurm/gpu0",
                "shard Count=4 File=/run/bedplate/slurm/gpu1",
            ],
        ),
        (
            {"mode": "mps", "shares": 10, "count": 1},
            "gpu:t4:1,mps:10",
            [
                "gpu Type=t4 File=/run/bedplate/slurm/gpu0",
                "mps Count=10 File=/run/bedplate/slurm/gpu0",
            ],
        ),
        (
            {"mode": "mig", "gpu": "3g.40gb", "count": 4, "cards": 2},
            "gpu:3g.40gb:4",
            [
                (
                    f"gpu Type=3g.40gb MultipleFiles=/run/bedplate/slurm/gpu{card},"
                    f"/run/bedplate/slurm/gpu{card}-{part}-gi,"
                    f"/run/bedplate/slurm/gpu{card}-{part}-ci"
                )
                for card, part in ((0, 0), (0, 1), (1, 0), (1, 1))
            ],
        ),
    ],
    ids=["whole", "time-slicing", "mps", "mig"],
)
def test_sharing_decides_the_resources(
    sharing: dict[str, object], gres: str, files: list[str]
) -> None:
    nodes = [node("b1", **sharing), node("b2", **sharing)]
    known = {"b1": FOUND, "b2": FOUND}
    assert slurm_config.gres(nodes[0]) == gres
    # The same for all, so that no slurmd has to learn of one later.
    assert "GresTypes=gpu,mps,shard\n" in slurm_config.slurm_conf(LAYOUT, nodes, known)
    text = slurm_config.gres_conf(nodes, known)
    assert lines(text, "NodeName=") == [f"NodeName=b1,b2 Name={line}" for line in files]
    assert "AutoDetect=off\n" in text


def test_jobs_are_kept_to_their_devices() -> None:
    assert "ConstrainDevices=yes\n" in slurm_config.cgroup_conf()


# scontrol --oneliner show node of Slurm 22.05, shortened.
SHOWN = (
    "NodeName=b1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 Gres=gpu:t4:4(S:0),shard:t4:8(S:0)"
    " NodeAddr=192.0.2.9 OS=Linux 6.1.0 #1 SMP Debian  RealMemory=2048 State=MIXED+DRAIN*"
    " ThreadsPerCore=1 BootTime=2026-11-21T20:00:00 CfgTRES=cpu=2,mem=2G,billing=2"
    " Reason=bedplate: its GPUs change [root@2026-11-21T20:10:00]\n"
    "NodeName=b2 Gres=(null) State=IDLE ThreadsPerCore=1\n"
)


def test_the_state_of_nodes_is_read_from_scontrol() -> None:
    first, second = slurm_state.parse(SHOWN)
    assert first == slurm_state.State(
        "b1", {"MIXED", "DRAIN"}, "gpu:t4:4,shard:t4:8", "bedplate: its GPUs change"
    )
    assert (first.busy, first.usable) == (True, False)
    assert first.told == "drain+mixed (bedplate: its GPUs change)"
    assert second == slurm_state.State("b2", {"IDLE"}, "", "")
    assert (second.busy, second.usable) == (False, True)


@pytest.mark.parametrize(
    ("shown", "declared"),
    [
        ("", ""),
        ("gpu:t4:2", "gpu:t4:2"),
        # Slurm gives shares the type of their card once the node has registered, not before.
        ("gpu:t4:2,shard:t4:6", "gpu:t4:2,shard:6"),
        ("gpu:t4:2,shard:6", "gpu:t4:2,shard:6"),
        ("gpu:t4:1,mps:t4:10", "gpu:t4:1,mps:10"),
        # Which sockets cards are at, and which of them a node has.
        ("gpu:l4:1(S:0)", "gpu:l4:1"),
        ("gpu:a100:8(S:0-1),shard:a100:32(S:0-1)", "gpu:a100:8,shard:32"),
        ("gpu:a100:8(S:0,2),shard:32(S:0,2)", "gpu:a100:8,shard:32"),
        ("gpu:t4:2(IDX:0-1)", "gpu:t4:2"),
    ],
)
def test_what_slurm_shows_is_read_as_it_was_declared(shown: str, declared: str) -> None:
    assert slurm_config.declared(shown) == declared


@pytest.mark.parametrize(
    ("text", "told"),
    [("not base64!", "no Base64"), ("c2hvcnQ=", "5 bytes"), ("QUFB" * 400, "1200 bytes")],
)
def test_a_key_that_munge_would_not_take_is_refused_without_showing_it(
    text: str, told: str
) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        slurm_munge.decoded(text)


def test_a_key_may_be_wrapped_and_none_is_none() -> None:
    assert slurm_munge.decoded("QUFB\n" * 20) == b"A" * 60
    assert slurm_munge.decoded("") == b""


def test_a_key_is_put_for_its_user_alone(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "etc/munge").mkdir(parents=True)
    assert slurm_munge.present(host) == b""
    assert not slurm_munge.well_kept(host, "root")
    slurm_munge.put(host, b"k" * 64, "root")
    assert slurm_munge.present(host) == b"k" * 64
    assert slurm_munge.well_kept(host, "root")
    (tmp_path / "etc/munge/munge.key").chmod(0o440)
    assert not slurm_munge.well_kept(host, "root")
