"""Arguments of the command line that several commands have: nothing is imported."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Final

#: As a site names an image, a team or a course.
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: What Linux takes.
LONGEST: Final = 4095


def path_of(text: str) -> Path:
    """Return a path. An empty text is refused: as a path it would be the working directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("got an empty name / allowed a path")
    if (length := len(os.fsencode(text))) > LONGEST:
        raise argparse.ArgumentTypeError(f"got a name of {length} bytes / allowed {LONGEST}")
    return Path(text)


def named_path(text: str) -> tuple[str, Path]:
    """Return a name of the site's, and a path, from NAME=PATH."""
    name, equals, path = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise argparse.ArgumentTypeError(
            f"got {text} / allowed NAME=FILE, with small letters, digits and hyphens in NAME"
        )
    return name, path_of(path)


def file_of(text: str) -> Path:
    """Return the path of a file that is there."""
    path = path_of(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no such file: {text}")
    return path


def add_output(
    parser: argparse.ArgumentParser, *more: str, option: tuple[str, ...] = ("-o", "--output")
) -> None:
    """Add the form in which a command lists something, as ``form``, and `--json` as before.

    `--format` names it in every command: where `--output` names a file, *option* is left empty.
    """
    forms = ("table", "json", "yaml", *more)
    parser.add_argument(
        *option,
        "--format",
        dest="form",
        choices=forms,
        default=forms[0],
        help="how it is listed (default: table)",
    )
    parser.add_argument(
        "--json", dest="form", action="store_const", const="json", help="as --format json"
    )


def add_authorities(parser: argparse.ArgumentParser) -> None:
    """Add `--ca`, which every command has that asks servers over TLS."""
    parser.add_argument(
        "--ca",
        type=file_of,
        metavar="FILE",
        help="certificates of the authorities to trust instead of the system's, in PEM",
    )
