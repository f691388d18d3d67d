"""A notebook that takes all it can get of its node ends alone: goes on from test_site.py.

The pods have what the hub gives those of a course of `memory: 512Mi` and `shm: 64Mi`; the kubelet,
the runtime and the kernel that hold them back are real. That the hub then tells the student is
tested in tests/frameworks/test_hub.py.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bedplate.lock import load_lock
from bedplate.pods.hub import memory
from bedplate.pods.hub.courses import Course
from tests.site import trials
from tests.site.cluster import ready, wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NODE = "gpu-b"
MIB, SHM_MIB = 512, 64
#: What a pod's own programs are beside what it starts: its sandbox's, and those of an exec.
FEW = 16
#: Each waits to be told, so that all are there before the first takes anything.
WAIT = """
import errno, os, threading, time
while not os.path.exists('/tmp/go'):
    time.sleep(0.2)
"""
REST = "time.sleep(3600)\n"
TAKES = {
    "memory": "kept = [bytearray(b'x') * (16 << 20) for _ in range(64)]\n",
    "shm": """
try:
    with open('/dev/shm/all', 'wb', buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno], os.stat('/dev/shm/all').st_size >> 20)
""",
    "processes": """
threading.stack_size(64 << 10)
try:
    while True:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
except RuntimeError:
    print(threading.active_count())
""",
    "neighbour": "",
}


def notebook(name: str) -> dict[str, Any]:
    """Return a student's pod, with code in place of the notebook server."""
    given = memory.of_node(
        Course(name="any", zone="UTC", profiles=[], limits={}, memory_mib=MIB, cpu_milli=20)
    )
    size = {"memory": str(given["mem_limit"])}
    container = {
        "name": memory.NOTEBOOK,
        "image": trials.JAX,
        "command": ["python3", "-u", "-c", WAIT + TAKES[name] + REST],
        "resources": {"requests": {**size, "cpu": str(given["cpu_guarantee"])}, "limits": size},
        "volumeMounts": [dict(memory.SHM)],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [memory.shm_volume(SHM_MIB)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextmanager
def notebooks(site: SiteCommands, folder: Path) -> Iterator[None]:
    """Run all of them at once."""
    path = folder / "notebooks.json"
    items = [notebook(name) for name in TAKES]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:
        made = site.kubectl("create", "-f", str(path))
        assert made.returncode == 0, made.stdout
        for name in TAKES:
            wait_for(f"pod {name} runs", lambda n=name: phase(site, n) == "Running", 300)
        yield
    finally:
        site.kubectl("delete", "-f", str(path), "--now")


def pod(site: SiteCommands, name: str) -> dict[str, Any]:
    """Return a pod as the API has it."""
    found: dict[str, Any] = json.loads(site.kubectl("get", "pod", name, "-o", "json").stdout)
    return found


def phase(site: SiteCommands, name: str) -> str:
    """Return what the API says a pod does."""
    return str(pod(site, name)["status"]["phase"])


def said(site: SiteCommands, name: str) -> list[str]:
    """Return what a pod has printed."""
    return site.kubectl("logs", name).stdout.split()


def test_only_the_notebook_that_takes_too_much_ends(site: SiteCommands, tmp_path: Path) -> None:
    cluster = load_lock(site.site).cluster
    assert cluster is not None
    most = cluster.kubernetes.room.processes
    assert most is not None
    kubelet = "systemctl show kubelet --property=MainPID,NRestarts"
    with notebooks(site, tmp_path):
        before = on_host(site, NODE, kubelet)
        for name in TAKES:
            site.kubectl("exec", name, "--", "touch", "/tmp/go")
        wait_for("the kernel ends one", lambda: phase(site, "memory") == "Failed")
        assert memory.ran_out(pod(site, "memory"))
        wait_for("/dev/shm is full", lambda: said(site, "shm"))
        assert said(site, "shm") == ["ENOSPC", str(SHM_MIB)]
        wait_for("no process more is started", lambda: said(site, "processes"))
        assert most - FEW <= int(said(site, "processes")[0]) <= most
        # All others go on, and may start what they like.
        told = site.kubectl("exec", "neighbour", "--", "sh", "-c", "echo $(echo on)").stdout
        assert told == "on\n"
        assert {name: phase(site, name) for name in TAKES if name != "memory"} == {
            name: "Running" for name in TAKES if name != "memory"
        }
        assert on_host(site, NODE, kubelet) == before
        assert ready(site, NODE)
