"""Files that ship with the package and are no Python: templates and the Pulumi projects.

A wheel carries them below the package; in a checkout they are folders at its root.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

_PACKAGE = Path(str(files("bedplate")))


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parents[1] / name


def templates(kind: str) -> Path:
    """Return the folder of one kind of documents that are rendered on the control side."""
    return _folder("templates") / kind


def stacks() -> Path:
    """Return the folder of the three Pulumi projects."""
    return _folder("stacks")
