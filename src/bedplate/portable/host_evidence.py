"""Collects a host's evidence, area by area. Everything it needs is read on the host itself."""

import hashlib
import os
import platform
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

from . import debian, evidence, nvidia, pci
from .evidence import AGAIN, Checks, check, failed, skipped
from .host import Host

MANIFEST = "/etc/bedplate/device-plugin.yaml"
PLACED_MANIFEST = "/etc/kubernetes/manifests/nvidia-device-plugin.yaml"
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
NAMESPACE = "k8s.io"
PENDING = (
    "A node keeps its driver while it is in a cluster: take it out of the inventory, run"
    " 'bedplate plan' and 'pulumi up', then put it back and run site.yml."
)
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+(?:[-+.~][0-9A-Za-z.+~-]+)?)")
_GPU_LINE = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>[^)]+)\)$")


class Wishes(NamedTuple):
    """What the host was to have. Empty values are not wished and their checks are skipped."""

    gpus: List[Mapping[str, Any]]
    driver_version: str
    driver_flavour: str
    driver_packages: Mapping[str, str]
    containerd: str
    toolkit: str
    kubelet: str
    plugin_image: str


class Collected(NamedTuple):
    """What the areas add to."""

    checks: Checks
    facts: Dict[str, Any]
    labels: Dict[str, str]


Area = Callable[[Host, Wishes, Collected], None]


def _driver(host: Host, wish: Wishes, to: Collected) -> None:
    have = debian.installed(host, list(wish.driver_packages))
    loaded = nvidia.loaded_module(host)
    versions = {name: package.version for name, package in have.items()}
    fix = PENDING if host.joined else AGAIN
    to.facts["driver"] = {
        "packages": versions,
        "loaded": loaded.version if loaded else None,
        "flavour": loaded.flavour if loaded else None,
    }
    to.checks.append(
        check(
            "driver.packages",
            "driver packages at the lock's versions",
            dict(wish.driver_packages),
            versions,
            fix,
        )
    )
    held = sorted(name for name, package in have.items() if package.held)
    to.checks.append(
        check(
            "driver.held",
            "driver packages held against upgrades",
            sorted(wish.driver_packages),
            held,
            AGAIN,
        )
    )
    same = versions == dict(wish.driver_packages)
    to.checks.append(
        check(
            "driver.loaded_version",
            "loaded kernel module at the lock's version",
            wish.driver_version,
            loaded.version if loaded else None,
            "Reboot the host, or set nvidia_driver_reboot_allowed and run site.yml."
            if loaded and same
            else fix,
            "reboot required"
            if loaded and same
            else "no nvidia module is loaded"
            if not loaded
            else "",
        )
    )
    to.checks.append(
        check(
            "driver.flavour",
            "flavour of the kernel module",
            wish.driver_flavour,
            loaded.flavour if loaded else None,
            fix,
            "" if loaded else "no nvidia module is loaded",
        )
    )
    to.checks.append(
        check(
            "driver.nouveau",
            "nouveau is not loaded",
            "absent",
            "loaded" if host.exists("/sys/module/nouveau") else "absent",
            "Reboot the host: nouveau is blacklisted and does not come back.",
        )
    )


