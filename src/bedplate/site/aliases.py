"""YAML that unfolds: a few lines with aliases can stand for more values than any machine holds."""

from __future__ import annotations

import yaml

#: More than any real site has: a file with 1,000 hosts of 50 variables each stays below it.
MOST_VALUES = 100_000
#: Deeper than any wish; Python's own recursion ends at about 1,000.
MOST_LEVELS = 100


def unfolds(text: str) -> tuple[int, str, str] | None:
    """Return line, what is found and what is allowed where YAML text unfolds too far, else None.

    Read event by event: nothing is built, and an alias counts as often as it is used. Text that is
    no YAML is left to whoever reads it next.
    """
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            size = 0
            anchor: str | None = None
            if isinstance(event, yaml.AliasEvent):
                if any(event.anchor == outer for outer, _ in open_nodes):
                    return line, f"*{event.anchor} inside itself", "values that end"
                size = sizes.get(event.anchor or "", 0)
            elif isinstance(event, yaml.ScalarEvent):
                anchor, size = event.anchor, 1
            elif isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((event.anchor, 1))
                if len(open_nodes) > MOST_LEVELS:
                    return line, f"more than {MOST_LEVELS} levels", f"{MOST_LEVELS} levels"
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, size = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = size
            if open_nodes and size:
                name, so_far = open_nodes[-1]
                if so_far + size > MOST_VALUES:
                    got = f"aliases that stand for more than {MOST_VALUES} values"
                    return line, got, f"{MOST_VALUES} values in a file"
                open_nodes[-1] = (name, so_far + size)
    except yaml.YAMLError:
        return None
    return None
