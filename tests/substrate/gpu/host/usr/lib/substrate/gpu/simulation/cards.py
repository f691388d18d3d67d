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
        card.update(_names(card))
        cards.append(card)
    return cards


def _names(card):
    # The same card in the same slot has the same names; bed91a7e says that it is no real one.
    slot = int(card["slot"])
    place = "{}/{}/{}".format(os.uname().nodename, slot, card["pci_device"])
    digest = hashlib.sha256(place.encode()).hexdigest()
    groups = (digest[:4], "4" + digest[4:7], "8" + digest[7:10], digest[10:20] + f"{slot:02x}")
    return {
        "uuid": "-".join(("GPU", "bed91a7e", *groups)),
        "serial": f"9999{int(digest[20:27], 16) % 10**9:09d}",
    }
