"""What the pods of a node do: when each used a GPU last, and when a program of its user ran.

It runs on each node with courses, in the host's process namespace, and answers the hub over HTTP.
It samples only when it is asked, so it does not touch the driver while no notebook runs. After its
start it is no longer root: it reads `/proc` and NVML, which every user of a host may read.
Standard library only.

NVML says per process how busy the GPU's processors were; not on a GPU in MIG mode, and under MPS
this was not tried. There the answer has no `gpu`, and says why. Source: NVIDIA's nvml.h,
nvmlDeviceGetProcessUtilization.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import socketserver
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PORT: Final = 8083
#: Where the readers are, and their label.
USE: Final = "bedplate-use"
READERS: Final = f"/api/v1/namespaces/{USE}/pods?labelSelector=app.kubernetes.io/name={USE}"
NOBODY: Final = 65534
#: Part of a core that the programs of a pod use together: less is a sleeper, or `date` in a loop.
RUNS: Final = 0.03
#: Seconds. The driver keeps a few seconds of samples; after a longer pause nothing is known.
PAUSE: Final = 60.0
#: Seconds for which an answer is given again.
FRESH: Final = 1.0
#: The notebook server itself, which works for every open page.
SERVER: Final = "jupyterhub-singleuser"
POD: Final = re.compile(r"pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
NOT_FOUND: Final = 6
NOT_SUPPORTED: Final = 3
NVML: Final = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class Process:
    """A process of a pod: `cpu` is its time in seconds, with that of children that have ended."""

    pod: str
    born: int
    cpu: float
    server: bool


@dataclass(frozen=True)
class Gpus:
    """What NVML says: the processes that used a GPU since it was asked last, or why it is unknown.

    `memory` is MiB of GPU memory by process.
    """

    used: frozenset[int] = frozenset()
    memory: Mapping[int, int] = field(default_factory=dict)
    why: str = ""


def pod_of(text: str) -> str:
    """Return the UID of a pod from a process' `cgroup` file; empty for a process of the host."""
    found = POD.search(text)
    return found[1].replace("_", "-") if found else ""


