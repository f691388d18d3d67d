"""The page of all settings, `docs/settings.md`: `python -m bedplate.site.schema` writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.site.manual import flow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

type Node = Mapping[str, Any]

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
HEAD = """\
# Settings

Written from the model by `python -m bedplate.site.schema`; a test compares them. Settings are variables of the inventory: those of all hosts
in `group_vars/all/`, those of a pool in `group_vars/pool_NAME.yml`, those of a host in `host_vars/`. `bedplate plan` refuses a name or a
value that is not here, with file and line. Editors read the same from [schema.json](../src/bedplate/site/schema.json).

Sizes are written as `64Gi` or `64G`: with Ki, Mi, Gi, Ti (1024) or k, M, G, T (1000). Times are written as `30m`, with s, m or h. A version that
looks like a number stands in quotes. In a path, `[]` is an entry of a list and NAME a name of your own.

| setting | what it is |
|---|---|
"""  # noqa: E501 - lines of a page


class _Page:
    """What is written of a schema; `seen` has the section of each model of settings."""

    def __init__(self, schema: Node) -> None:
        self.properties: Node = schema["properties"]
        self.models: Node = schema["$defs"]
        self.seen: dict[str, str] = {}

    def text(self) -> str:
        rows = [
            f"| {_link(key)} | {one['description']} |\n" for key, one in self.properties.items()
        ]
        return "".join([HEAD, *rows, *self._sections(2, dict(self.properties))])

    def _sections(self, depth: int, settings: dict[str, Node]) -> Iterator[str]:
        """Yield for settings what they are, with the tables of keys that no section before has.

        Keys that have keys too have sections below: `seen` knows them before a row links there.
        """
        for path, node in settings.items():
            facts = {"Values": _values(node), "Default": _default(node), "Example": _example(node)}
            shown = ". ".join(f"{name}: {fact}" for name, fact in facts.items() if fact)
            yield f"\n{'#' * depth} `{path}`\n\n{node['description']} {shown}.\n"
            below: dict[str, Node] = {}
            for name, suffix in dict(_models(node)).items():
                if self.seen.setdefault(name, path) != path:
                    continue
                if suffix:
                    yield f"\nKeys of `{path}{suffix}`:\n"
                yield "\n| key | what it is | values | default | example |\n|---|---|---|---|---|\n"
                required = self.models[name].get("required", ())
                for key, one in self.models[name]["properties"].items():
                    at = f"{path}{suffix}.{key}"
                    if any(self.seen.setdefault(model, at) == at for model, _ in _models(one)):
                        below[at] = one
                    yield self._row(key, one, required)
            yield from self._sections(3, below)

    def _row(self, key: str, node: Node, required: Any) -> str:
        at = next((self.seen[model] for model, _ in _models(node)), None)
        default = "**required**" if key in required else _default(node)
        cells = (_link(at, key) if at else f"`{key}`", node["description"], _values(node), default)
        return "| " + " | ".join([*cells, _example(node)]) + " |\n"


def text(schema: Node) -> str:
    """Return the page of a schema."""
    return _Page(schema).text()


def _link(path: str, shown: str = "") -> str:
    return f"[`{shown or path}`](#{re.sub(r'[^a-z0-9_-]', '', path.lower())})"


def _forms(node: Node) -> Iterator[tuple[Node, str]]:
    """Yield what a value may be, each with what its place adds to a path."""
    for one in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _forms(one)
    named = (*node.get("patternProperties", {}).values(), node.get("additionalProperties"))
    for inner, suffix in ((node.get("items"), "[]"), *((one, ".NAME") for one in named)):
        if isinstance(inner, dict):
            yield from ((one, suffix + rest) for one, rest in _forms(inner))
    if not {"anyOf", "oneOf", "items"} & node.keys() and node.get("type") != "null":
        yield node, ""


def _models(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the models of settings that a value may be."""
    for one, suffix in _forms(node):
        if "$ref" in one:
            yield one["$ref"].rpartition("/")[2], suffix


def _values(node: Node) -> str:
    """Return the words or the range of a value, and its unit; empty where it is a text."""
    words: list[str] = []
    for one, _ in _forms(node):
        choices = one.get("enum") or ([one["const"]] if "const" in one else [])
        words += [f"`{choice}`" for choice in choices]
        if one.get("type") == "boolean":
            words += ["`true`", "`false`"]
        least, most = one.get("minimum", one.get("exclusiveMinimum")), one.get("maximum")
        if most is not None:
            words.append(f"{least:,} to {most:,}" if least else f"up to {most:,}")
    return f"{', '.join(words)} {node.get('x-unit', '')}".strip()


def _default(node: Node) -> str:
    if "x-default" in node:
        return str(node["x-default"])
    if "default" not in node:
        return ""
    default = node["default"]
    if isinstance(default, dict) and default:
        return "as its keys"
    return "none" if default in (None, "", [], {}) else f"`{flow(default)}`"


def _example(node: Node) -> str:
    return f"`{flow(node['examples'][0])}`"
