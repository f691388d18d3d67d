"""What is measured on a real GPU, each part written as JSON: `python -m tests.silicon.measure OUT`.

It needs NVIDIA's driver and PyTorch, changes no setting of a GPU, and leaves nothing running.
Names of parts after OUT choose some. A part that fails keeps what it has noted.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.portable import mig, nvidia, pci
from bedplate.portable.discovery import reading
from bedplate.portable.evidence import host as evidence
from bedplate.portable.evidence import mps as mps_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host
from tests.silicon import profiles
from tests.silicon.processes import NOBODY, Client, Daemon, smi, used, used_by

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("cuda", "torch", "jax")
#: Shares as a site may have them: memory in MiB and threads in per cent of each.
SMALL, REPLICAS = 8192, 10
ALL = 61440
#: More than any GPU takes as clients of MPS.
CROWD = 64
SECONDS = 2.0
ROOT = Path(__file__).parents[2]


class Notes:
    """Facts of one part, on disk as soon as they are known."""

    def __init__(self, folder: Path, part: str) -> None:
        self.path, self.known = folder / f"{part}.json", dict[str, Any]()

    def __setitem__(self, name: str, value: Any) -> None:
        self.known[name] = value
        self.path.write_text(json.dumps(self.known, indent=1, default=str) + "\n")


def facts(notes: Notes) -> None:
    """Say what the driver, and the product's own readers, make of the machine."""
    host = Host()
    asked: dict[str, Callable[[], Any]] = {
        "loaded": lambda: (loaded := nvidia.loaded_module(host)) and loaded._asdict(),
        "gpus": lambda: [gpu._asdict() for gpu in nvidia.query(host)[0]],
        "pci": lambda: [one._asdict() for one in pci.gpus(pci.scan(host))],
        "capability": lambda: smi("--query-gpu=compute_cap", "--format=csv,noheader"),
        "profiles": profiles.read,
        "links": lambda: smi("nvlink", "--status"),
        "discovered": lambda: reading.collect(host),
        "mig": lambda: [card._asdict() for card in mig.read(host)],
    }
    for name, ask in asked.items():
        notes[name] = _tried(ask)


def _tried(ask: Callable[[], Any]) -> Any:
    """Return an answer, or how a reader stumbled on silicon, which is what is looked for."""
    try:
        return ask()
    except Exception:
        return traceback.format_exc()


def verified(notes: Notes) -> None:
    """Say what the evidence of a host with one H100 makes of the machine."""
    host = Host()
    loaded = nvidia.loaded_module(host)
    wishes = Wishes(
        gpus=[{"model": "h100-sxm5-80gb", "pci": ["10de:2330"], "count": 1}],
        gpu_memory_gib={"h100-sxm5-80gb": 80},
        driver_version=loaded.version if loaded else "",
        driver_flavour="open",
        sharing={"mode": "none", "replicas": 0, "mig_profiles": [], "compute_mode": ""},
    )
    for area in ("kernel", "driver", "gpus", "health", "compute", "cuda", "sharing", "fabric"):
        notes[area] = _tried(partial(evidence.collect, host, wishes, [area]))


def _grown(notes: Notes, name: str, start: Callable[[], Client]) -> None:
    """Note how much memory two programs of a kind take, one after the other."""
    for kind in KINDS:
        with ExitStack() as stack:
            rows = []
            for _ in range(2):
                before = used()
                client = stack.enter_context(start())
                for question in (kind, "matmul") if kind != "cuda" else (kind,):
                    said = client.ask(question, 90)
                    pid = client.process.pid
                    row = {"taken": used() - before, "process": used_by(pid), "said": said}
                    rows.append({"asked": question, **row})
            notes[f"{name} {kind}"] = rows


def reserves(notes: Notes) -> None:
    """Measure the memory that a process takes before it has any for itself."""
    notes["idle"] = used()
    _grown(notes, "alone", Client)


def client_reserves(notes: Notes) -> None:
    """Measure the same of MPS' clients, and of its server."""
    with Daemon() as daemon:
        before = used()
        with daemon.client() as first:
            first.ask("cuda", 60)
            notes["server and first client"] = used() - before
            _grown(notes, "mps", daemon.client)


