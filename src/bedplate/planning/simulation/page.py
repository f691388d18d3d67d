"""The page: one HTML file with its style and its picture inside, and no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate.common import pictures, shipped
from bedplate.common.errors import Problem, SiteError
from bedplate.planning.simulation import screen
from bedplate.planning.simulation.figures import FORMULA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bedplate.planning.simulation.figures import Report

UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


def render(report: Report) -> str:
    """Return the page. Raises SiteError where the plotting library is not installed."""
    environment = Environment(
        loader=FileSystemLoader(shipped.templates("simulation")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("simulation.html.j2")
    return template.render(report=report, screen=screen, formula=FORMULA, picture=picture(report))


def picture(report: Report) -> str:
    """Return GPUs in use and jobs that run and wait over time, as SVG to stand in a page."""

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        _draw(report, above, below)

    try:
        return pictures.svg(draw, (10, 6))
    except ImportError as error:
        problem = Problem(
            "the page's picture needs matplotlib",
            got="no such package",
            allowed="the extra `simulate` of this package",
            fix="run: pip install 'bedplate[simulate]', or leave out --output",
            rule="simulate",
        )
        raise SiteError([problem]) from error


def _draw(report: Report, above: Axes, below: Axes) -> None:
    moments, end = report.outcome.moments, report.outcome.end
    size, unit = next(one for one in UNITS if end >= 2 * one[0] or one[0] == 1)
    # The state after the last change goes on: a little of it is shown.
    times = [one.time / size for one in moments] + [(end + max(1, end // 20)) / size]
    used = {pool: [float(one.used[pool]) for one in moments] for pool in report.supply.pools}
    total = sum(report.supply.total(pool) for pool in used)
    stacks = [[*values, values[-1]] for values in used.values() if values]
    if stacks:
        above.stackplot(times, *stacks, labels=list(used), step="post", alpha=0.8)
    above.axhline(total, color="black", linewidth=1, linestyle="--", label="all GPUs")
    above.set_ylabel("GPUs in use")
    above.set_ylim(0, total * 1.15 or 1)
    for label, values in (
        ("running", [one.running for one in moments]),
        ("waiting", [one.waiting for one in moments]),
    ):
        if values:
            below.step(times, [*values, values[-1]], where="post", label=label)
    below.set_ylabel("jobs")
    below.set_ylim(bottom=0)
    below.set_xlabel(unit)
    below.set_xlim(left=0)
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="upper right")
