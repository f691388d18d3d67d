"""Which operating system a host runs, by ``/etc/os-release``."""

from typing import Dict

from .host import Host

#: What /etc/os-release calls the systems of a family, in ID or ID_LIKE.
FAMILIES = {"Debian": ("debian", "ubuntu"), "RedHat": ("rhel", "fedora", "centos")}


def keys(host: Host) -> Dict[str, str]:
    """The keys of ``/etc/os-release``; empty where there is none."""
    found = {}
    for line in (host.read("/etc/os-release") or "").splitlines():
        key, separator, value = line.partition("=")
        if separator:
            found[key.strip()] = value.strip().strip("\"'")
    return found


def family(host: Host) -> str:
    """``Debian`` or ``RedHat``: how packages are installed there. Empty for any other system."""
    found = keys(host)
    names = {found.get("ID", ""), *found.get("ID_LIKE", "").split()}
    return next((name for name, ids in FAMILIES.items() if names & set(ids)), "")


def name(host: Host) -> str:
    """``debian-12`` or ``rocky-9``: the name that a site's ``bedplate_host.os`` uses.

    Minor releases of Red Hat's family are one system: they take the same packages.
    """
    found = keys(host)
    version = found.get("VERSION_ID", "unknown")
    if family(host) == "RedHat":
        version = version.split(".")[0]
    return "{}-{}".format(found.get("ID", "unknown"), version)