def _gpus(host: Host, wish: Wishes, to: Collected) -> None:
    where = "the host"
    present = pci.gpus(pci.scan(host))
    problems = pci.compare(present, wish.gpus, where)
    declared = {i.lower() for w in wish.gpus for i in w["pci"]}
    count = sum(int(w["count"]) for w in wish.gpus)
    wished = ", ".join("{} x {}".format(w["count"], w["model"]) for w in wish.gpus)
    found = wished if not problems else pci.describe(present)
    fix = "Correct bedplate_gpu of the host's pool or the hardware, and run 'bedplate plan' again."
    to.checks.append(check("gpu.pci", "GPUs on the PCI bus as declared", wished, found, fix))

    answered, reason = nvidia.query(host)
    to.facts["gpus"] = [
        {"index": g.number, "name": g.name, "uuid": g.uuid, "memory_mib": g.memory, "bus": g.bus}
        for g in answered
    ]
    loaded = nvidia.loaded_module(host)
    if reason is not None:
        to.checks.append(
            failed(
                "driver.library",
                "nvidia-smi answers through the driver's library",
                reason,
                AGAIN,
                "an answer",
            )
        )
        return
    libraries = sorted({g.library for g in answered})
    to.checks.append(
        check(
            "driver.library",
            "library and loaded kernel module are of one version",
            [loaded.version] if loaded else [],
            libraries,
            AGAIN,
        )
    )
    to.checks.append(
        check(
            "gpu.count",
            "as many GPUs in use as declared",
            count,
            len(answered),
            "See the kernel's log for Xid messages, and nvidia-smi on the host.",
        )
    )
    matched = sum(d.identifier in declared for d in present)
    to.checks.append(check("gpu.model", "GPUs of the declared models", count, matched, fix))
    to.checks.append(
        check(
            "gpu.uuid",
            "every GPU has a UUID of its own",
            len(answered),
            len({g.uuid for g in answered if g.uuid.startswith("GPU-")}),
            "See nvidia-smi on the host.",
        )
    )
    empty = [g.number for g in answered if g.memory <= 0]
    to.checks.append(
        check("gpu.memory", "every GPU has memory", [], empty, "See nvidia-smi on the host.")
    )
    idle = [g.number for g in answered if not g.persistence]
    to.checks.append(
        check(
            "driver.persistence",
            "GPUs kept initialised by the persistence daemon",
            [],
            idle,
            "See 'systemctl status nvidia-persistenced' on the host, and run site.yml again.",
            "persistence mode is off on these GPUs",
        )
    )
    nodes = list(DEVICE_NODES) + [f"/dev/nvidia{g.number}" for g in answered]
    missing = [name for name in nodes if not host.exists(name)]
    to.checks.append(
        check(
            "driver.device_nodes", "device nodes are there", [], missing, AGAIN, "these are missing"
        )
    )


def version_of(host: Host, argv: List[str]) -> Tuple[str, str]:
    """The version that a program prints of itself, and the reason where it does not."""
    answer = host.run(argv)
    found = _VERSION.search(answer.out) if answer.code == 0 else None
    return (found.group(1), "") if found else ("", answer.said)


def _version_check(
    host: Host, to: Collected, name: str, what: str, wished: str, argv: List[str]
) -> None:
    if not wished:
        to.checks.append(skipped(name, what, "the lock names no version for this host"))
        return
    found, reason = version_of(host, argv)
    to.checks.append(check(name, what, wished, found or None, AGAIN, reason))


def _runtime(host: Host, wish: Wishes, to: Collected) -> None:
    what = "the container runtime answers, at the lock's version"
    if not wish.containerd:
        to.checks.append(
            skipped("runtime.version", what, "the lock names no version for this host")
        )
        return
    answer = host.run(["ctr", "version"])
    server = answer.out.partition("Server:")[2]
    found = _VERSION.search(server)
    reason = "" if found else answer.said
    to.checks.append(
        check(
            "runtime.version",
            what,
            wish.containerd,
            found.group(1) if found else None,
            AGAIN,
            reason,
        )
    )


def _toolkit(host: Host, wish: Wishes, to: Collected) -> None:
    argv = ["nvidia-ctk", "--version"]
    what = "NVIDIA's container toolkit at the lock's version"
    _version_check(host, to, "toolkit.version", what, wish.toolkit, argv)
    devices, reason = nvidia.cdi_devices(host)
    to.checks.append(
        check(
            "cdi.devices",
            "the CDI specification lists every GPU",
            sum(int(w["count"]) for w in wish.gpus),
            len(devices),
            AGAIN,
            reason or "",
        )
    )


def _kubernetes(host: Host, wish: Wishes, to: Collected) -> None:
    argv = ["kubelet", "--version"]
    _version_check(host, to, "kubelet.version", "kubelet at the lock's version", wish.kubelet, argv)


