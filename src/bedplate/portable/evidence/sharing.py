"""Evidence of how GPUs are shared: MIG layout, compute mode, MPS, the device plugin's replicas."""

import re
from typing import Any, Dict, List, Mapping, Optional

from .. import mig, nvidia
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

CONFIGURATION = "/etc/bedplate/device-plugin-config.yaml"
UNIT = "bedplate-gpu-layout.service"
ENABLED = "/etc/systemd/system/multi-user.target.wants/" + UNIT
#: Where the device plugin and its MPS daemon meet; its own default.
MPS_ROOT = "/run/nvidia/mps"
RESOURCE = "nvidia.com/gpu"
DAEMON = "nvidia-cuda-mps"
PENDING = (
    "A node keeps its sharing while it is in a cluster: run bedplate.gpu.upgrade, which drains it."
)
#: Our own configuration file, so its form is known; the host may have no YAML library.
_REPLICAS = re.compile(r"^\s+replicas: (\d+)$", re.MULTILINE)
_KIND = re.compile(r"^  (timeSlicing|mps):$", re.MULTILINE)
_STRATEGY = re.compile(r"^  migStrategy: (\w+)$", re.MULTILINE)
_MEMORY = re.compile(r"(\d+)([GM])")


class _Sharing:
    """The wish by its keys: the variables of the role gpu_sharing, less their prefix."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.mode = str(given.get("mode", "none"))
        self.replicas = int(given.get("replicas", 0))
        self.profiles = tuple(given.get("mig_profiles", ()))
        self.compute_mode = str(given.get("compute_mode", ""))


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare what the GPUs and the device plugin's configuration say with the wished sharing."""
    if not wish.sharing:
        to.checks.append(skipped("sharing", "how GPUs are shared", "the lock shares none here"))
        return
    _layout(host, _Sharing(wish.sharing), to)
    _plugin(host, _Sharing(wish.sharing), to)
    _mps(host, _Sharing(wish.sharing), to)


def _layout(host: Host, wish: _Sharing, to: Collected) -> None:
    what = "every GPU divided as the lock says"
    fix = PENDING if host.joined else AGAIN
    try:
        cards = mig.read(host)
    except mig.MigError as error:
        to.checks.append(failed("sharing.mig", what, str(error), AGAIN, "an answer"))
        return
    wished = mig.Wish(tuple(wish.profiles), "")
    layout = {f"GPU {card.number}": mig.described(card) for card in cards}
    to.facts["mig"] = layout
    want = {f"GPU {card.number}": mig.wished_text(wished) for card in cards}
    reason = "" if cards else "nvidia-smi lists no GPU"
    if not cards:
        to.checks.append(failed("sharing.mig", what, reason, AGAIN, mig.wished_text(wished)))
        return
    to.checks.append(check("sharing.mig", what, want, layout, fix))
    what = "the layout comes back after a reboot"
    if host.exists(ENABLED) or wish.profiles:
        found = "enabled" if host.exists(ENABLED) else "not enabled"
        to.checks.append(check("sharing.boot", f"{what} ({UNIT})", "enabled", found, AGAIN))
    else:
        to.checks.append(skipped("sharing.boot", what, "the GPUs are not divided"))
    _compute_mode(host, wish, to, cards)


def _compute_mode(host: Host, wish: _Sharing, to: Collected, cards: List[mig.Card]) -> None:
    what, wished = "compute mode of every GPU", wish.compute_mode
    if wish.mode == "mps":
        if not host.joined:
            to.checks.append(
                skipped("sharing.compute_mode", what, "the MPS daemon sets it once the host joins")
            )
            return
        wished = "exclusive-process"
    if not wished or wish.profiles:
        reason = "divided GPUs have none to choose" if wish.profiles else "none is wished"
        to.checks.append(skipped("sharing.compute_mode", what, reason))
        return
    found = {f"GPU {card.number}": card.compute_mode for card in cards}
    want = dict.fromkeys(found, mig.COMPUTE_MODES[wished])
    to.checks.append(check("sharing.compute_mode", what, want, found, AGAIN))


def offered(text: str) -> str:
    """What a device plugin's configuration offers, as ``mps x 20, MIG none``."""
    kind, replicas, strategy = (p.search(text) for p in (_KIND, _REPLICAS, _STRATEGY))
    mode = {"timeSlicing": "time-slicing", "mps": "mps"}[kind.group(1)] if kind else "none"
    shares = f" x {replicas.group(1)}" if kind and replicas else ""
    return "{}{}, MIG {}".format(mode, shares, strategy.group(1) if strategy else "none")


