"""The facts of a site, `SITE/facts/KIND.yml`, over those that come with Bedplate.

They have the catalogue's own form and are checked with it as a whole. A row whose name the
catalogue has too takes that row's place.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue.check import check
from bedplate.catalogue.load import KINDS, Catalogue, assembled, load_catalogue
from bedplate.catalogue.rows import OF_SITE, rows_of
from bedplate.common.errors import CatalogueError, Problem
from bedplate.common.lock_place import FACTS
from bedplate.common.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.rows import KeyPath, Row

#: What no site can know better: what the roles and stacks of this version carry out.
NOT_A_SITES = {"installable"}
SUFFIX = ".yml"
#: Ansible takes no inventory from these either.
TEXTS = {".md", ".txt"}
_known: dict[str, Catalogue] = {}


@dataclass
class _File:
    """A file of facts: the kind that its name begins with, and its rows once they are read."""

    path: Path
    kind: str
    text: str
    rows: list[Row]
    root: yaml.Node | None = None

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a value, or of the innermost thing around it that is there."""
        node = self.root
        for step in path:
            inner: Any = None
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                inner = node.value[step] if step < len(node.value) else None
            elif isinstance(node, yaml.MappingNode):
                inner = next((one for key, one in node.value if key.value == step), None)
            if inner is None:
                break
            node = inner
        return node.start_mark.line + 1 if node is not None else None


def catalogue_of(site: Path) -> Catalogue:
    """Return the catalogue with the facts of a site, which may have none.

    Raises:
        CatalogueError: a file cannot be read, or what it says contradicts itself or the catalogue.
    """
    folder = site / FACTS
    if not folder.is_dir():
        return load_catalogue()
    files, problems = _files(folder)
    if problems:
        raise CatalogueError(problems)
    own = load_catalogue()
    if not files:
        return own
    digest = hashlib.sha256(own.digest.encode())
    for file in files:
        content = file.text.encode()
        digest.update(f"\n{file.path.name} {len(content)}\n".encode() + content)
    key = f"sha256:{digest.hexdigest()}"
    if key not in _known:
        _known[key] = _merged(own, folder, files, key)
    return _known[key]


def _merged(own: Catalogue, folder: Path, files: list[_File], digest: str) -> Catalogue:
    problems = [problem for file in files for problem in _read(file)]
    if problems:
        raise CatalogueError(problems)
    tables: dict[str, list[Fact[Any]]] = {}
    added: list[str] = []
    overridden: list[str] = []
    for name, table in own.tables().items():
        kind = KINDS[name]
        mine = [row.fact for file in files if file.kind == name for row in file.rows if row.fact]
        names = {kind.name_of(fact.value) for fact in mine}
        tables[name] = [fact for known, fact in table.items() if known not in names] + mine
        for fact in mine:
            known = kind.name_of(fact.value) in table
            (overridden if known else added).append(fact.id)
    if wrong := check(tables):
        raise CatalogueError([_placed(problem, folder, files) for problem in wrong])
    merged = assembled(tables, digest)
    return replace(merged, added=tuple(sorted(added)), overridden=tuple(sorted(overridden)))


def _placed(problem: Problem, folder: Path, files: list[_File]) -> Problem:
    """Return a problem at its row of the site; at the folder if a row of the catalogue has it."""
    for file in files:
        for row in file.rows:
            if row.key == problem.key:
                return replace(problem, file=str(file.path), line=file.line(row.path))
    fix = "correct the facts of the site: without them the catalogue has no such problem"
    return replace(problem, file=str(folder), fix=fix)


def _files(folder: Path) -> tuple[list[_File], list[Problem]]:
    """Return the files of facts by name, and what is wrong with others."""
    from bedplate.site import files  # the inventory's rules of what a file may be

    found: list[_File] = []
    problems: list[Problem] = []
    allowed = sorted(set(KINDS) - NOT_A_SITES)
    for path in files.files_of(folder):
        kind = path.name.partition(".")[0]
        if path.suffix in TEXTS:
            continue
        if path.parent != folder or path.suffix != SUFFIX or kind not in allowed:
            near = nearest(kind, allowed)
            problems.append(
                Problem(
                    "no kind of fact has this name",
                    str(path),
                    got=str(path.relative_to(folder)),
                    allowed=", ".join(f"{name}{SUFFIX}" for name in allowed)
                    + f"; or, to have several, as kubernetes.ANYTHING{SUFFIX}",
                    fix=f"rename it to {near}{SUFFIX}" if near else "rename it, or remove it",
                    rule="catalogue",
                )
            )
            continue
        text = files.read(path, variables=True)
        if isinstance(text, Problem):
            problems.append(text)
        elif text is not None:
            found.append(_File(path, kind, text, []))
    return found, problems


def _read(file: _File) -> Iterator[Problem]:
    """Read the rows of a file, and yield what is wrong with them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(file.text)
    try:
        file.root = loader.get_single_node()
        content = loader.construct_document(file.root) if file.root is not None else []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        got = getattr(error, "problem", None) or "no YAML"
        yield _problem("facts cannot be read as YAML", file, mark.line + 1 if mark else None, got)
        return
    finally:
        loader.dispose()
    if not isinstance(content, list | None):
        got = type(content).__name__
        yield _problem(
            "facts are not a list", file, 1, got, "a list of entries with value or values"
        )
        return
    yield from _twice(file, file.root)
    file.rows = list(rows_of(KINDS[file.kind], content, sure=OF_SITE))
    for row in file.rows:
        for place, path, what in row.wrong:
            key = ".".join([row.key, *map(str, path)])
            yield _problem("fact is malformed", file, file.line(place), what, key=key)
        if row.fact is not None and row.fact.sure != OF_SITE:
            line, fix = file.line((row.path[0], "sure")), f"write sure: {OF_SITE}, or leave it out"
            yield _problem(
                "a fact of a site is sure by the site alone",
                file, line, row.fact.sure, OF_SITE, key=f"{row.key}.sure", fix=fix,
            )  # fmt: skip


def _twice(file: _File, node: yaml.Node | None) -> Iterator[Problem]:
    """Yield keys that a mapping has twice: YAML keeps the last in silence."""
    if isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _twice(file, inner)
    elif isinstance(node, yaml.MappingNode):
        seen: set[Any] = set()
        for key, inner in node.value:
            if key.value in seen and key.value != "<<":
                yield _problem(
                    "key is there twice", file, key.start_mark.line + 1, key.value,
                    key=key.value, fix="remove one: YAML would silently take the last",
                )  # fmt: skip
            if isinstance(key.value, str):
                seen.add(key.value)
            yield from _twice(file, inner)


def _problem(
    what: str,
    file: _File,
    line: int | None,
    got: str,
    allowed: str | None = None,
    *,
    key: str | None = None,
    fix: str = "correct the fact",
) -> Problem:
    return Problem(
        what, str(file.path), line, key=key, got=got, allowed=allowed, fix=fix, rule="catalogue"
    )
