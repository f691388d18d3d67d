"""How long a job may run, as people write it."""

from __future__ import annotations

import re
from typing import Final

from bedplate.common.errors import BedplateError, Problem

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(name: str, text: str) -> int:
    """Return the seconds of a time like 90s, 30m, 8h or 2d.

    Raises:
        BedplateError: it is no such time.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text)
    if found is None:
        raise BedplateError(
            [
                Problem(
                    "not a time limit",
                    key=f"{name}.time_limit",
                    got=text,
                    allowed="a number and s, m, h or d, as 8h",
                    fix="write how long the job may run",
                    rule="training-job",
                )
            ]
        )
    return int(found[1]) * UNITS[found[2]]