def _wished_offer(wish: _Sharing) -> str:
    shared = wish.mode in ("time-slicing", "mps")
    mode = f"{wish.mode} x {wish.replicas}" if shared else "none"
    return "{}, MIG {}".format(mode, "single" if wish.mode == "mig" else "none")


def _plugin(host: Host, wish: _Sharing, to: Collected) -> None:
    what = "the device plugin offers GPUs as the lock says"
    text = host.read(CONFIGURATION)
    if text is None:
        reason = f"there is no {CONFIGURATION}: no device plugin on this host"
        to.checks.append(skipped("sharing.replicas", what, reason))
        return
    fix = PENDING if host.joined else AGAIN
    to.checks.append(check("sharing.replicas", what, _wished_offer(wish), offered(text), fix))


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
    """What the device plugin's MPS daemon answers; nothing where it does not."""
    pipe = {"CUDA_MPS_PIPE_DIRECTORY": f"{MPS_ROOT}/{RESOURCE}/pipe"}
    asked = f"echo {question} | nvidia-cuda-mps-control"
    answer = host.run(["sh", "-c", asked], environment=pipe)
    return answer.out.strip() if answer.code == 0 else ""


def limits(host: Host) -> Dict[str, Optional[str]]:
    """What the running MPS daemon says of its clients' limits; None where it says nothing."""
    said = _answer(host, "get_default_active_thread_percentage")
    number = re.fullmatch(r"\d+(?:\.\d+)?", said)
    return {"active threads": f"{float(said):g} %" if number else None}


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


def _memory(host: Host, wish: _Sharing, fix: str, to: Collected) -> None:
    """The plugin's daemon divides a card's memory by the replicas, and gives the limit in MiB.

    See perDevicePinnedDeviceMemoryLimits in cmd/mps-control-daemon/mps/daemon.go of NVIDIA's
    k8s-device-plugin. It names cards by their number, as nvidia-smi has it.
    """
    what = "memory that an MPS client gets of every GPU"
    cards, reason = nvidia.query(host)
    wished = {c.number: c.memory // max(wish.replicas, 1) for c in cards if c.memory}
    asked = {n: _answer(host, f"get_default_device_pinned_mem_limit {n}") for n in wished}
    told = {n: said for n, said in asked.items() if _MEMORY.fullmatch(said)}
    if not told:
        why = reason or "the MPS daemon does not say it of any GPU"
        to.checks.append(skipped("sharing.mps_memory", what, why))
        return
    want = {f"GPU {n}": f"{wished[n]}M" for n in told}
    # As it is wished where it is the same amount.
    found = {
        f"GPU {n}": f"{wished[n]}M" if same_memory(said, wished[n]) else said
        for n, said in told.items()
    }
    to.checks.append(check("sharing.mps_memory", what, want, found, fix))


def _mps(host: Host, wish: _Sharing, to: Collected) -> None:
    what = "no MPS daemon but the device plugin's"
    if wish.mode != "mps":
        to.checks.append(skipped("sharing.mps", what, "the GPUs are not shared by MPS"))
        return
    fix = "Stop it and disable its unit: the device plugin's daemon is the only owner of MPS."
    to.checks.append(check("sharing.mps", what, [], foreign_daemons(host), fix))
    mounts = host.read("/proc/mounts") or ""
    shm = any(line.split()[1:3] == [MPS_ROOT + "/shm", "tmpfs"] for line in mounts.splitlines())
    to.checks.append(
        check(
            "sharing.mps_shm",
            "MPS clients have their shared memory",
            "tmpfs on " + MPS_ROOT + "/shm",
            "tmpfs on " + MPS_ROOT + "/shm" if shm else None,
            AGAIN,
        )
    )
    what = "limits of MPS clients"
    if not host.joined:
        to.checks.append(skipped("sharing.mps_limits", what, "the host has not joined a cluster"))
        return
    # The plugin's daemon divides 100 by the replicas, and drops what is left over.
    want = {"active threads": f"{100 // max(wish.replicas, 1)} %"}
    fix = (
        "Read the daemon's log: crictl logs $(crictl ps --latest --quiet --name mps-control-daemon)"
    )
    to.checks.append(check("sharing.mps_limits", what, want, limits(host), fix))
    _memory(host, wish, fix, to)
