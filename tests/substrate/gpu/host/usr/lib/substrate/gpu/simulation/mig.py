"""What the kernel shows of MIG: capabilities of instances, and their device nodes."""

from . import paths

MAJOR = 509
#: As the driver numbers them, for every card and instance that there could be.
CARDS, GPU_INSTANCES, COMPUTE_INSTANCES = 32, 15, 8


def minors():
    """Minor number of each capability, by its name in mig-minors."""
    found, number = {"config": 1, "monitor": 2}, 3
    for gpu in range(CARDS):
        for gi in range(GPU_INSTANCES):
            names = ["access"] + [f"ci{ci}/access" for ci in range(COMPUTE_INSTANCES)]
            for name in names:
                found[f"gpu{gpu}/gi{gi}/{name}"] = number
                number += 1
    return found


def capabilities(cards):
    """Capabilities that are there now: those of all instances, and the two of the system."""
    if not any(card.get("mig_profile_0") for card in cards):
        return {}
    known = minors()
    names = ["config", "monitor"]
    for line in (paths.read(paths.SETTINGS) or "").splitlines():
        kind, *numbers = line.split()
        if kind == "gpu_instance":
            names.append("gpu{}/gi{}/access".format(*numbers))
        elif kind == "compute_instance":
            names.append("gpu{}/gi{}/ci{}/access".format(*numbers))
    return {name: known[name] for name in names}


def show(cards, loaded):
    """Fill /proc/driver with them; the nodes that /dev is to have, by name."""
    now = capabilities(cards) if loaded else {}
    if now:
        text = "".join(f"{name} {minor}\n" for name, minor in minors().items())
        paths.write(paths.SHOWN + "/driver/nvidia-caps/mig-minors", text)
    for name, minor in now.items():
        first, _, rest = name.partition("/")
        where = f"{first}/mig/{rest}" if rest else f"mig/{first}"
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        paths.write(f"{paths.SHOWN}/driver/nvidia/capabilities/{where}", text)
    return {f"nvidia-cap{minor}": (MAJOR, minor) for minor in now.values()}
