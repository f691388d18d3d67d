"""What a sharing mode holds back, in the three words, as the catalogue has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.sharing_facts import SharingMode
    from bedplate.site.sharing import Sharing

#: From what holds least to what holds most.
LEVELS = ("counted", "limited", "isolated")


def at_least(word: str, least: str | None) -> bool:
    """Tell whether a word holds as much as the least that is asked for."""
    return least is None or LEVELS.index(word) >= LEVELS.index(least)


def mode_fact(
    mode: str, branch: str | None, catalogue: Catalogue, *, limits: bool = False
) -> Fact[SharingMode] | None:
    """Return what is known of a mode on a driver branch, where that is known; *limits* as asked."""
    found = [fact for fact in catalogue.sharing_modes.values() if fact.value.mode == mode]
    for fact in sorted(found, key=lambda fact: fact.value.limits != limits):
        first, last = fact.value.branch_from or "000", fact.value.branch_upto or "999"
        if branch is None or first <= branch <= last:
            return fact
    return None


def asks_limits(sharing: Sharing) -> bool:
    """Tell whether shares that are only counted by themselves are to have a limit."""
    return sharing.mode == "dra" and sharing.isolation is not None
