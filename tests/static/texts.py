"""What a user reads, found in the files that say it: pages, tasks, messages, templates."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
#: Keys of a task whose value is an expression, a command or a name, and no text.
EXPRESSIONS = {
    *("when", "until", "changed_when", "failed_when", "that", "loop", "with_items", "notify"),
    *("listen", "register", "tags", "argv", "cmd", "loop_control", "path", "src", "dest"),
    *("sample", "content"),
}
#: Code in a line of Markdown or of a module's documentation, an address, and a link's target.
CODE = re.compile(r"`[^`\n]*`|\b(?:[COVMI]|RV)\([^)]*\)|https?://\S+|(?<=\])\([^)\s]*\)")
#: A module's documents, which are YAML.
DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
#: An expression or a statement of Jinja, and a string within one.
JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
QUOTED = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
COMMENT = re.compile(r"(?:^|\s)#\s(.*)$")


class Text(NamedTuple):
    """A text and where it starts."""

    file: str
    line: int
    text: str


def within_jinja(text: str) -> str:
    """Return a text with each expression replaced by those of its strings that are sentences."""

    def strings(found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return " "
        words = (one or other for one, other in QUOTED.findall(found[0]))
        return " ".join(word for word in words if " " in word)

    return JINJA.sub(strings, text)


def page(path: Path) -> Iterator[Text]:
    """Yield a page's lines without the names that stand in them as code."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield Text(str(path.relative_to(ROOT)), number, CODE.sub(" ", line))


def template(path: Path) -> Iterator[Text]:
    """Yield the text that a template writes."""
    text = path.read_text(encoding="utf-8")
    flat = JINJA.sub(lambda m: within_jinja(m[0]) + "\n" * m[0].count("\n"), text)
    for number, line in enumerate(flat.splitlines(), 1):
        yield Text(str(path.relative_to(ROOT)), number, CODE.sub(" ", line))


def _scalars(node: yaml.Node, key: str = "") -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value not in EXPRESSIONS:
                yield from _scalars(value, name.value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value, key)
    elif isinstance(node, yaml.ScalarNode) and " " in node.value:
        yield node


def _values(name: str, source: str, before: int = 0) -> Iterator[Text]:
    for document in yaml.compose_all(source, yaml.SafeLoader):
        for scalar in _scalars(document) if document is not None else ():
            line = before + scalar.start_mark.line + 1
            yield Text(name, line, CODE.sub(" ", within_jinja(scalar.value)))


def tasks(path: Path) -> Iterator[Text]:
    """Yield names, messages and descriptions of a YAML file: every value of several words."""
    yield from _values(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def settings(path: Path) -> Iterator[Text]:
    """Yield the values and the comments of a file that a user copies and edits."""
    yield from tasks(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := COMMENT.search(line):
            yield Text(str(path.relative_to(ROOT)), number, CODE.sub(" ", found[1]))


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        # A string after an attribute documents it, as one at the head documents its class.
        if isinstance(node, kinds):
            yield from (
                line.value
                for line in node.body
                if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
            )


def messages(path: Path) -> Iterator[Text]:
    """Yield a program's strings of several words; not its docstrings, and no name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(ROOT))
    inner = {id(node) for node in _docstrings(tree)}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        if any(isinstance(to, ast.Name) and to.id in DOCUMENTS for to in node.targets):
            inner.add(id(node.value))
            yield from _values(name, str(node.value.value), node.lineno - 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            parts = (str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
            text = "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in inner else node.value
        else:
            continue
        if " " in text.strip():
            yield Text(name, node.lineno, CODE.sub(" ", text))