def _plugin(host: Host, wish: Wishes, to: Collected) -> None:
    manifest = host.read(MANIFEST)
    what = "the device plugin's manifest is kept on the host"
    if manifest is None:
        to.checks.append(
            failed("plugin.manifest", what, f"there is no {MANIFEST}", AGAIN, MANIFEST)
        )
        return
    digest = "sha256:" + hashlib.sha256(manifest.encode()).hexdigest()
    to.facts["plugin_manifest"] = digest
    image = wish.plugin_image if wish.plugin_image in manifest else "another image"
    to.checks.append(
        check("plugin.manifest", what + ", with the lock's image", wish.plugin_image, image, AGAIN)
    )
    what = "kubelet was given that manifest"
    if not host.joined:
        to.checks.append(skipped("plugin.placed", what, "the host has not joined a cluster"))
        return
    placed = host.read(PLACED_MANIFEST)
    found = None if placed is None else "sha256:" + hashlib.sha256(placed.encode()).hexdigest()
    fix = "Restart kubelet on the host: it puts the manifest in place when it starts."
    to.checks.append(check("plugin.placed", what, digest, found, fix))


def _in_container(host: Host, image: str, name: str, argv: List[str]) -> Any:
    container = f"bedplate-verify-{name}-{os.getpid()}"
    ctr = [
        "ctr",
        "--namespace",
        NAMESPACE,
        "run",
        "--rm",
        "--device",
        "nvidia.com/gpu=all",
        image,
        container,
    ]
    return host.run(ctr + argv, timeout=120)


def _container(host: Host, wish: Wishes, to: Collected) -> None:
    what = "a container that is given all GPUs sees exactly the host's"
    if not wish.plugin_image:
        to.checks.append(skipped("container.gpus", what, "the lock names no image to try it with"))
        return
    answer = _in_container(host, wish.plugin_image, "smi", ["nvidia-smi", "-L"])
    if answer.code != 0:
        to.checks.append(failed("container.gpus", what, answer.said, AGAIN, "the host's GPUs"))
    else:
        lines = (_GPU_LINE.match(line.strip()) for line in answer.out.splitlines())
        seen = sorted(line.group("uuid") for line in lines if line)
        mine = sorted(g.uuid for g in nvidia.query(host)[0])
        one = check("container.gpus", what, mine, seen, AGAIN)
        if not mine:
            reason = "the host itself sees no GPU"
            one = failed("container.gpus", what, reason, AGAIN, "the host's GPUs")
        to.checks.append(one)
    what = "GPU feature discovery describes the GPUs"
    argv = [
        "gpu-feature-discovery",
        "--oneshot",
        "--no-timestamp",
        "--use-node-feature-api=false",
        "--output-file=",
    ]
    answer = _in_container(host, wish.plugin_image, "gfd", argv)
    labels = dict(
        line.strip().split("=", 1)
        for line in answer.out.splitlines()
        if line.startswith("nvidia.com/") and "=" in line
    )
    if answer.code != 0 or not labels:
        to.checks.append(failed("container.labels", what, answer.said, AGAIN, "labels"))
        return
    to.labels.update(labels)
    counted = labels.get("nvidia.com/gpu.count")
    wished = str(sum(int(w["count"]) for w in wish.gpus))
    to.checks.append(check("container.labels", what, wished, counted, AGAIN))


#: In the order in which they are collected. ``driver`` to ``container`` want GPUs on the host.
AREAS: Dict[str, Area] = {
    "driver": _driver,
    "gpus": _gpus,
    "runtime": _runtime,
    "toolkit": _toolkit,
    "kubernetes": _kubernetes,
    "plugin": _plugin,
    "container": _container,
}
GPU_AREAS = ("driver", "gpus", "toolkit", "plugin", "container")


def collect(host: Host, wish: Wishes, areas: List[str]) -> Dict[str, Any]:
    """Evidence of the host in the named ``areas``: ``{simulated, labels, facts, checks}``."""
    to = Collected([], {"kernel": platform.release(), "joined": host.joined}, {})
    for name, collector in AREAS.items():
        if name not in areas:
            continue
        if name in GPU_AREAS and not wish.gpus:
            to.checks.append(
                skipped(name, "GPU side of the host", "the site declares no GPU for this host")
            )
        else:
            collector(host, wish, to)
    return {
        "simulated": evidence.simulated(host),
        "labels": to.labels,
        "facts": to.facts,
        "checks": to.checks,
    }
