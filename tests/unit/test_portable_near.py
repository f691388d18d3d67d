"""NUMA nodes of GPUs, and their way to RDMA devices, from a host's sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable.evidence import near
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROOT = "pci0000:00"
#: A switch below a root port: the port, the switch's upper side, a lower one, and another.
PORT, UPPER, LOWER, OTHER = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"


def plug(root: Path, path: str, node: int, files: Mapping[str, str]) -> None:
    """Put a function where the kernel has it, and its link on the bus."""
    folder = root / "sys/devices" / path
    folder.mkdir(parents=True)
    for name, text in {**files, "numa_node": str(node)}.items():
        (folder / name).write_text(text + "\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / folder.name).symlink_to(f"../../../devices/{path}")


def gpu(root: Path, path: str, node: int) -> None:
    """Plug a GPU."""
    plug(root, path, node, {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"})


def card(root: Path, path: str, node: int) -> None:
    """Plug a network card with an RDMA device."""
    plug(root, path, node, {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700"})
    address = path.rsplit("/", 1)[1]
    device = root / "sys/class/infiniband/mlx5_0/device"
    device.mkdir(parents=True)
    (device / "uevent").write_text(f"PCI_SLOT_NAME={address}\n")


def test_gpus_of_two_numa_nodes_without_rdma(tmp_path: Path) -> None:
    gpu(tmp_path, f"{ROOT}/{PORT}/0000:1b:00.0", 0)
    gpu(tmp_path, "pci0000:80/0000:80:01.0/0000:9b:00.0", 1)

    assert near.labels(Host(str(tmp_path))) == {"topology.bedplate.io/gpu-numa-nodes": "2"}


@pytest.mark.parametrize(
    ("path", "node", "way"),
    [
        (f"{ROOT}/{PORT}/{UPPER}/{OTHER}/0000:18:00.0", 0, "same-switch"),
        (f"{ROOT}/0000:00:02.0/0000:18:00.0", 0, "same-numa-node"),
        # Two functions below one root port share no switch: a port has one link.
        (f"{ROOT}/{PORT}/0000:18:00.0", 0, "same-numa-node"),
        ("pci0000:80/0000:80:01.0/0000:98:00.0", 1, "other-numa-node"),
    ],
)
def test_the_way_to_the_network(tmp_path: Path, path: str, node: int, way: str) -> None:
    gpu(tmp_path, f"{ROOT}/{PORT}/{UPPER}/{LOWER}/0000:1b:00.0", 0)
    card(tmp_path, path, node)

    assert near.labels(Host(str(tmp_path)))["topology.bedplate.io/rdma"] == way


def test_the_longest_way_counts(tmp_path: Path) -> None:
    gpu(tmp_path, f"{ROOT}/{PORT}/{UPPER}/{LOWER}/0000:1b:00.0", 0)
    gpu(tmp_path, "pci0000:80/0000:80:01.0/0000:9b:00.0", 1)
    card(tmp_path, f"{ROOT}/{PORT}/{UPPER}/{OTHER}/0000:18:00.0", 0)

    assert near.labels(Host(str(tmp_path)))["topology.bedplate.io/rdma"] == "other-numa-node"


def test_nothing_is_said_of_what_the_kernel_does_not_know(tmp_path: Path) -> None:
    gpu(tmp_path, f"{ROOT}/{PORT}/0000:1b:00.0", -1)
    card(tmp_path, f"{ROOT}/0000:00:02.0/0000:18:00.0", -1)

    assert near.labels(Host(str(tmp_path))) == {}
