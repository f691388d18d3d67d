"""Links to a branch's libraries where NVIDIA's container tools look, on a host that is a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable.driver import libraries as driver_libraries
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from pathlib import Path

PARENT = "/usr/lib/x86_64-linux-gnu/nvidia"
OLD, NEW = "535.274.02", "550.163.01"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with Debian 13's legacy branch."""
    host = Host(str(tmp_path))
    for name in ("libcuda.so", "libnvidia-ml.so"):
        host.write(f"{PARENT}/tesla-535/{name}.{OLD}", "")
    return host


def test_a_branch_with_a_folder_of_its_own_is_linked_once(host: Host, tmp_path: Path) -> None:
    todo = driver_libraries.change(host, OLD)
    assert todo.remove == []
    assert todo.make == {
        f"{PARENT}/current/{name}.{OLD}": f"../tesla-535/{name}.{OLD}"
        for name in ("libcuda.so", "libnvidia-ml.so")
    }
    driver_libraries.apply(host, todo)
    assert (tmp_path / PARENT[1:] / "current" / f"libcuda.so.{OLD}").resolve().is_file()
    assert not any(driver_libraries.change(host, OLD))


def test_a_killed_run_is_repaired(host: Host, tmp_path: Path) -> None:
    todo = driver_libraries.change(host, OLD)
    driver_libraries.apply(host, todo)
    current = tmp_path / PARENT[1:] / "current"
    (current / f"libcuda.so.{OLD}").rename(current / f"libcuda.so.{OLD}.new")
    driver_libraries.apply(host, driver_libraries.change(host, OLD))
    assert sorted(path.name for path in current.iterdir()) == [
        f"libcuda.so.{OLD}",
        f"libnvidia-ml.so.{OLD}",
    ]


def test_the_present_branch_needs_none_and_old_links_go(host: Host, tmp_path: Path) -> None:
    driver_libraries.apply(host, driver_libraries.change(host, OLD))
    host.write(f"{PARENT}/current/libnvidia-ml.so.{NEW}", "")
    own = tmp_path / PARENT[1:] / "current" / "libnvidia-ml.so.1"
    own.symlink_to(f"libnvidia-ml.so.{NEW}")
    todo = driver_libraries.change(host, NEW)
    assert todo.make == {}
    assert todo.remove == [
        f"{PARENT}/current/libcuda.so.{OLD}",
        f"{PARENT}/current/libnvidia-ml.so.{OLD}",
    ]
    driver_libraries.apply(host, todo)
    assert own.is_symlink()
    assert not any(driver_libraries.change(host, NEW))


def test_no_driver_leaves_no_link_and_no_folder(host: Host) -> None:
    driver_libraries.apply(host, driver_libraries.change(host, OLD))
    driver_libraries.apply(host, driver_libraries.change(host, ""))
    assert not host.exists(f"{PARENT}/current")
    assert not any(driver_libraries.change(Host(host.root + "/none"), OLD))


def test_a_packages_own_file_is_never_replaced(host: Host) -> None:
    host.write(f"{PARENT}/current/libcuda.so.{OLD}", "somebody's")
    driver_libraries.apply(host, driver_libraries.change(host, OLD))
    assert host.read(f"{PARENT}/current/libcuda.so.{OLD}") == "somebody's"
