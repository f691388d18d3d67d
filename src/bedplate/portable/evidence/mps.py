"""Evidence of the device plugin's MPS: its control daemon, and the limits that it reports.

The daemon runs in the plugin's static pod. Its pipe directory is the host's, so the host's own
``nvidia-cuda-mps-control``, of the same driver, can ask it. Only its words count: the exit status
is 0 for an unknown command, for a GPU that does not exist and for a change that it refuses.
"""

import re
from typing import Dict, Iterable, List, Optional

from .. import nvidia
from ..host import Host
from .area import Collected
from .checks import AGAIN, check, failed, skipped

#: Where the device plugin and its MPS daemon meet; its own default.
ROOT = "/run/nvidia/mps"
RESOURCE = "nvidia.com/gpu"
DAEMON = "nvidia-cuda-mps"
NO_LIMIT = "no limit"
#: The daemon gets its limits when the plugin starts it. Running clients keep what they have.
RESTART = (
    "Drain the node, stop the plugin's pod, which starts again with the lock's limits "
    "(crictl stopp $(crictl pods --quiet --name nvidia-device-plugin)), and uncordon the node. "
    "Where users are not trusted, choose MIG or whole GPUs: some drivers let every client change "
    "the limits."
)
LOG = "Read the daemon's log: crictl logs $(crictl ps --latest --quiet --name mps-control-daemon)"
_MEMORY = re.compile(r"(\d+)([GM])")


def foreign_daemons(host: Host) -> List[str]:
    """MPS processes that are not the device plugin's, as ``4711 (nvidia-cuda-mps)``."""
    found = []
    for pid in sorted((name for name in host.list("/proc") if name.isdigit()), key=int):
        name = (host.read(f"/proc/{pid}/comm") or "").strip()
        # The kernel keeps 15 letters of a name.
        if name.startswith(DAEMON[:15]) and "kubepods" not in (
            host.read(f"/proc/{pid}/cgroup") or ""
        ):
            found.append(f"{pid} ({name})")
    return found


def _answer(host: Host, question: str) -> str:
    """What the device plugin's MPS daemon says, or why nothing answers."""
    pipe = {"CUDA_MPS_PIPE_DIRECTORY": f"{ROOT}/{RESOURCE}/pipe"}
    asked = f"echo {question} | nvidia-cuda-mps-control"
    answer = host.run(["sh", "-c", asked], environment=pipe)
    return answer.out.strip() or answer.err.strip()


def threads(said: str) -> Optional[str]:
    """The part of a GPU's threads that the daemon says, as ``5 %``; None where it says none."""
    number = re.fullmatch(r"\d+(?:\.\d+)?", said)
    return f"{float(said):g} %" if number else None


def same_memory(said: str, mib: int) -> bool:
    """Whether a limit that the daemon says is one of so many MiB.

    It says whole GiB from 1 GiB on, without the rest: a quarter of a T4's 15360 MiB is 3G in
    NVIDIA's page on MPS with the GPU Operator. The plugin and nvidia-smi may count differently what
    the driver keeps of a card, hence a twentieth more or less.
    """
    found = _MEMORY.fullmatch(said)
    if found is None:
        return False
    number, slack = int(found.group(1)), mib // 20
    low, high = (number, number) if found.group(2) == "M" else (number * 1024, number * 1024 + 1023)
    return low - slack <= mib <= high + slack


def _memory(host: Host, replicas: int, cards: Iterable[int], to: Collected) -> Dict[str, str]:
    """The plugin's daemon divides a card's memory by the replicas, and gives the limit in MiB.

    See perDevicePinnedDeviceMemoryLimits in cmd/mps-control-daemon/mps/daemon.go of NVIDIA's
    k8s-device-plugin. It names cards by their number, as nvidia-smi has it. A limit for a number
    that no card has is lost without a word, and then a card has none: that card is named.
    """
    what = "memory that an MPS client gets of every GPU"
    gpus, reason = nvidia.query(host)
    wished = {g.number: g.memory // max(replicas, 1) for g in gpus if g.number in set(cards)}
    if not wished or not all(wished.values()):
        why = reason or "nvidia-smi does not say how much memory the GPUs have"
        to.checks.append(failed("sharing.mps_memory", what, why, AGAIN, "each GPU's memory"))
        return {}
    said = {n: _answer(host, f"get_default_device_pinned_mem_limit {n}") for n in wished}
    want = {f"GPU {n}": f"{mib}M" for n, mib in wished.items()}
    # As it is wished where it is the same amount.
    found = {
        f"GPU {n}": f"{wished[n]}M" if same_memory(text, wished[n]) else text or NO_LIMIT
        for n, text in said.items()
    }
    to.checks.append(check("sharing.mps_memory", what, want, found, RESTART))
    return {f"GPU {n}": text or NO_LIMIT for n, text in said.items()}


def collect(host: Host, replicas: int, cards: Iterable[int], to: Collected) -> None:
    """Compare the device plugin's daemon with the lock; ``cards`` are those that MPS shares."""
    what = "no MPS daemon but the device plugin's"
    fix = "Stop it and disable its unit: the device plugin's daemon is the only owner of MPS."
    to.checks.append(check("sharing.mps", what, [], foreign_daemons(host), fix))
    mounts = host.read("/proc/mounts") or ""
    shm = any(line.split()[1:3] == [ROOT + "/shm", "tmpfs"] for line in mounts.splitlines())
    to.checks.append(
        check(
            "sharing.mps_shm",
            "MPS clients have their shared memory",
            "tmpfs on " + ROOT + "/shm",
            "tmpfs on " + ROOT + "/shm" if shm else None,
            AGAIN,
        )
    )
    what, memory = "limits of MPS clients", "memory that an MPS client gets of every GPU"
    if not host.joined:
        reason = "the host is in no cluster"
        to.checks.append(skipped("sharing.mps_limits", what, reason))
        to.checks.append(skipped("sharing.mps_memory", memory, reason))
        return
    # The plugin's daemon divides 100 by the replicas, and drops what is left over.
    want = {"active threads": f"{100 // max(replicas, 1)} %"}
    said = _answer(host, "get_default_active_thread_percentage")
    part = threads(said)
    if part is None:
        reason = said or "the MPS daemon does not answer"
        to.checks.append(failed("sharing.mps_limits", what, reason, LOG, want))
        reason = "the MPS daemon does not answer, which sharing.mps_limits says"
        to.checks.append(skipped("sharing.mps_memory", memory, reason))
        return
    to.checks.append(check("sharing.mps_limits", what, want, {"active threads": part}, RESTART))
    to.facts["mps"] = {"active threads": part, **_memory(host, replicas, cards, to)}
