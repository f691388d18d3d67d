"""Imports point one way: which files and folders of the package import each other in a circle.

A folder below `bedplate` is a room, and so is one below `bedplate/portable`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SRC = Path(__file__).parents[2] / "src"
NAMED = re.compile(r"""\bpackage\("([a-z_.]+)"\)""")

#: Each folder imports those before it alone.
ORDER = (
    *("portable", "common", "pods", "site", "catalogue", "lock", "bill", "provider"),
    *("courses", "resolver", "planning", "accounting", "mirror", "components", "evidence", "cli"),
)


FLOORS = 9


@cache
def modules() -> dict[str, Path]:
    """Return each module of the package by its dotted name."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield the modules of the package that a file imports, those for types too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in modules() else module


@cache
def files() -> dict[str, set[str]]:
    """Return what each module imports of the package, without itself."""
    return {
        name: {one for one in imported(name, path) if one in modules() and one != name}
        for name, path in modules().items()
    }


def room(name: str) -> str:
    """Return the folder, or the loose file, in which a module lies."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["portable"] else 1])


def rooms() -> dict[str, set[str]]:
    """Return which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for name, ones in files().items():
        found.setdefault(room(name), set()).update(room(one) for one in ones)
    return {name: ones - {name} for name, ones in found.items()}


def circles(arrows: Mapping[str, set[str]]) -> set[tuple[str, ...]]:
    """Return each set of names that reach one another, sorted."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = arrows[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {name: reached(name) for name in arrows}
    return {
        tuple(sorted(other for other in ones if name in reach[other]))
        for name, ones in reach.items()
        if name in ones
    }


def test_no_circle_of_files() -> None:
    assert circles(files()) == set()


def test_no_circle_of_rooms() -> None:
    assert circles(rooms()) == set()


def test_folders_stand_on_few_floors() -> None:
    """The longest way down: what stands on one floor more than all that it imports."""
    arrows = rooms()

    @cache
    def floor(name: str) -> int:
        return 1 + max((floor(other) for other in arrows[name]), default=0)

    assert max(floor(name) for name in arrows) <= FLOORS


def test_no_folder_imports_one_above_it() -> None:
    """So a command, a stack or a program of pods finds all that it uses below it."""
    place = {name: number for number, name in enumerate(ORDER)}
    arrows = {
        (name.split(".")[1], other.split(".")[1])
        for name, others in files().items()
        for other in others
        if "." in name and "." in other
    }
    assert {start for start, _ in arrows} == set(ORDER)
    assert {(start, end) for start, end in arrows if place[end] > place[start]} == set()


def test_no_module_lies_beside_the_folders() -> None:
    assert [path.name for path in (SRC / "bedplate").glob("*.py")] == ["__init__.py"]


def test_the_map_has_every_room_and_no_other() -> None:
    text = (SRC.parent / "docs" / "map.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    on_map = set(re.findall(r"(?:src/bedplate/|, `)([a-z_]+)`", rows))
    there = {path.parent.name for path in (SRC / "bedplate").glob("*/*.py")}
    assert there <= on_map, sorted(there - on_map)
    below = set(re.findall(r"src/bedplate/([a-z_]+)`", rows))
    assert below <= there, sorted(below - there)


def test_plugins_name_modules_of_the_package() -> None:
    """They import by name, since a collection may come without the package."""
    texts = {
        path: path.read_text(encoding="utf-8") for path in (SRC.parent / "plugins").glob("*/*.py")
    }
    named = {(path.name, name) for path, text in texts.items() for name in NAMED.findall(text)}
    assert named
    assert [one for one in sorted(named) if f"bedplate.{one[1]}" not in modules()] == []
