"""The cards that are plugged into this host."""

import hashlib
import os

from . import paths


class Card(dict):
    """One card's fields as texts; see the slots' file."""

    @property
    def address(self):
        """PCI address as sysfs writes it."""
        return "{:04x}:{:02x}:{:02x}.0".format(
            *(int(self[key], 16) for key in ("pci_domain", "pci_bus", "pci_slot"))
        )


def plugged():
    """All cards, by slot. Minor numbers count the cards that are there, as the driver does."""
    cards = []
    for block in (paths.read(paths.SLOTS) or "").split("gpu\n")[1:]:
        card = Card(line.split(" ", 1) for line in block.splitlines() if " " in line)
        card["minor"] = str(len(cards))
        card.update(_names(int(card["slot"])))
        cards.append(card)
    return cards


def _names(slot):
    # The same card in the same host has the same names for ever; bed9 tells them from real ones.
    digest = hashlib.sha256("{}/{}".format(os.uname().nodename, slot).encode()).hexdigest()
    return {
        "uuid": "GPU-bed91a7e-{}-4{}-8{}-{}{:02x}".format(
            digest[:4], digest[4:7], digest[7:10], digest[10:20], slot
        ),
        "serial": "9999{:09d}".format(int(digest[20:27], 16) % 10**9),
    }
