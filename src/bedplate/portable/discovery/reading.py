"""What a host is and what already runs on it, in one reading that changes nothing.

``collect`` is the whole of it; its parts are in ``discovery_hardware``, ``discovery_links``,
``discovery_packages`` and ``discovery_software``. What is absent is said as such, and nothing
secret is among the facts: a kubelet's key stays where it is.
"""

import os
from typing import Any, Dict

from ..host import Host
from . import hardware, links, packages, software

FORMAT = 1


def collect(host: Host) -> Dict[str, Any]:
    """Return the facts of the host, ready for JSON.

    Identifiers are lower-case hexadecimal ``vendor:device``, sizes are in bytes unless the key
    says otherwise, and everything is sorted, so that a host that stays as it is reads the same.
    """
    system = software.system(host)
    installed = packages.installed(host)
    driver = software.driver(host, installed)
    loaded = driver["loaded"] is not None
    return {
        "format": FORMAT,
        # Without root some files cannot be read: what is missing then is not known to be absent.
        "root": os.geteuid() == 0,
        "system": system,
        "accelerators": hardware.accelerators(host),
        "secure_boot": hardware.secure_boot(host),
        "iommu": hardware.iommu(host),
        "disks": hardware.disks(host),
        "nics": hardware.nics(host),
        "rdma": hardware.rdma(host),
        "firmware": dict(hardware.board(host), vbios=links.vbios(host) if loaded else {}),
        "gpus": links.gpus(host) if loaded else links.ABSENT,
        "nvlink": links.nvlink(host) if loaded else links.ABSENT,
        "driver": driver,
        "packages": [package._asdict() for package in installed],
        "container_runtime": software.container_runtime(host, installed),
        "kubernetes": software.kubernetes(host, installed),
    }
