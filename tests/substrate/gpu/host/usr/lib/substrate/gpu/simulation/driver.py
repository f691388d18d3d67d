"""The driver package that is installed, as far as its kernel module is concerned."""

import re

from . import paths

#: CUDA version that each driver branch supports natively (NVIDIA's supported drivers table).
CUDA_OF_BRANCH = {
    470: 11040, 525: 12000, 535: 12020, 550: 12040, 560: 12060, 565: 12070, 570: 12080, 575: 12090,
    580: 13000, 590: 13010, 595: 13020, 610: 13030, 615: 13040,
}  # fmt: skip
_SOURCE = re.compile(r"nvidia-(?P<variant>[a-z0-9-]*?)-?(?P<version>\d{3}\.\d+(?:\.\d+)?)")


class Driver:
    """Version ``535.261.03`` and Debian's variant, such as ``current`` or ``current-open``."""

    def __init__(self, version, variant):
        self.version = version
        self.variant = variant
        self.is_open = "open" in variant.split("-")

    def file(self, module):
        """Path of a module's file, as DKMS would have installed it."""
        name = module.replace("_", "-")
        if self.variant:
            name = name.replace("nvidia", "nvidia-" + self.variant, 1)
        return f"/lib/modules/{release()}/updates/dkms/{name}.ko"


def release():
    """The running kernel's release."""
    return (paths.read("/proc/sys/kernel/osrelease") or "").strip()


def installed(module="nvidia"):
    """The driver whose module source lies on this host, or None.

    Of several, the one that a module's name (``nvidia-current-open-uvm``) asks for, or newest.

    Without kernel headers DKMS only adds the source, so the source stands for the module.
    """
    found = []
    for name in paths.names("/usr/src"):
        match = _SOURCE.fullmatch(name)
        if match and paths.read(f"/usr/src/{name}/dkms.conf") is not None:
            found.append(Driver(match.group("version"), match.group("variant")))
    wanted = module.replace("_", "-") + "-"
    named = [d for d in found if d.variant and wanted.startswith("nvidia-" + d.variant + "-")]
    if named:
        return max(named, key=lambda d: len(d.variant))
    return max(found, key=lambda d: [int(n) for n in d.version.split(".")]) if found else None


def cuda(version):
    """CUDA's number (12020 for 12.2) that a driver of this version supports."""
    branch = int(version.split(".")[0])
    known = [b for b in CUDA_OF_BRANCH if b <= branch]
    return CUDA_OF_BRANCH[max(known)] if known else CUDA_OF_BRANCH[min(CUDA_OF_BRANCH)]
