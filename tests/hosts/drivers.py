"""The variables of role nvidia_driver for a driver of the catalogue."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bedplate.catalogue.load import load_catalogue

if TYPE_CHECKING:
    from tests.substrate.hosts.description import Host

#: The PCI identifiers of the substrate's cards.
PCI = {"t4-16gb": ["10de:1eb8"]}


def newest(branch: str, system: str = "debian-12") -> str:
    """Return the version of a branch that a distribution has."""
    found = {
        fact.value.version
        for fact in load_catalogue().driver_packages.values()
        if (fact.value.os, fact.value.source) == (system, "distro")
    }
    return max(one for one in found if one.startswith(f"{branch}."))


def driver(system: str, version: str, flavour: str) -> dict[str, Any]:
    """Name the distribution's packages of a version, as variables of the role."""
    wanted = (system, "distro", version, flavour)
    (packages,) = (
        fact.value.packages
        for fact in load_catalogue().driver_packages.values()
        if (fact.value.os, fact.value.source, fact.value.version, fact.value.flavour) == wanted
    )
    return {
        "nvidia_driver_version": version,
        "nvidia_driver_flavour": flavour,
        "nvidia_driver_source": "distro",
        "nvidia_driver_packages": packages,
    }


def variables(host: Host, version: str, flavour: str = "proprietary") -> dict[str, Any]:
    """Say what a host of the substrate gets: the distribution's packages of that version."""
    assert host.gpus is not None
    gpus = {"model": host.gpus.model, "pci": PCI[host.gpus.model], "count": host.gpus.count}
    return driver(host.os, version, flavour) | {"nvidia_driver_gpus": [gpus]}


if __name__ == "__main__":
    print(json.dumps(driver(*sys.argv[1:])))
