"""The pages as a site: each link and anchor holds, and each page is in the list of pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def sphinx(builder: str, source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run it with the site's own configuration; a warning is an error."""
    words = ["-W", "--keep-going", "-q", "-b", builder, "-c", ROOT / "docs", source, out]
    command = [sys.executable, "-m", "sphinx", *map(str, words)]
    return subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)


def test_links_hold(tmp_path: Path) -> None:
    """Links to files too: `make docs` would copy them."""
    done = sphinx("dummy", ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    pages = {
        "index.md": "# Index\n\n| [one](one.md) | [gone](gone.md) |\n\n[x](one.md#no-such)\n",
        "one.md": "# One\n\n[here](#neither)\n",
        "alone.md": "# Alone\n",
    }
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "docs").mkdir(parents=True)
    out.mkdir()
    for name, text in pages.items():
        (source / "docs" / name).write_text(text)
    done = sphinx("dummy", source, out)
    assert done.returncode != 0
    for wrong in ("gone", "no-such", "'neither'", "alone.md: WARNING: document isn't included"):
        assert wrong in done.stderr, wrong


@pytest.mark.prove
def test_the_site_has_every_page_and_finds_words_without_the_internet(tmp_path: Path) -> None:
    done = sphinx("html", ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    written = list(tmp_path.rglob("*.html"))
    assert pages <= {path.stem for path in written}
    assert "bedplate_forward_compat" in (tmp_path / "searchindex.js").read_text()
    for path in written:
        text = path.read_text()
        assert 'src="http' not in text
        assert '<link rel="stylesheet" href="http' not in text
