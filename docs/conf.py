"""The pages as a site with a search: `make docs`. Why Sphinx: adr/0040-pages-by-sphinx.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGES = Path(__file__).parent
ROOT = PAGES.parent
INDEX = "docs/index"
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)#:\n]+)\)")

project = "Bedplate"
author = "The Bedplate authors"
html_title = project
html_theme = "furo"
html_show_sphinx = html_copy_source = False
extensions = ["myst_parser"]
root_doc = INDEX
include_patterns = ["*.md", "docs/**.md"]
# Sphinx walks through all folders but these.
exclude_patterns = [
    f"{one.name}/**" for one in ROOT.iterdir() if one.is_dir() and one.name != "docs"
]
# Headings have the anchors that forges give them.
myst_heading_anchors = 6


def _read(_app: Sphinx, page: str, source: list[str]) -> None:
    """Name what a site does not have, as folders; add the list of pages to the index."""
    here = (ROOT / page).parent

    def link(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        page = target.suffix == ".md" and target.parent != ROOT and not target.is_relative_to(PAGES)
        if page or target.is_dir():
            return f"{found[1]} (`{target.relative_to(ROOT)}`)"
        return found[0]

    contents = _contents(source[0]) if page == INDEX else ""
    source[0] = LINK.sub(link, source[0]) + contents


def _contents(index: str) -> str:
    """Return the list of pages, as the index has them: a part for each of its headings."""
    found = []
    for part in re.split(r"^## ", "Start\n" + index, flags=re.MULTILINE):
        caption, _, rest = part.partition("\n")
        pages = dict.fromkeys(target for _, target in LINK.findall(rest))
        lines = [one.removesuffix(".md") for one in pages if one.endswith(".md")]
        lines += [f"{one.rstrip('/')}/*" for one in pages if one.rstrip("/") in {"adr", "proof"}]
        listed = "\n".join(lines)
        found.append(
            f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{listed}\n```\n"
        )
    return "".join(found)


def _enter(app: Sphinx, failed: Exception | None) -> None:
    """Let the site's own address show the index."""
    if failed is None:
        to = f'<meta http-equiv="refresh" content="0; url={INDEX}.html">\n'
        (Path(app.outdir) / "index.html").write_text(to, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register what is done with each page, and with the whole site."""
    app.connect("source-read", _read)
    app.connect("build-finished", _enter)
