"""The resolver's guide, `docs/resolver.md`: `python -m tests.resolver.guide` writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.resolver.explanations import WHAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).parents[2]
RESOLVER = ROOT / "src/bedplate/resolver"
PAGE = ROOT / "docs/resolver.md"
PROGRAM = (RESOLVER / "rules.lp").read_text(encoding="utf-8")
#: A row of the comment above the rules, or a line that goes on with the one before.
_ROW = re.compile(
    r"%   (?P<name>[a-z_0-9]+)(?P<arguments>\([A-Za-z,]+\)) +(?P<text>.+)|%  +(?P<more>.+)"
)
_USED = re.compile(r"\b([a-z][a-z_0-9]*)(?=\()")
HEAD = """\
# The resolver, file by file

For who changes it. Written by `python -m tests.resolver.guide` from the code; a test compares
them.

`resolve.resolve` takes a typed site and the catalogue, and returns a plan or a refusal. It asks
no host, no network and no clock. On the way:

1. `plain` and what it calls find what is wrong without deciding anything: unknown names, sums,
   addresses.
2. `subjects` groups hosts that are decided together; `wishes` numbers their settings, each
   with its place.
3. `candidates` lists what can be chosen for each component, with what each choice costs
   (`preferences`).
4. `encoding` writes both, and the facts about them, as facts of a logic program; `solving` asks
   clingo for the best choice under `rules.lp`. The shared components are chosen first, then
   each pool under them.
5. Where there is none, `conflicts` looks for the fewest settings that do not go together and for
   the nearest change, and `explanations` words them.
6. `locking` makes the lock's parts. Teams, courses and images are checked against that lock,
   `installable` says what no role carries out, and `warnings` what a reviewer should know.

**A new fact** goes into the catalogue. **A new rule about what goes together** is one
`violated(…)` in `rules.lp`, with a predicate that `encoding` writes, the words in
`explanations.WHAT`, and a case in `tests/resolver/case_tables.py`: a site that the rule alone
refuses, and one a step away that passes. **A rule about settings alone** is Python,
called from `plain`, and names its rule in the problem.
"""


def predicates() -> dict[str, tuple[str, str]]:
    """Return what the comment above the rules says: by name, the arguments and the meaning."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in PROGRAM.partition("% ---- decisions")[0].splitlines():
        row = _ROW.fullmatch(line)
        if row is None:
            name = ""
        elif row["name"]:
            name = row["name"]
            found[name] = (row["arguments"], row["text"])
        elif name:
            found[name] = (found[name][0], f"{found[name][1]} {row['more']}")
    return found


def used() -> set[str]:
    """Return the predicates of the rules, without names of components that take one argument."""
    code = re.sub(r"%.*", "", PROGRAM)
    return set(_USED.findall(code)) - {"addon", "cuda", "framework"}


def _decided(rule: str) -> str:
    files = [path for path in sorted(RESOLVER.glob("*")) if path.name != "explanations.py"]
    if f'violated("{rule}"' in PROGRAM:
        return "`rules.lp`"
    return ", ".join(f"`{path.stem}`" for path in files if _names(path, rule))


def _names(path: Path, rule: str) -> bool:
    return path.suffix == ".py" and f'"{rule}"' in path.read_text(encoding="utf-8")


def _code(name: str) -> str:
    return f"`{name}`" if name else "another rule refuses first"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def text(tests: Mapping[str, str]) -> str:
    """Return the page; `tests` has where each rule is seen to refuse, below `tests`."""
    files = [
        (f"`{path.stem}`", str(ast.get_docstring(ast.parse(path.read_text()))).splitlines()[0])
        for path in sorted(RESOLVER.glob("*.py"))
        if path.stem != "__init__"
    ]
    rules = [
        (f"`{rule}`", WHAT[rule], _decided(rule), _code(tests.get(rule, "")))
        for rule in sorted(WHAT)
    ]
    known = [
        (f"`{name}{arguments}`", meaning) for name, (arguments, meaning) in predicates().items()
    ]
    return "\n".join(
        [
            HEAD,
            "## Files\n\nIn `src/bedplate/resolver`.\n",
            _table(("file", "what is in it"), files),
            "## Rules\n\nWords, where they are decided, and where below `tests` they refuse.\n",
            _table(("rule", "words", "decided in", "seen in"), rules),
            "## Predicates of `rules.lp`\n\nIn the order in which the program explains them.\n",
            _table(("predicate", "what it says"), known),
        ]
    )


def where_rules_refuse() -> dict[str, str]:
    """Return the file or folder that sees each rule refuse, below `tests`."""
    from tests.resolver import test_rules
    from tests.resolver.case_tables import CASES

    broken = ROOT / "tests" / "unit" / "broken_sites"
    refused = "".join(path.read_text(encoding="utf-8") for path in sorted(broken.glob("*.txt")))
    sites = dict.fromkeys(re.findall(r"^  rule (\S+)", refused, re.MULTILINE), "unit/broken_sites")
    cases = {one.rule: "resolver/case_tables.py" for one in CASES}
    return sites | cases | test_rules.ELSEWHERE


if __name__ == "__main__":
    PAGE.write_text(text(where_rules_refuse()), encoding="utf-8")
