"""What refusals of whole sites tell to write is written, in the file and at the place they name.

The site is then planned again: the same is not refused once more. `make prove AREA=unit`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bedplate.cli import main as cli
from tests.unit.test_site_broken import CASES, FOLDER, broken

#: A fix that is one word to write in the place of what was found.
WRITE = re.compile(r"^write (?P<word>[^\s,;:{}\[\]]+)($|,? or |;)")
#: Those cases whose messages have such a fix.
FIXED = sorted(
    path.stem
    for path in FOLDER.glob("*.txt")
    if re.search(r" — write [^\s:{]+$", path.read_text(), re.MULTILINE)
)


def refusals(site: Path) -> list[dict[str, Any]]:
    """Plan a site and return what it is refused for; nothing where it is planned."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        cli.main(["plan", str(site), "--json", "--today", "2026-11-21"])
    found: list[dict[str, Any]] = json.loads(out.getvalue()).get("refusals", [])
    return found


def write(refusal: dict[str, Any]) -> bool:
    """Write what a refusal proposes; tell whether it is one word for another in its line."""
    told = WRITE.match(refusal["fix"])
    got = (refusal["got"] or "").split(" with ")[0].strip('"')
    if told is None or refusal["line"] is None or not got:
        return False
    path = Path(refusal["file"])
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line = lines[refusal["line"] - 1]
    if got not in line:
        return False
    word = told["word"].rstrip(".")
    was = f'"{got}"' if word.startswith('"') and f'"{got}"' in line else got
    lines[refusal["line"] - 1] = line.replace(was, word, 1)
    path.write_text("".join(lines), encoding="utf-8")
    return True


@pytest.mark.prove
@pytest.mark.parametrize("name", FIXED)
def test_what_is_written_as_told_is_not_refused_again(name: str, tmp_path: Path) -> None:
    site = broken(tmp_path, CASES[name])
    before = refusals(site)
    written = [refusal for refusal in before if write(refusal)]
    assert written, [refusal["fix"] for refusal in before]
    left = {(one["rule"], one["file"], one["line"], one["key"]) for one in refusals(site)}
    for refusal in written:
        place = (refusal["rule"], refusal["file"], refusal["line"], refusal["key"])
        assert place not in left, refusal