def processes(proc: Path) -> dict[int, Process]:
    """Return the processes of all pods by number."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for place in proc.iterdir():
        if not place.name.isdigit():
            continue
        try:
            pod = pod_of((place / "cgroup").read_text())
            if not pod:
                continue
            # The name of a process may have spaces and brackets: what follows the last one counts.
            stat = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        server = any(word.rpartition(b"/")[2] == SERVER.encode() for word in words[:3])
        cpu = sum(map(int, stat[11:15])) / tick
        found[int(place.name)] = Process(pod, int(stat[19]), cpu, server)
    return found


class Use:
    """Remembers when each pod was last seen at work."""

    def __init__(
        self,
        read: Callable[[], Mapping[int, Process]],
        gpus: Callable[[], Gpus],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._gpus, self._clock = read, gpus, clock
        self._at = self._since = self._blind = 0.0
        self._known: Mapping[int, Process] = {}
        self._used: dict[str, float] = {}
        self._ran: dict[str, float] = {}
        self._answer: dict[str, Any] | None = None

    def answer(self) -> dict[str, Any]:
        """Return seconds since each pod used a GPU and since its programs ran, by the pod's UID.

        `watched` is for how many seconds this is known. A pod that did not since has null. While
        NVML has no figure any pod may use its GPU: what it says later counts from then on.
        """
        now = self._clock()
        if self._answer is not None and now - self._at < FRESH:
            return self._answer
        if self._answer is None or now - self._at > PAUSE:
            self._since, self._known = now, {}
        there, gpus = self._read(), self._gpus()
        for pod in working(self._known, there, now - self._at):
            self._ran[pod] = now
        self._blind = now if gpus.why else self._blind
        self._used |= {there[pid].pod: now for pid in gpus.used if pid in there}
        pods = {one.pod for one in there.values()}
        self._used, self._ran = (
            {pod: at for pod, at in old.items() if pod in pods} for old in (self._used, self._ran)
        )
        memory = dict.fromkeys(pods, 0)
        for pid, size in gpus.memory.items():
            if pid in there:
                memory[there[pid].pod] += size
        self._at, self._known = now, there

        def ago(at: float | None) -> float | None:
            return None if at is None else round(now - at, 1)

        self._answer = {
            "watched": ago(self._since),
            "gpu": not gpus.why,
            "why": gpus.why,
            "pods": {
                pod: {
                    "gpu": ago(max(self._used.get(pod, 0.0), self._blind) or None),
                    "program": ago(self._ran.get(pod)),
                    "memory_mib": memory[pod],
                }
                for pod in sorted(pods)
            },
        }
        return self._answer


def working(
    before: Mapping[int, Process], after: Mapping[int, Process], lasted: float
) -> Iterable[str]:
    """Return the pods whose programs used the processor for a part of the seconds in between."""
    spent: dict[str, float] = {}
    for pid, one in after.items():
        known = before.get(pid)
        begun = known.cpu if known is not None and known.born == one.born else 0.0
        if not one.server and before:
            spent[one.pod] = spent.get(one.pod, 0.0) + one.cpu - begun
    return [pod for pod, cpu in spent.items() if lasted > 0 and cpu / lasted >= RUNS]


class _Sample(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("timestamp", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlError(Exception):
    """NVML has no figure; the text says why."""


class Nvml:
    """Reads all GPUs; between two readings the library is shut down, and holds no driver."""

    def __init__(self, path: str = NVML) -> None:
        self._path = path
        self._seen: dict[int, int] = {}

    def __call__(self) -> Gpus:
        """Return which processes used a GPU since the last call."""
        try:
            nvml = ctypes.CDLL(self._path)
            self._check(nvml.nvmlInit_v2(), "nvmlInit")
        except (OSError, AttributeError, NvmlError) as error:
            return Gpus(why=f"NVML does not answer: {error}")
        used: set[int] = set()
        memory: dict[int, int] = {}
        try:
            count = ctypes.c_uint()
            self._check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
            for index in range(count.value):
                device = ctypes.c_void_p()
                found = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
                self._check(found, f"GPU {index}")
                used |= self._device(nvml, index, device, memory)
        except (AttributeError, NvmlError) as error:
            return Gpus(why=str(error))
        finally:
            nvml.nvmlShutdown()
        return Gpus(frozenset(used), memory)

    def _device(
        self, nvml: Any, index: int, device: ctypes.c_void_p, memory: dict[int, int]
    ) -> set[int]:
        if self._listed(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, device):
            raise NvmlError(f"GPU {index}: programs use it by MPS")
        for one in self._listed(nvml.nvmlDeviceGetComputeRunningProcesses_v3, device):
            if one.memory < 1 << 63:  # NVML_VALUE_NOT_AVAILABLE is all ones
                memory[one.pid] = memory.get(one.pid, 0) + (one.memory >> 20)
        ask, where = nvml.nvmlDeviceGetProcessUtilization, f"GPU {index}: use by process"
        seen, size = ctypes.c_ulonglong(self._seen.get(index, 0)), ctypes.c_uint()
        told = ask(device, None, ctypes.byref(size), seen)
        if told == NOT_FOUND or (told == 0 and not size.value):
            return set()
        self._check(told, where, (0, 7))  # 7: the number of samples is in `size`
        samples = (_Sample * size.value)()
        told = ask(device, samples, ctypes.byref(size), seen)
        self._check(told, where, (0, NOT_FOUND))
        found = [one for one in samples[: size.value if told == 0 else 0] if one.pid]
        self._seen[index] = max([seen.value, *(one.timestamp for one in found)])
        return {one.pid for one in found if one.sm or one.memory or one.encoder or one.decoder}

    def _listed(self, ask: Any, device: ctypes.c_void_p) -> list[Any]:
        size = ctypes.c_uint(1024)
        listed = (_Process * size.value)()
        told = ask(device, ctypes.byref(size), listed)
        return list(listed[: size.value]) if told == 0 else []

    @staticmethod
    def _check(told: int, where: str, allowed: tuple[int, ...] = (0,)) -> None:
        if told not in allowed:
            none = "not supported, as in MIG mode"
            raise NvmlError(f"{where}: {none if told == NOT_SUPPORTED else f'NVML error {told}'}")


class Server(socketserver.TCPServer):
    """One answer at a time; what is slow to ask is cut off."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], use: Use) -> None:
        self.use = use
        super().__init__(address, Handler)


class Handler(BaseHTTPRequestHandler):
    """GET of any path is the answer."""

    timeout = 5
    server: Server

    def do_GET(self) -> None:
        """Answer."""
        text = json.dumps(self.server.use.answer()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Be silent: the hub asks every ten seconds, and the recorder of usage every thirty."""


def main(arguments: list[str] | None = None) -> None:
    """Serve, in the host's root and as nobody."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", help="the host's root in this container")
    parser.add_argument("--address", default="")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--nvml", default=NVML)
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    given = parser.parse_args(arguments)
    use = Use(lambda: processes(given.proc), Nvml(given.nvml))
    with Server((given.address, given.port), use) as server:
        if given.root:
            os.chroot(given.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
