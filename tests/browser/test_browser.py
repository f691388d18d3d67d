"""The report of 200 made-up hosts in Chromium: what failed stands on the first screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.cli import main as cli
from tests.environments import python
from tests.unit.test_evidence_report import DEMO, many_hosts

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
BROWSER = HERE.parent / "frameworks" / "browser.txt"
FAILED = ("driver.part3", "host.reachable", "no evidence")


def luminance(colour: str) -> float:
    """Return how light a colour is, as the guidelines for accessible pages reckon it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def outside(looked: dict[str, Any], screen: dict[str, int]) -> list[str]:
    """Name the parts of *looked* that are not wholly within the first screen."""
    parts = [looked["verdict"], *looked["failures"], *looked["pools"]]
    return [
        part["text"]
        for part in parts
        if part["left"] < 0
        or part["top"] < 0
        or part["right"] > screen["width"]
        or part["bottom"] > screen["height"]
    ]


@pytest.mark.prove
def test_the_first_screen_names_the_failures(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    site = tmp_path / "demo"
    shutil.copytree(DEMO, site, ignore=shutil.ignore_patterns(".bedplate"))
    (site / ".bedplate/evidence").mkdir(parents=True)
    many_hosts(site)
    assert cli.main(["report", str(site)]) == 2
    page = site / ".bedplate" / "report.html"
    done = subprocess.run(
        [python(BROWSER), HERE / "look.py", page, tmp_path],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for way, screen in (("light", "screen"), ("dark", "screen"), ("print", "paper")):
        looked = seen[way]
        rows = [part["text"] for part in looked["failures"][2:]]
        assert [row.split("\n")[0].strip() for row in rows] == list(FAILED), way
        assert len(looked["pools"]) == 5, way  # its title, its heading, two pools, no pool
        assert outside(looked, seen[screen]) == [], way
        assert looked["width"] <= seen[screen]["width"], way
    for way, dark in (("light", False), ("dark", True)):
        ink, paper = luminance(seen[way]["ink"]), luminance(seen[way]["paper"])
        assert (paper < ink) is dark
        contrast = (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)
        assert contrast >= 7
    printed = (tmp_path / "report.pdf").read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed))
    assert 1 < pages <= 30
    # A smaller screen does not hold it all: the boxes are looked at.
    assert outside(seen["light"], {"width": 1280, "height": 200}) != []
    lowest = round(max(part["bottom"] for part in seen["light"]["pools"]))
    record_property("told", f"pools end at {lowest} of 800 pixels; printed: {pages} pages of A4")
    for picture in tmp_path.glob("report-*.png"):
        assert picture.stat().st_size > 10_000