def _evidence(replicas: int) -> list[dict[str, Any]]:
    """Return what the host's evidence says of limits, as on a host in a cluster."""
    to = Collected([], {}, {})
    joined = type("Joined", (Host,), {"joined": True})()
    mps_evidence.collect(joined, replicas, [0], to)
    return [*to.checks, {"facts": to.facts}]


def limits(notes: Notes) -> None:
    """Ask the control daemon for limits, and programs whether they hold."""
    with Daemon() as daemon:
        notes["before"] = daemon.limits()
        for replicas in (48, 10, 4):
            memory = int(smi("--query-gpu=memory.total", "--format=csv,noheader,nounits"))
            daemon.limit(memory // replicas, 100 // replicas)
            notes[f"limits of {replicas}"] = daemon.limits()
            notes[f"evidence of {replicas}"] = _evidence(replicas)
        daemon.limit(SMALL, 100 // REPLICAS)
        notes["said"] = daemon.limits()
        notes["unknown GPU"] = daemon.ask("set_default_device_pinned_mem_limit 77 320M")
        for name, environment in (
            ("as the daemon says", {}),
            ("asks for more", {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=60G"}),
            ("asks for less", {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}),
            ("asks for more threads", {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}),
            ("asks for fewer threads", {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "5"}),
        ):
            with daemon.client(0, **environment) as client:
                asked = ["cuda", "memory", "fill 256"]
                notes[name] = [client.ask(question) for question in asked]
        with daemon.client() as client:
            asked = ["torch", "cuda", "memory", "matmul", "memory", "fill 256"]
            notes["pytorch"] = [client.ask(question) for question in asked]
        with daemon.client() as one, daemon.client() as other:
            for client in (one, other):
                client.ask("cuda")
            notes["two processes of one user"] = [c.ask("fill 256") for c in (one, other)]
        # Goes round the daemon: the pipe's name leads nowhere, and the GPU is shared by time.
        with Client({"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}) as client:
            asked = ["cuda", "memory", "fill 256"]
            notes["without the pipe"] = [client.ask(question) for question in asked]
        # JAX takes three quarters of the GPU at once: of all of it, or of what the limit leaves?
        with daemon.client(XLA_PYTHON_CLIENT_PREALLOCATE="true") as client:
            asked = ["jax", "matmul", "cuda", "memory"]
            notes["jax, as it starts"] = [client.ask(question) for question in asked]
        notes["after"] = daemon.limits()


def faults(notes: Notes) -> None:
    """Let one program write where nothing is, and see what becomes of another."""
    with ExitStack() as stack:
        for name in ("time-slicing", "mps"):
            start: Callable[[], Client] = Client
            if name == "mps":
                start = stack.enter_context(Daemon()).client
            with start() as good, start() as bad:
                found = {"before": [one.ask("cuda") for one in (good, bad)]}
                found["fault"] = [bad.ask("fault", 20)]
                found["the other"] = [good.ask("alive", 20)]
            with start() as later:
                found["a new one"] = [later.ask("cuda", 20), later.ask("alive", 20)]
            notes[name] = found


def rights(notes: Notes) -> None:
    """Ask the control daemon for more, as an unprivileged user and as root."""
    with Daemon() as daemon:
        daemon.limit(SMALL, 100 // REPLICAS)
        with daemon.client() as client:
            client.ask("cuda")
            server = daemon.ask("get_server_list").split()
            notes["server"] = server
            own = str(client.process.pid)
            for user in (NOBODY, 0):
                for question in (
                    "get_default_device_pinned_mem_limit 0",
                    "set_default_device_pinned_mem_limit 0 60G",
                    "set_default_active_thread_percentage 100",
                    *(f"set_device_pinned_mem_limit {one} 0 60G" for one in server[:1]),
                    *(f"set_active_thread_percentage {one} 100" for one in server[:1]),
                    *(f"get_client_list {one}" for one in server[:1]),
                    "ps",
                    f"terminate_client {server[0] if server else 0} {own}" if user else "",
                    "quit" if user else "",
                ):
                    if question:
                        notes[f"user {user}: {question}"] = daemon.ask(question, user)
                notes[f"after user {user}"] = daemon.limits()
            notes["the running client"] = [client.ask(q) for q in ("memory", "fill 256")]
        # Its server may be the one that root's client had: with its limits.
        with daemon.client() as client:
            notes["a new client"] = [client.ask(q) for q in ("cuda", "memory", "fill 256")]


def users(notes: Notes) -> None:
    """Start programs of two users: whether both are clients at once."""
    for name, options in (
        ("as the device plugin starts it", ()),
        ("multiuser", ("-multiuser-server",)),
    ):
        with Daemon("nvidia-cuda-mps-control", *options) as daemon, daemon.client() as root:
            found = {"root": root.ask("cuda", 30)}
            with daemon.client(NOBODY) as nobody:
                found["nobody beside root"] = nobody.ask("cuda", 12)
                root.process.kill()
                root.process.wait()
                if found["nobody beside root"].get("error") == "no answer":
                    found["nobody after root"] = nobody.heard(20)
            found["servers"] = {"server": daemon.ask("get_server_list")}
            notes[name] = found


def crowd(notes: Notes) -> None:
    """Start more clients than MPS takes, with the smallest share that the device plugin offers."""
    for name, memory, threads in (("without limits", 0, 100), ("shares of 48", 1699, 2)):
        with Daemon() as daemon, ExitStack() as stack:
            if memory:
                daemon.limit(memory, threads)
            clients = [stack.enter_context(daemon.client()) for _ in range(CROWD)]
            answers = []
            for client in clients:
                answers.append(client.ask("cuda", 8))
                if len([one for one in answers if "error" in one]) > 2:
                    break
            good = [one for one in answers if "error" not in one]
            notes[name] = {
                "clients": len(good),
                "refusals": [one["error"] for one in answers if "error" in one],
                "multiprocessors": good[0]["multiprocessors"] if good else None,
                "used": used(),
                "last one's memory": clients[len(good) - 1].ask("memory", 15) if good else None,
            }


def _rates(notes: Notes, name: str, start: Callable[[], Client]) -> None:
    """Note what one to ten programs of a kind do in a second, and whether alike."""
    with ExitStack() as stack:
        clients = [stack.enter_context(start()) for _ in range(REPLICAS)]
        for client in clients:
            client.say("torch")
        notes[f"{name}: started"] = [client.heard(90) for client in clients][:1]
        for kind in ("products", "launches"):
            for client in clients:
                client.ask(f"work {kind} 0.1", 60)
            for number in (1, 2, 4, REPLICAS):
                for client in clients[:number]:
                    client.say(f"work {kind} {SECONDS}")
                answers = [client.heard(60) for client in clients[:number]]
                rates = [one.get("rate", 0.0) for one in answers]
                told = {"sum": round(sum(rates), 1), "least": min(rates), "most": max(rates)}
                errors = [one["error"] for one in answers if "error" in one][:1]
                notes[f"{name}: {kind} of {number}"] = {**told, "errors": errors}


def turns(notes: Notes) -> None:
    """Measure sharing by time."""
    _rates(notes, "time-slicing", Client)


def side_by_side(notes: Notes) -> None:
    """Measure sharing by MPS, with all threads for each and with a tenth."""
    for name, threads in (("mps", 100), ("mps, tenths", 100 // REPLICAS)):
        with Daemon() as daemon:
            daemon.limit(ALL // REPLICAS, threads)
            _rates(notes, name, daemon.client)


PARTS = (
    *(facts, verified, reserves, turns),
    *(client_reserves, limits, rights, users, side_by_side, crowd, faults),
)


def main(arguments: list[str]) -> int:
    """Measure the parts named, or all; the exit status is how many failed."""
    folder, chosen = Path(arguments[0]), arguments[1:]
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        notes, began = Notes(folder, part.__name__), time.monotonic()
        try:
            part(notes)
        except Exception:
            notes["failed"] = traceback.format_exc()
            failed += 1
        notes["seconds"] = round(time.monotonic() - began, 1)
        print(part.__name__, notes.known["seconds"], notes.known.get("failed", ""), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
