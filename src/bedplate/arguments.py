"""Arguments of the command line that several commands have: nothing is imported."""

from __future__ import annotations

import argparse
from pathlib import Path


def path_of(text: str) -> Path:
    """Return a path. An empty text is refused: as a path it would be the working directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("got an empty name, allowed a path")
    return Path(text)
