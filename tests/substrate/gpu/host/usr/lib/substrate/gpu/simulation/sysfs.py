"""Plugged cards as sysfs shows PCI devices: plain files with the contents of the real ones."""

import os
import shutil

from . import paths

DEVICES = paths.SHOWN + "/pci-devices"
DRIVERS = paths.SHOWN + "/pci-drivers"
NVIDIA = "0x10de"
ROM_AND_BARS = 17  # lines of a device's "resource" file


def show(cards, driver, loaded):
    """Show exactly these cards, bound to ``driver`` if any; other vendors' devices stay."""
    wanted = {card.address: card for card in cards}
    for name in paths.names(DEVICES):
        entry = paths.path(DEVICES + "/" + name)
        if not os.path.islink(entry) and name not in wanted:
            shutil.rmtree(entry)
    for address, card in wanted.items():
        for name, text in _files(card, address, driver).items():
            paths.write(f"{DEVICES}/{address}/{name}", text)
        with open(paths.path(f"{DEVICES}/{address}/config"), "wb") as stream:
            stream.write(_config(card))
        _bind(address, driver)
    for name in ("nvidia", "nouveau"):
        folder = paths.path(DRIVERS + "/" + name)
        shutil.rmtree(folder, ignore_errors=True)
        if name in loaded:
            os.makedirs(folder)
        if name in loaded and name == driver:
            for address in wanted:
                os.symlink("../../devices/" + address, folder + "/" + address)


def _bind(address, driver):
    link = paths.path(f"{DEVICES}/{address}/driver")
    if os.path.islink(link):
        os.unlink(link)
    if driver:
        os.symlink("../../drivers/" + driver, link)


def modalias(card):
    """What udev asks modprobe for."""
    pci_class = int(card["pci_class"], 16)
    sub = int(card["pci_subsystem"], 16)
    return "pci:v000010DEd{:08X}sv{:08X}sd{:08X}bc{:02X}sc{:02X}i{:02X}".format(
        int(card["pci_device"], 16),
        sub & 0xFFFF,
        sub >> 16,
        pci_class >> 16,
        pci_class >> 8 & 0xFF,
        pci_class & 0xFF,
    )


def _files(card, address, driver):
    sub = int(card["pci_subsystem"], 16)
    # On a machine without NUMA the kernel says -1.
    nodes = [
        n
        for n in paths.names("/sys/devices/system/node")
        if n.startswith("node") and n[4:].isdigit()
    ]
    numa = int(card["socket"]) if len(nodes) > 1 else -1
    device, pci_class = int(card["pci_device"], 16), int(card["pci_class"], 16)
    uevent = (
        f"PCI_CLASS={pci_class:X}\nPCI_ID=10DE:{device:04X}\n"
        f"PCI_SUBSYS_ID={sub & 0xFFFF:04X}:{sub >> 16:04X}\n"
        f"PCI_SLOT_NAME={address}\nMODALIAS={modalias(card)}\n"
    )
    bus = int(card["pci_bus"], 16)
    bars = {0: (0xD0000000 + (bus << 16), 0x1000000), 1: (bus << 40, int(card["bar1_mib"]) << 20)}
    resource = "".join(
        f"0x{start:016x} 0x{start + size - 1 if size else 0:016x} 0x{0x40200 if size else 0:016x}\n"
        for start, size in (bars.get(n, (0, 0)) for n in range(ROM_AND_BARS))
    )
    return {
        "vendor": NVIDIA + "\n",
        "device": "0x{}\n".format(card["pci_device"]),
        "subsystem_vendor": f"0x{sub & 0xFFFF:04x}\n",
        "subsystem_device": f"0x{sub >> 16:04x}\n",
        "class": card["pci_class"] + "\n",
        "revision": "0xa1\n",
        "numa_node": f"{numa}\n",
        "enable": "1\n" if driver else "0\n",
        "irq": "0\n",
        "modalias": modalias(card) + "\n",
        "uevent": (f"DRIVER={driver}\n" if driver else "") + uevent,
        "resource": resource,
        "max_link_width": card["pcie_width"] + "\n",
        "current_link_width": card["pcie_width"] + "\n",
        "local_cpulist": (paths.read("/sys/devices/system/cpu/online") or "0\n"),
    }


def _config(card):
    """The first 64 bytes are the header that lspci and others read; the rest is empty."""
    sub, pci_class = int(card["pci_subsystem"], 16), int(card["pci_class"], 16)
    space = bytearray(256)
    space[0:2] = (0x10DE).to_bytes(2, "little")
    space[2:4] = int(card["pci_device"], 16).to_bytes(2, "little")
    space[4:6] = (0x0006).to_bytes(2, "little")  # memory access, bus master
    space[8] = 0xA1
    space[9:12] = pci_class.to_bytes(3, "little")
    space[0x2C:0x2E] = (sub & 0xFFFF).to_bytes(2, "little")
    space[0x2E:0x30] = (sub >> 16).to_bytes(2, "little")
    return bytes(space)
