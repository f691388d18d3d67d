"""Evidence of NVIDIA's container toolkit and its CDI specification."""

from . import nvidia
from .evidence import AGAIN, check
from .evidence_area import Collected, Wishes, version_check
from .host import Host


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare version and CDI devices with what is wished."""
    argv = ["nvidia-ctk", "--version"]
    what = "NVIDIA's container toolkit at the lock's version"
    version_check(host, to, "toolkit.version", what, wish.toolkit_version, argv)
    devices, reason = nvidia.cdi_devices(host)
    to.checks.append(
        check(
            "cdi.devices",
            "the CDI specification lists every GPU",
            wish.gpu_count,
            len(devices),
            AGAIN,
            reason or "",
        )
    )
