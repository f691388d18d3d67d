"""What a browser makes of a page: boxes of its parts, in light and dark and as printed, as JSON.

It runs in an environment of its own, with playwright and the machine's Chromium. Arguments: the
page, a folder for pictures and the PDF.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PATIENCE = 120_000  # ms; the machine may be busy
SCREEN = {"width": 1280, "height": 800}
#: A4 at 96 points an inch.
PAPER = {"width": 794, "height": 1123}
#: Each part of the page with its text and its box, and the colours of ink and paper.
LOOK = """
() => {
  const box = element => {
    const found = element.getBoundingClientRect();
    return {text: element.innerText, left: found.left, top: found.top, right: found.right,
            bottom: found.bottom};
  };
  const below = title => {
    const head = [...document.querySelectorAll("h2")].find(one => one.innerText === title);
    return [head, ...head.nextElementSibling.querySelectorAll("tr")].map(box);
  };
  const style = getComputedStyle(document.body);
  return {failures: below("Failures"), pools: below("Pools"),
          verdict: box(document.querySelector("h1")), width: document.documentElement.scrollWidth,
          ink: style.color, paper: style.backgroundColor};
}
"""


def main() -> None:
    """Look at a page in each way."""
    page_path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    found = {}
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path="/usr/bin/chromium", args=FLAGS, timeout=PATIENCE
        )
        page = browser.new_page(viewport=SCREEN)
        page.set_default_timeout(PATIENCE)
        page.goto(page_path.resolve().as_uri())
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found[scheme] = page.evaluate(LOOK)
            page.screenshot(path=folder / f"report-{scheme}.png")
        page.pdf(path=folder / "report.pdf", format="A4")
        page.set_viewport_size(PAPER)
        page.emulate_media(media="print")
        found["print"] = page.evaluate(LOOK)
        browser.close()
    print(json.dumps({"screen": SCREEN, "paper": PAPER, **found}))


if __name__ == "__main__":
    main()
