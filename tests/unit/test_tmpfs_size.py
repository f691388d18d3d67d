"""The shared memory of MPS clients is compared with what the host has mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.bedplate.gpu.plugins.filter.tmpfs_size import tmpfs_size

from tests.unit.test_playbook_vars import HERE, ROOT, play

if TYPE_CHECKING:
    from pathlib import Path

PLACE = "/run/nvidia/mps/shm"
#: As Linux 6.18 tells them: what it mounts for each size, where this is the memory.
MEMORY = "MemTotal:       24684092 kB\nMemFree:        20684092 kB\n"
MOUNT = "tmpfs /dev/shm tmpfs rw,size=4k 0 0\nshm {} tmpfs rw,nosuid,mode=1777{} 0 0\n"


def mounts(size: str) -> str:
    return MOUNT.format(PLACE, size)


@pytest.mark.parametrize(
    ("size", "mounted"),
    [
        ("50%", ",size=12342048k"),
        ("33%", ",size=8145752k"),
        ("64m", ",size=65536k"),
        ("32768K", ",size=32768k"),
        ("0x1000000", ",size=16384k"),
        ("1", ",size=4k"),
        ("0", ",size=0k"),
        # Half of the memory, in whole pages, is named by none.
        ("12342044k", ""),
    ],
)
def test_a_size_is_read_as_the_kernel_reads_it(size: str, mounted: str) -> None:
    assert not tmpfs_size(mounts(mounted), PLACE, size, MEMORY)
    assert tmpfs_size(mounts(",size=20k"), PLACE, size, MEMORY)


@pytest.mark.parametrize("size", ["", "many", "64q", "09"])
def test_what_is_no_size_is_left_for_mount_to_refuse(size: str) -> None:
    assert tmpfs_size(mounts(",size=4k"), PLACE, size, MEMORY)


def test_what_is_not_mounted_has_no_size_to_change() -> None:
    assert not tmpfs_size("tmpfs /dev/shm tmpfs rw,size=4k 0 0\n", PLACE, "64m", MEMORY)


def test_of_two_mounts_the_one_that_is_seen_counts() -> None:
    both = mounts(",size=20k") + mounts(",size=65536k")
    assert not tmpfs_size(both, PLACE, "64m", MEMORY)


def test_a_run_that_was_killed_before_it_mounted_the_new_size_is_made_good(tmp_path: Path) -> None:
    """The size is written down by then, so that no file changes any more."""
    tasks = yaml.safe_load((ROOT / "roles/gpu_sharing/tasks/configure.yml").read_text())
    (task,) = (task for task in tasks if task["name"].startswith("Give the shared memory"))
    found = {"files": {"mounts": mounts(",size=65536k"), "meminfo": MEMORY}}
    base: dict[str, Any] = HERE | {
        "gpu_sharing_mode": "mps",
        "gpu_sharing_mps_shm_size": "32m",
        "__gpu_sharing_kept": {"changes": []},
        "__gpu_sharing_layout": {"pending": []},
        "__gpu_sharing_mounted": found,
    }
    hosts = {
        "killed": base,
        "whole": base | {"gpu_sharing_mps_shm_size": "64m"},
        # Its unit has the size of before.
        "waits": base | {"__gpu_sharing_layout": {"pending": ["GPU 0"]}},
        "alone": base | {"gpu_sharing_mode": "none", "__gpu_sharing_mounted": {"skipped": True}},
    }
    variables = str(ROOT / "roles/gpu_sharing/vars/main.yml")
    asks = {"ansible.builtin.debug": {"msg": "<mounts>"}, "when": task["when"]}
    tasks = [{"ansible.builtin.include_vars": variables}, asks]
    # No lock: what it would say is said by each host.
    said = play(tmp_path, hosts, tasks, roles=[])
    assert "failed=1" not in said, said
    assert [name for name in hosts if f"[{name}] => msg: <mounts>" in said] == ["killed"], said
