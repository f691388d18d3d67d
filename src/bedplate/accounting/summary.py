"""What the report says of use: a table by team, and a picture of the GPUs in use over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

from bedplate.accounting.command import courses, idle_line, read
from bedplate.accounting.records import written
from bedplate.accounting.units import capacity
from bedplate.accounting.usage import Row, Window, over_time, path_in, rows, window_of
from bedplate.catalogue import catalogue_of
from bedplate.common import pictures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from bedplate.accounting.records import Record
    from bedplate.lock import Lock

#: Seconds; dates in pictures are days since 1970.
DAY: Final = 86400


@dataclass(frozen=True)
class Summary:
    """Use of the GPUs from the first record to the last that is known.

    Attributes:
        gpus: that the lock's nodes offer.
        picture: SVG; empty where the plotting library is not installed.
        idle: what of the allocated was idle, as a sentence.
    """

    since: str
    until: str
    rows: Sequence[Row]
    gpus: float
    used: float
    offered: float
    picture: str
    idle: str


def summary(site: Path, lock: Lock) -> Summary | None:
    """Return the summary of what the site keeps; None where `bedplate usage` never ran.

    No cluster is asked. Raises SiteError where the records cannot be read.
    """
    if not path_in(site).exists():
        return None
    records = list(read(site))
    known = [time for one in records for time in (one.start, one.end, one.seen) if time is not None]
    window = window_of(records, None, None, max(known, default=0))
    found = rows(records, window, "team", courses(lock))
    gpus = capacity(lock, catalogue_of(site))
    return Summary(
        since=str(written(window.start)),
        until=str(written(window.end)),
        rows=found,
        gpus=gpus,
        used=sum(row.gpu_hours for row in found),
        offered=gpus * window.hours,
        picture=picture(records, window, gpus),
        idle=idle_line(found),
    )


def picture(records: Sequence[Record], window: Window, gpus: float) -> str:
    """Return the GPUs of each team over time as SVG; empty without the plotting library."""
    moments, held = over_time(records, window)
    if not held:
        return ""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        times = [moment / DAY for moment in moments]
        axes.xaxis_date(UTC)
        axes.stackplot(times, *held.values(), labels=list(held), step="post", alpha=0.8)
        axes.axhline(gpus, color="black", linewidth=1, linestyle="--", label="all GPUs")
        axes.set_ylabel("GPUs allocated")
        axes.set_ylim(0, gpus * 1.15 or 1)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="upper right")

    try:
        return pictures.svg(draw, (10, 4))
    except ImportError:
        return ""
