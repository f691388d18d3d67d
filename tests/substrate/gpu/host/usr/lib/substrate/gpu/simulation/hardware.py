"""Boot of the simulated kernel: mounts, and what udev would load for the cards it finds."""

import os
import subprocess

from . import kernel, modprobe, paths, sysfs
from .cards import plugged

#: What is shown -> where. Each is mounted inside this host's mount namespace only.
MOUNTS = {
    "module": "/sys/module",
    "pci-devices": "/sys/bus/pci/devices",
    "pci-drivers": "/sys/bus/pci/drivers",
    "driver": "/proc/driver",
    "modules": "/proc/modules",
}


#: Modules, bound drivers and folders of /proc/driver that the machine may have for its own cards.
DRIVERS = ("nvidia", "nouveau")


def boot():
    """Show the machine's own devices and modules beside the simulated ones, then act as udev.

    systemd's modprobe@.service instances start at the same time and are ordered after nothing:
    whoever loads a module waits until everything is shown.
    """
    with paths.locked():
        for name, target in MOUNTS.items():
            if os.path.isdir(target):
                _adopt(name, target)
        own_modules = paths.read(MOUNTS["modules"])
        paths.write(paths.MACHINE + "/modules", own_modules or "")
        kernel.show()
        for name, target in MOUNTS.items():
            if os.path.exists(target):  # a kernel without modules has no /proc/modules
                _mount(paths.SHOWN + "/" + name, target)
    coldplug()
    return 0


def refresh():
    """Take notice of cards that were plugged or pulled while the host runs."""
    with paths.locked():
        kernel.show()
    return 0


def coldplug():
    """As udev does at boot: for each card, load whatever claims it and is not blacklisted."""
    for alias in sorted({sysfs.modalias(card) for card in plugged()}):
        modprobe.main(["-b", "-q", "-a", alias])


def _adopt(name, target):
    """Keep the machine's own entries reachable, by links to where they can still be found."""
    machine, shown = paths.MACHINE + "/" + name, paths.SHOWN + "/" + name
    os.makedirs(machine, exist_ok=True)
    os.makedirs(shown, exist_ok=True)
    _mount(target, machine)
    for entry in paths.names(machine):
        if name == "pci-devices" and _nvidia(machine + "/" + entry):
            continue  # this host has the cards that were plugged, not the machine's
        if entry.startswith(DRIVERS):
            continue
        # Links of sysfs are relative: they hold only where they were made.
        real = os.path.realpath(target + "/" + entry)
        inside = real.startswith(target + "/")
        os.symlink(real.replace(target, machine, 1) if inside else real, shown + "/" + entry)


def _nvidia(device):
    return (paths.read(device + "/vendor") or "").strip() == sysfs.NVIDIA


def _mount(source, target):
    subprocess.run(["mount", "--bind", source, target], check=True)
