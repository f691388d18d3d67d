"""The options of `bedplate catalogue`, without what it needs to run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bedplate.common.arguments import add_output, path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from pathlib import Path

SOURCES = ("distro", "vendor-repo")
EPILOG = (
    "Examples: bedplate catalogue check --older-than 90 — bedplate catalogue check --index "
    "debian-12=Packages.xz — bedplate catalogue check SITE --older-than 30. Several indexes of a "
    "system count together. A driver of which they have no package by name is not compared. "
    "Exit status: 0 nothing found, 2 rows to read again, 3 refused, 1 internal error."
)
#: A day that is longer ago than so many digits of days may be none.
DIGITS = 5


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        allowed = f"a number of days, of {DIGITS} digits at most"
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed {allowed}")
    return int(text)


def _index(text: str) -> tuple[str, str, Path]:
    system, equals, file = text.partition("=")
    system, _, source = system.partition(":")
    if not equals or not file or (source or SOURCES[0]) not in SOURCES:
        allowed = f"OS[:SOURCE]=FILE, with {' or '.join(SOURCES)} as source"
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed {allowed}")
    return system, source or SOURCES[0], path_of(file)


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Add `catalogue` to the commands of `bedplate`."""
    catalogue = commands.add_parser(
        "catalogue",
        help="check the facts that plans are made from",
        description="Check the facts that plans are made from.",
    )
    verbs = catalogue.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser(
        "check",
        help="rows that are old, or that an index contradicts",
        description="Check the catalogue, with the facts of a SITE if one is given: that it agrees "
        "with itself, which rows are old, and which drivers an index of packages contradicts. "
        "Nothing is written and no host is contacted.",
        epilog=EPILOG,
    )
    check.add_argument(
        "site", type=path_of, nargs="?", metavar="SITE", help="an Ansible inventory directory"
    )
    check.add_argument(
        "--older-than",
        type=_days,
        metavar="DAYS",
        help="list the rows whose source was read before that",
    )
    check.add_argument(
        "--index",
        type=_index,
        action="append",
        default=[],
        metavar="OS[:SOURCE]=FILE",
        help="compare drivers with an archive's list of packages: apt's Packages or dnf's "
        "primary.xml, packed or not (may be repeated)",
    )
    add_output(check)
