"""What it costs to find the idle GPU of 1,000 shares: `python -m tests.benchmarks.idle`.

Ten readers with files of `/proc` for 100 pods of three processes each, asked over HTTP by the
recorder's own look, which reads a list of 1,000 pods as JSON. All of it is in this process, whose
seconds of CPU are counted. NVML's own calls are not in it: `used` stands for their answer.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bedplate.accounting import measured
from bedplate.accounting.records import Amount, Record
from bedplate.pods.hub import node_use
from bedplate.pods.hub.node_use import Gpus, Server, Use, processes

if TYPE_CHECKING:
    from bedplate.pods.api import Api

NODES, PODS, EACH, ROUNDS = 10, 100, 3, 5
SHARED = "nvidia.com/gpu.shared"
NOW = 1_700_000_000
#: The pod whose GPU does nothing.
IDLE = 777


def uid(number: int) -> str:
    """Return the UID of a pod."""
    return f"0a1b2c3d-0000-4000-8000-{number:012}"


def plant(folder: Path, node: int) -> frozenset[int]:
    """Write what the kernel has of a node's pods; return the processes that use its GPUs."""
    stat = Path("/proc/self/stat").read_text()
    used = set()
    for number in range(node * PODS, (node + 1) * PODS):
        for process in range(EACH):
            pid = number * EACH + process + 1
            place = folder / str(pid)
            place.mkdir(parents=True)
            (place / "cgroup").write_text(f"0::/kubepods/pod{uid(number)}/c")
            (place / "stat").write_text(stat)
            (place / "cmdline").write_bytes(b"python3\0train.py\0")
        if number != IDLE:
            used.add(number * EACH + EACH)
    return frozenset(used)


def pod(number: int) -> dict[str, Any]:
    """Return a pod of a share, about as long as the API server writes it."""
    environment = [{"name": f"VARIABLE_{one}", "value": "x" * 40} for one in range(40)]
    limits = {"limits": {SHARED: "1"}}
    container = {"name": "share", "image": "x" * 80, "env": environment, "resources": limits}
    owners = [{"kind": "Job", "name": f"share-{number}", "controller": True}]
    meta = {"name": f"share-{number}-x", "uid": uid(number), "ownerReferences": owners}
    spec = {"nodeName": f"n{number // PODS}", "containers": [container]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


class Cluster:
    """The two lists of the API server, as text that is read each time."""

    def __init__(self) -> None:
        everyone = [pod(number) for number in range(NODES * PODS)]
        self.pods = json.dumps({"items": everyone})
        readers = [
            {"spec": {"nodeName": f"n{node}"}, "status": {"podIP": f"127.0.0.{node + 1}"}}
            for node in range(NODES)
        ]
        self.readers = json.dumps({"items": readers})

    def call(self, _method: str, path: str) -> dict[str, Any]:
        """Return one of them."""
        found: dict[str, Any] = json.loads(self.readers if node_use.USE in path else self.pods)
        return found


def record(number: int) -> Record:
    """Return the record of a share that runs."""
    amounts = (Amount("pool", SHARED, 1, 0.1),)
    name = f"Job/share-{number}"
    return Record(uid(number), NOW - 3600, None, "", "intro", "intro", name, "ann", amounts)


def main() -> None:
    """Look a few times, and print the seconds of CPU of one look."""
    node_use.FRESH = 0.0  # type: ignore[misc]
    servers = []
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        port = 0
        for node in range(NODES):
            place = Path(folder) / str(node)
            used = plant(place, node)
            use = Use(lambda place=place: processes(place), lambda used=used: Gpus(used))  # type: ignore[misc]
            server = Server((f"127.0.0.{node + 1}", port), use)
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            servers.append(server)
        api, records = cast("Api", Cluster()), [record(one) for one in range(NODES * PODS)]
        measured.look(api, records, 0, NOW, port)
        spent = []
        for _ in range(ROUNDS):
            before = time.process_time()
            found = measured.look(api, records, 30, NOW, port)
            spent.append(time.process_time() - before)
            idle = {name for name, one in found.items() if one.idle}
            if (len(found), idle) != (NODES * PODS, {uid(IDLE)}):
                raise AssertionError(f"found {idle} of {len(found)}")
        for server in servers:
            server.shutdown()
            server.server_close()
    print(f"one look at {NODES * PODS} shares on {NODES} nodes, CPU seconds (goal 5):")
    print(f"  median {statistics.median(spent):.2f}, most {max(spent):.2f}")


if __name__ == "__main__":
    main()
