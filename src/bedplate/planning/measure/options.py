"""The options of `bedplate measure`, read at each start of the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

SIZES = "1,0.5,0.25,0.1,0.05"
SMALLEST = 0.001
#: A day: what runs longer is no lesson.
LONGEST = 24 * 3600


def sizes(text: str) -> list[float]:
    """Return parts of a GPU, the largest first. Raises ArgumentTypeError."""
    found = []
    for word in text.split(","):
        try:
            number = float(word)
        except ValueError:
            number = 0.0
        if not SMALLEST <= number <= 1:
            message = f"{word.strip() or 'nothing'} is no part of a GPU: write sizes as {SIZES}"
            raise argparse.ArgumentTypeError(message)
        found.append(number)
    return sorted(set(found), reverse=True)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is no time: write 1 to {LONGEST}")
    return int(text)


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `measure`."""
    parser = commands.add_parser(
        "measure",
        help="run a program at several shares of this machine's GPU and propose one for a course",
        description="Run a program on a GPU of this machine once for each size of share, the "
        "largest first, with the memory that frameworks may take limited to it. What it took in "
        "memory and time becomes a share to propose, in the settings of a course.",
        epilog="Example: bedplate measure --sizes 1,0.25,0.1 -- python3 train.py. Exit status: 0 a "
        "share is proposed, 3 refused, 1 internal error.",
    )
    parser.add_argument(
        "--sizes", type=sizes, default=SIZES, help=f"parts of the GPU (default: {SIZES})"
    )
    parser.add_argument(
        "--framework",
        default="",
        help="what the program uses, as pytorch: its own memory is counted as the plan counts it",
    )
    parser.add_argument(
        "--gpu", type=int, default=0, metavar="INDEX", help="as nvidia-smi lists it (default: 0)"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=3600,
        help="how long one run may take (default: 3600)",
    )
    parser.add_argument("program", nargs="+", metavar="COMMAND", help="the program, after --")
