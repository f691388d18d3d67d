"""No message names a path or a command that a user of the package does not have.

Such a user has the programs of the environment, the playbooks by their full names, and his site: no
checkout, no `site.yml`, no docs/.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PLAYBOOKS = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
#: What only a checkout has. Addresses are looked over: a vendor's path may have such a part.
ABSENT = re.compile(
    r"(?<![\w/.-])(tests|docs|inventories|extensions)/"
    r"|python -m tests|\bmake (demo|test|env|clean|lint|prove)\b"
    rf"|(?<![\w/-])(playbooks/)?({'|'.join(sorted(PLAYBOOKS - {'hosts'}))})\.yml"
)
ADDRESS = re.compile(r"https?://\S+")
#: Files that are read or written, not named to anybody, and a maintainer's own command.
PLACES = {
    ("src/bedplate/catalogue/matrix.py", "docs/"),
    ("src/bedplate/components/config.py", "../../inventories/"),
    ("src/bedplate/catalogue/facts.py", "tests/|docs/"),
}


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a Python file but those that say what the code does."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


#: Keys whose values are messages, or become one.
SAID = re.compile(r"(^|_)(msg|fail_msg|success_msg|reason|fix|allowed|got|playbook|way|again)$")


def said(value: Any, key: str = "") -> Iterator[str]:
    """Yield the texts below the keys that are messages."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from said(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from said(item, key)
    elif isinstance(value, str) and SAID.search(key):
        yield value


def found(path: Path) -> list[str]:
    """Return what a file names and a user of the package does not have."""
    name = str(path.relative_to(ROOT))
    if path.suffix == ".py":
        texts = strings(path)
    else:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506
        texts = ((0, text) for text in said(content))
    hits = []
    for line, text in texts:
        for hit in ABSENT.finditer(ADDRESS.sub("", text)):
            place = next((p for f, p in PLACES if f == name and hit[0] in p and p in text), None)
            if place is None:
                hits.append(f"{name}:{line}: {hit[0]} in {text.strip()[:100]!r}")
    return hits


FILES = sorted(
    path
    for folder, pattern in (
        ("src/bedplate", "*.py"),
        ("plugins", "*.py"),
        ("stacks", "*.py"),
        ("playbooks", "*.yml"),
        ("roles", "*.yml"),
    )
    for path in (ROOT / folder).rglob(pattern)
    if "molecule" not in path.parts and "module_utils" not in path.parts
)


def test_no_message_names_what_only_a_checkout_has() -> None:
    assert len(FILES) > 300
    assert [hit for path in FILES for hit in found(path)] == []


def test_every_playbook_that_a_message_names_is_there() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    named = set(re.findall(r"bedplate\.gpu\.(\w+)(?= (?:again|for this host|with -e))", text))
    assert {"site", "upgrade", "reset"} <= named <= PLAYBOOKS


@pytest.mark.parametrize(
    "text",
    [
        "fix = 'copy inventories/example'",
        "fix = f'see docs/matrix.md of {x}'",
        "fix = 'run site.yml again'",
        "fix = 'run `playbooks/verify.yml` first'",
        "fix = 'run python -m tests.substrate up'",
        "fix = 'make demo'",
    ],
)
def test_such_a_message_is_found(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "some.py"
    path.write_text(text)
    assert found(path)
    path.write_text(f"def run():\n    '''{text!r}'''\n    return 'https://a.example/docs/x'\n")
    assert found(path) == []
