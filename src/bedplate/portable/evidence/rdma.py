"""Evidence of RDMA: packages, devices, ports, the way to GPU memory, RoCE and NCCL settings."""

from typing import Any, Dict, List, Mapping

from ..driver import state
from ..host import Host
from ..rdma import devices as rdma
from ..runtime.state import UNITS
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

INFINIBAND = "/dev/infiniband"
LOCKED = "Max locked memory"


def _packages(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    what = "packages of the RDMA stack are installed"
    wished = sorted(wish.get("packages") or [])
    have = state.installed(host, wished)
    to.checks.append(check("rdma.packages", what, wished, sorted(have), AGAIN))


def _gpus(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    method = wish["method"]
    what = f"network cards reach GPU memory by {method}"
    if not wish.get("gpus"):
        to.checks.append(skipped("rdma.gpudirect", what, "the site declares no GPU for this host"))
        return
    if method == "host-memory":
        why = "the lock has none: these GPUs have no GPUDirect RDMA"
        to.checks.append(skipped("rdma.gpudirect", "network cards reach GPU memory", why))
        return
    reason = rdma.gpu_path(host, method)
    if reason is None:
        to.checks.append(check("rdma.gpudirect", what, method, method, ""))
    else:
        to.checks.append(failed("rdma.gpudirect", what, reason, AGAIN, method))


def _roce(host: Host, wish: Mapping[str, Any], found: List[Dict[str, Any]], to: Collected) -> None:
    what = "RoCE traffic is marked and lossless"
    roce = wish.get("roce") or {}
    if not roce:
        to.checks.append(skipped("rdma.roce", what, "the site asks for no RoCE settings"))
        return
    wished: Dict[str, Any] = {}
    have: Dict[str, Any] = {}
    aim = {"tos": rdma.traffic_class(int(roce["dscp"])), "mode": "RoCE v2"}
    for one in found:
        for port in one["ports"]:
            if port["link"] == rdma.ETHERNET:
                name = "{}/{}".format(one["name"], port["port"])
                wished[name] = aim
                have[name] = rdma.roce_state(host, one["name"], port["port"])
    for interface in roce.get("interfaces") or []:
        priority = int(roce["priority"])
        wished[interface] = {"lossless": [priority], "priority": priority}
        have[interface] = {
            "lossless": rdma.lossless_priorities(host, interface),
            "priority": rdma.dscp_priority(host, interface, int(roce["dscp"])),
        }
    to.checks.append(check("rdma.roce", what, wished, have, "Restart bedplate-roce.service."))


def _pods(host: Host, wishes: Wishes, to: Collected) -> None:
    """What pods need besides the plugin's resource, which the node itself shows."""
    there = host.list(INFINIBAND)
    lacking = [kind for kind in rdma.FOR_PODS if not any(one.startswith(kind) for one in there)]
    what = "the devices that pods are given are there"
    fix = f"Load their modules (ib_uverbs, ib_umad, rdma_ucm): {AGAIN}"
    to.checks.append(check("rdma.pod_devices", what, [], lacking, fix))
    unit = UNITS[str(wishes.containers.get("runtime") or "containerd")]
    asked = host.run(["systemctl", "show", "--property=MainPID", "--value", unit])
    limits = host.read(f"/proc/{asked.out.strip()}/limits") or ""
    found = [line.split()[3] for line in limits.splitlines() if line.startswith(LOCKED)]
    what = "containers may lock the memory that RDMA sends"
    fix = f"Run bedplate.gpu.upgrade, which drains the node and restarts {unit} with its limits."
    to.checks.append(check("rdma.locked_memory", what, ["unlimited"], found, fix))


def _hardware(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    names = sorted(wish.get("devices") or [])
    found = rdma.devices(host, names)
    what = "RDMA devices are there"
    to.facts["rdma"] = {one["name"]: one["ports"] for one in found}
    if not found and not names and not wish.get("pods"):
        reason = "the host has no RDMA device, and the site names none"
        to.checks.append(skipped("rdma.devices", what, reason))
        return
    have = [one["name"] for one in found]
    fix = "See 'rdma link' and the kernel's log, or correct rdma_devices."
    to.checks.append(check("rdma.devices", what, names or have or ["at least one"], have, fix))
    fix = "See cable and switch port, and 'ibstat'; InfiniBand needs a subnet manager."
    to.checks.append(check("rdma.ports", "RDMA ports are active", [], rdma.inactive(found), fix))
    _gpus(host, wish, to)
    _roce(host, wish, found, to)


def collect(host: Host, wishes: Wishes, to: Collected) -> None:
    """Add the checks of RDMA; one skipped check where the lock has none."""
    wish = wishes.rdma
    if not wish.get("stack"):
        to.checks.append(skipped("rdma", "RDMA stack", "the lock has no RDMA for this host"))
        return
    _packages(host, wish, to)
    _hardware(host, wish, to)
    if wish.get("pods"):
        _pods(host, wishes, to)
    what = "NCCL's settings are the lock's"
    wished = {name: str(value) for name, value in (wish.get("nccl") or {}).items()}
    to.facts["nccl"] = wished
    have = rdma.parse_nccl(host.read(rdma.NCCL_CONF))
    to.checks.append(check("rdma.nccl", what, wished, have, AGAIN))
