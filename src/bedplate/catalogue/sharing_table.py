"""The table of modes in `docs/sharing.md`: run `python -m bedplate.catalogue.matrix`.

What a mode holds back, its limits and its proof are facts; only for whom a mode is stands here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.catalogue.facts import grade
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.sharing_facts import SharingMode

BEGIN, END = "<!-- modes: written from the catalogue -->", "<!-- end of modes -->"
HEAD = (
    "Mode",
    "For whom",
    "Memory",
    "Compute",
    "Sizes on one GPU",
    "Shares of one GPU",
    "Who gets round it",
    "Encoder",
    "Decoder",
    "Known by",
    "Installed here",
)
FOR_WHOM = {
    "none": "training, and jobs that need a whole GPU",
    "time-slicing": "many small jobs of people who trust each other; courses",
    "mps": "small jobs of people who trust each other, side by side on one GPU",
    "mig": "untrusted users; steady speed",
    "hami": "shares of several sizes where HAMi is known and its limits are enough",
    "dra": "shares by memory, of any size, on one GPU",
}
SIZES = {
    "whole": "the GPU",
    "one": "one for all GPUs of a host",
    "geometry": "its profiles, several at once",
    "any": "any, at once",
}
ENGINES = {"own": "its own", "shared": "shared, not limited", "profile": "what the profile has"}
LIFTED = {
    "any-client": "any program of a share",
    "root": "a program that is root",
    "managed-memory": "a program whose memory CUDA manages",
    None: "no program",
}


def _name(mode: SharingMode) -> str:
    first, last = mode.branch_from, mode.branch_upto
    if mode.limits:
        return f"{mode.mode} with `isolation: limited`{f', from R{first}' if first else ''}"
    if first is None and last is None:
        return mode.mode
    if first == last:
        return f"{mode.mode}, R{first}"
    if first is None:
        return f"{mode.mode}, up to R{last}"
    return f"{mode.mode}, R{first} to {f'R{last}' if last else 'newer'}"


def _shares(mode: SharingMode, catalogue: Catalogue) -> str:
    if mode.mode == "mps":
        limits = [f.value for f in catalogue.mps_limits.values() if f.value.by == "device-plugin"]
        told = [
            f"{one.clients} up to capability {one.capability_upto}"
            if one.capability_upto
            else f"{one.clients} from {one.capability_from} on"
            for one in limits
        ]
        return ", ".join(told)
    if mode.mode == "mig":
        most = max(fact.value.instances for fact in catalogue.mig_geometries.values())
        return f"as the profiles have room, {most} at most"
    if mode.mode == "dra":
        return "as the memory has room"
    return mode.shares


def _installed(found: Fact[SharingMode], catalogue: Catalogue) -> str:
    """Return the grade; the limits of claims are a part of their own.

    A mode is not tested on driver branches of which nothing is proved.
    """
    mode = found.value
    if found.sure == "unproved":
        return "unproved"
    dimension, name = ("part", "limited_claims") if mode.limits else ("sharing", mode.mode)
    fact = catalogue.installable[dimension].value
    for values, word in ((fact.values, "tested"), (fact.stand_in, "stand-in")):
        if name in values:
            return word
    return "unproved" if name in fact.unproved else "not yet"


def _row(fact: Fact[SharingMode], catalogue: Catalogue) -> str:
    mode = fact.value
    counted = mode.memory == "counted"
    unlimited = "not measured" if mode.mode == "mps" else "there is no limit"
    cells = (
        _name(mode),
        FOR_WHOM[mode.mode],
        f"**{mode.memory}**",
        f"**{mode.compute}**",
        SIZES[mode.sizes],
        _shares(mode, catalogue),
        unlimited if counted else LIFTED[mode.lifted_by],
        ENGINES[mode.encoder],
        ENGINES[mode.decoder],
        grade([fact]),
        _installed(fact, catalogue),
    )
    return f"| {' | '.join(cells)} |"


def table(catalogue: Catalogue) -> str:
    """Return the table."""
    rows = [_row(fact, catalogue) for fact in catalogue.sharing_modes.values()]
    return "\n".join([f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}", *rows])


def written(page: str, catalogue: Catalogue) -> str:
    """Return a page with its table as the catalogue has it. Raises ValueError without marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table(catalogue)}\n\n{END}{after}"


def main(root: Path | None = None) -> int:
    """Write the table into docs/sharing.md of the checkout that is the working directory."""
    page = (root or Path()) / "docs" / "sharing.md"
    try:
        text = page.read_text(encoding="utf-8")
        page.write_text(written(text, load_catalogue()), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(
            problem("table cannot be written", str(page), str(error), None, "run it in a checkout"),
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
