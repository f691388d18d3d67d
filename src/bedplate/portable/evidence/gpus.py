"""Evidence of the GPUs: what is on the bus, and what the driver's library says about it."""

from .. import nvidia, pci
from ..host import Host
from . import near
from .area import Collected, Wishes
from .checks import AGAIN, check, failed

#: nvidia-smi writes eight digits of a PCI domain, the kernel four.
ADDRESS = len("0000:00:00.0")
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare the GPUs with those that the site declares."""
    where = "the host"
    present = pci.gpus(pci.scan(host))
    to.labels.update(near.labels(host))
    problems = pci.compare(present, wish.gpus, where)
    declared = {i.lower() for w in wish.gpus for i in w["pci"]}
    others = {d.address for d in present if d.identifier not in declared}
    count = wish.gpu_count
    wished = ", ".join("{} x {}".format(w["count"], w["model"]) for w in wish.gpus)
    found = wished if not problems else pci.describe(present)
    fix = "Correct bedplate_gpu of the host's pool or the hardware, and run 'bedplate plan' again."
    answered, reason = nvidia.query(host)
    named = {g.bus[-ADDRESS:]: f"{g.name} at {g.bus[-ADDRESS:]}" for g in answered}
    unasked = ", ".join(named[address] for address in sorted(others) if address in named)
    told = f"not declared: {unasked}" if unasked else ""
    to.checks.append(check("gpu.pci", "GPUs on the PCI bus as declared", wished, found, fix, told))

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
            # One that nobody declares, as for a display, is named above and is not counted here.
            sum(g.bus[-ADDRESS:] not in others for g in answered),
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
            "See 'systemctl status nvidia-persistenced' on the host, and "
            "run bedplate.gpu.site again.",
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
