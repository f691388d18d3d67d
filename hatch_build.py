"""Refuses a Python that is too old in words, before pip fails on the first dependency."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

TOO_OLD = """\
bedplate needs Python {needed} or newer — got {got} ({program})
Make the environment with a newer one, then install again:
  where the system has one:  python{needed} -m venv ~/bedplate
  Debian 12, Ubuntu 22.04:   pip install uv && uv venv --seed --python {needed} ~/bedplate
The hosts that are managed need no more than Python 3.9."""


class Python(MetadataHookInterface):
    """Compares the Python that builds with its own setting `python`.

    hatchling makes hooks whenever metadata is asked for, and calls `update` for dynamic fields
    alone, of which there are none.
    """

    PLUGIN_NAME = "custom"

    def __init__(self, root: str, config: dict[str, Any]) -> None:
        """Refuse an older one.

        Raises:
            SystemExit: it is older. pip shows the words, and no traceback.
        """
        super().__init__(root, config)
        needed = config["python"]
        if sys.version_info < tuple(map(int, needed.split("."))):
            got = ".".join(map(str, sys.version_info[:3]))
            raise SystemExit(TOO_OLD.format(needed=needed, got=got, program=sys.executable))

    def update(self, metadata: dict[str, Any]) -> None:
        """Change nothing."""
