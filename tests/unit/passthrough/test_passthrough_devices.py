"""What can be given to guests, on the PCI topologies of real machines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host
from bedplate.portable.passthrough import functions as passthrough
from tests.substrate.gpu import topologies

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


def _present(name: str, root: Path, *, iommu: bool = True) -> dict[str, passthrough.Function]:
    topologies.write(name, root, iommu=iommu)
    return passthrough.functions(Host(str(root)))


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("workstation-root-port", [f"0000:01:00.{n}" for n in range(4)]),
        ("desktop-two-cards", ["0000:0b:00.0", "0000:0b:00.1"]),
        ("server-v100-pairs", ["0000:44:00.0"]),
        ("server-v100-pairs", ["0000:27:00.0", "0000:28:00.0", "0000:a3:00.0"]),
        ("server-rtx3090", ["0000:81:00.0", "0000:81:00.1"]),
        ("supermicro-7048gr-plx", [f"0000:0{n}:00.{f}" for n in (5, 6) for f in (0, 1)]),
        ("dell-r7525-mi100", ["0000:e4:00.0"]),
    ],
)
def test_whole_groups_can_be_given(name: str, devices: list[str], tmp_path: Path) -> None:
    present = _present(name, tmp_path)
    assert set(devices) <= set(present)
    assert passthrough.problems(present, devices, [], "hv1") == []


def test_every_topology_says_where_it_was_read() -> None:
    assert len(topologies.names()) == 6
    for name in topologies.names():
        assert topologies.load(name)["source"].startswith("https://"), name


def test_a_pair_below_a_switch_without_acs_is_refused_with_its_whole_group(tmp_path: Path) -> None:
    present = _present("server-v100-pairs", tmp_path)
    (said,) = passthrough.problems(present, ["0000:27:00.0", "0000:a3:00.0"], [], "hv1")
    assert said == (
        "IOMMU group 19 holds more than is given away — hv1 — got 0000:27:00.0 (10de:1db4) given, "
        "0000:28:00.0 (10de:1db4) / allowed given functions and bridges only — Give 0000:28:00.0 "
        "too, switch on ACS in the firmware, or move the GPU to a slot below another root port."
    )


def test_bridges_of_a_group_are_named_and_no_obstacle(tmp_path: Path) -> None:
    present = _present("supermicro-7048gr-plx", tmp_path)
    (said,) = passthrough.problems(present, ["0000:84:00.0", "0000:84:00.1"], [], "hv1")
    assert said == (
        "IOMMU group 61 holds more than is given away — hv1 — got 0000:82:00.0 (10b5:8747), "
        "0000:83:08.0 (10b5:8747), 0000:83:10.0 (10b5:8747), 0000:84:00.0 (10de:17c2) given, "
        "0000:84:00.1 (10de:0fb0) given, 0000:85:00.0 (10de:17c2), 0000:85:00.1 (10de:0fb0) / "
        "allowed given functions and bridges only — Give 0000:85:00.0, 0000:85:00.1 too, switch "
        "on ACS in the firmware, or move the GPU to a slot below another root port."
    )


def test_a_card_is_given_with_all_its_functions_even_before_the_iommu_is_on(tmp_path: Path) -> None:
    present = _present("workstation-root-port", tmp_path, iommu=False)
    (said,) = passthrough.problems(present, ["0000:01:00.0", "0000:01:00.1"], [], "hv1")
    assert said == (
        "functions of a given GPU stay behind — hv1 — got 0000:01:00.0, 0000:01:00.1 without "
        "0000:01:00.2 (10de:1aec), 0000:01:00.3 (10de:1aed) / allowed all functions of a GPU — "
        "Add them to devices of bedplate_passthrough, and run 'bedplate plan' again."
    )
    assert not passthrough.active(Host(str(tmp_path)))


def test_what_is_not_there_and_bridges_cannot_be_given(tmp_path: Path) -> None:
    present = _present("workstation-root-port", tmp_path)
    (absent,) = passthrough.problems(present, ["0000:02:00.0"], [], "hv1")
    assert absent == (
        "no such PCI function — hv1 — got 0000:02:00.0 / allowed 0000:00:02.0 (8086:1912), "
        "0000:01:00.0 (10de:2184) — Correct bedplate_passthrough, or the hardware, and run "
        "'bedplate plan' again."
    )
    (bridge,) = passthrough.problems(present, ["0000:00:01.0"], [], "hv1")[:1]
    assert bridge.startswith("a bridge is given away — hv1 — got 0000:00:01.0 (8086:1901) / ")


def test_a_virtual_function_is_refused_and_its_card_is_named(tmp_path: Path) -> None:
    """It is not there yet when functions are bound at boot, and no guest finds it alone."""
    topologies.write("server-v100-pairs", tmp_path)
    devices = tmp_path / "sys/bus/pci/devices"
    card, share = "0000:44:00.0", "0000:44:00.4"
    shutil.copytree(devices / card, devices / share, symlinks=True)
    (devices / share / "physfn").symlink_to(f"../{card}")
    group = tmp_path / "sys/kernel/iommu_groups/99/devices"
    group.mkdir(parents=True)
    (group / share).symlink_to(f"../../../../bus/pci/devices/{share}")
    present = passthrough.functions(Host(str(tmp_path)))
    said = (
        "a virtual function is given away — hv1 — got 0000:44:00.4 (10de:1db4), which is of "
        "0000:44:00.0 / allowed physical functions — Give 0000:44:00.0 in its place, or share that "
        "GPU by bedplate_vgpu, and run 'bedplate plan' again."
    )
    assert passthrough.problems(present, [share], [], "hv1") == [said]
    assert passthrough.problems(present, [card, share], [], "hv1") == [said]
    # A card with virtual functions is whole without them.
    assert passthrough.problems(present, [card], [], "hv1") == []


def test_groups_that_changed_since_the_plan_are_told(tmp_path: Path) -> None:
    present = _present("server-v100-pairs", tmp_path)
    pair = ["0000:27:00.0", "0000:28:00.0"]
    assert passthrough.problems(present, pair, [pair], "hv1") == []
    (said,) = passthrough.problems(present, pair, [["0000:27:00.0"], ["0000:28:00.0"]], "hv1")
    assert said == (
        "other IOMMU groups than the lock's — hv1 — got 0000:27:00.0 0000:28:00.0 / allowed "
        "0000:27:00.0; 0000:28:00.0 — Run bedplate.gpu.discover, "
        "take its iommu_groups over, and run "
        "'bedplate plan' again."
    )


def test_an_equal_card_that_stays_is_told_apart_by_address(tmp_path: Path) -> None:
    present = _present("server-rtx3090", tmp_path)
    one = ["0000:25:00.0", "0000:25:00.1"]
    assert passthrough.binding(present, one) == passthrough.Binding([], one)
    every = sorted(present)
    assert passthrough.binding(present, every) == passthrough.Binding(
        ["10de:1aef", "10de:2204"], every
    )
    assert passthrough.binding(present, every, "address") == passthrough.Binding([], every)


def test_one_of_two_models_is_claimed_by_id(tmp_path: Path) -> None:
    present = _present("desktop-two-cards", tmp_path)
    card = [f"0000:0a:00.{n}" for n in range(4)]
    assert passthrough.binding(present, card).ids == [
        "10de:1aeb", "10de:1aec", "10de:1aed", "10de:21c4"
    ]  # fmt: skip


def test_nodes_and_address_space_of_guests(tmp_path: Path) -> None:
    present = _present("server-v100-pairs", tmp_path)
    assert passthrough.nodes(present, ["0000:27:00.0", "0000:28:00.0"]) == (0,)
    assert passthrough.nodes(present, ["0000:27:00.0", "0000:c3:00.0"]) == (0, 1)
    # 2 x (16 GiB + 32 MiB), aligned: 64 GiB are too few for what aligned ranges may need.
    assert passthrough.address_space(present, ["0000:27:00.0", "0000:28:00.0"]) == 128 * GIB
    assert passthrough.address_space(present, ["0000:44:00.0"]) == 64 * GIB


def test_a_machine_whose_firmware_tells_no_node_has_none(tmp_path: Path) -> None:
    present = _present("workstation-root-port", tmp_path)
    assert passthrough.nodes(present, ["0000:01:00.0"]) == ()
    assert passthrough.address_space(present, ["0000:01:00.1"]) == 0
