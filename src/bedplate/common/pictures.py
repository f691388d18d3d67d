"""Pictures for pages: SVG that stands inside HTML, the same bytes for the same figures."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

#: What stands before the picture is for files of their own.
BEFORE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
NAMESPACE = re.compile(r' xmlns(?::\w+)?="[^"]*"')
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "bedplate", "font.size": 10}


def svg(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """Return what is drawn, `size` in inches. Raises ImportError without the plotting library."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = METADATA.sub("", BEFORE.sub("", out.getvalue(), count=1))
    return NAMESPACE.sub("", text)
