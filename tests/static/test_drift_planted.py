"""Every kind of drift is planted on a real host, or said not to be: two tables are compared.

That a planted kind is found is the scenario's to show; here it is only seen that there is one, and
that it looks for drift.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "tests/roles/README.md").read_text(encoding="utf-8")
CHECK = re.compile(r"`([a-z]+[.][a-z_<>]+)`")
#: A scenario looks for drift by one of these.
LOOKS = ("tests/roles/tasks/look.yml", "tasks_from: drift")
ROWS = [
    (set(CHECK.findall(checks)), ROOT / place.strip("` "))
    for checks, place in re.findall(
        r"^[|][^|]+[|]([^|]+)[|]([^|]+/[^|]+)[|]$", README, re.MULTILINE
    )
]
PLANTED = set().union(*(checks for checks, _ in ROWS))
NOT_PLANTED = set(CHECK.findall(README.partition("\nNot planted there: ")[2].partition("\n\n")[0]))


def documented() -> set[str]:
    """Name the checks of the table of kinds in docs/drift.md, those with a part of any name too."""
    page = (ROOT / "docs/drift.md").read_text(encoding="utf-8")
    return set(CHECK.findall(page.partition("| kind of drift |")[2].partition("\n\n")[0]))


def test_each_kind_is_planted_or_said_not_to_be() -> None:
    named = {name for name in documented() if "<" not in name}
    of_any_part = tuple(name.partition("<")[0] for name in documented() - named)
    listed = PLANTED | NOT_PLANTED
    assert named - listed == set()
    assert {name for name in listed - named if not name.startswith(of_any_part)} == set()
    assert not PLANTED & NOT_PLANTED


def test_each_planted_kind_is_named_where_it_is_planted() -> None:
    assert len(ROWS) > 15
    for checks, place in ROWS:
        text = place.read_text(encoding="utf-8")
        assert {name for name in checks if name not in text} == set(), place
        scenario = next(p for p in place.parents if (p / "molecule.yml").is_file())
        texts = [path.read_text(encoding="utf-8") for path in scenario.rglob("*.yml")]
        assert any(look in one for look in LOOKS for one in texts), scenario
