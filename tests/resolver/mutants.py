"""Rules with one thing wrong each: a condition gone, turned round, or a comparison off by one.

All are enumerated from the text of the program, in its order, so that a number names one for good.
What is not a rule about what goes together (the choices, the preferences) is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import clingo

from bedplate.resolver import solving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue

BEGIN, END = "% ---- driver and board", "% ---- preferences"
OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
COMPARISON = re.compile(r" (<=|>=|==|!=|<|>) ")
#: The rules whose cases see a helper: those of other heads see themselves.
HELPERS = {
    "consumer": ("cuda-driver", "framework-driver"),
    "major_runs": ("cuda-driver", "framework-driver"),
    "native": ("cuda-driver",),
    "forward": ("cuda-driver", "framework-driver"),
    "compiled": ("framework-gpu",),
    "shared": ("share-divides",),
    "shares": ("share-divides",),
    "room": ("share-divides",),
    "uncounted": ("share-divides",),
    "owner": ("resource-owner",),
    "limits": ("isolation",),
    "part": ("component-kubernetes", "component-driver"),
    "asked": ("node-needs",),
    "seen": ("known-bad",),
    "met": ("known-bad",),
}


@dataclass(frozen=True)
class Mutant:
    """A program or a catalogue with one thing wrong, and the rules whose cases should see it."""

    name: str
    rules: tuple[str, ...]
    program: str | None = None
    catalogue: Catalogue | None = None


def statements(program: str) -> Iterator[str]:
    """Yield the rules between the marks, each as it is written."""
    section = program[program.index(BEGIN) : program.index(END)]
    held: list[str] = []
    for line in section.splitlines():
        if not held and (not line.strip() or line.startswith("%")):
            continue
        held.append(line)
        if line.rstrip().endswith("."):
            yield "\n".join(held)
            held = []


def literals(body: str) -> list[str]:
    """Split a body at its commas, but not inside of brackets."""
    found, depth, start = [], 0, 0
    for index, letter in enumerate(body):
        depth += (letter in "({[") - (letter in ")}]")
        if letter in ",;" and depth == 0:
            found.append(body[start:index].strip())
            start = index + 1
    return [*found, body[start:].strip()]


@cache
def rule_mutants() -> tuple[Mutant, ...]:
    """Return every mutant of the rules that is still a program."""
    program = solving.rules()
    found = []
    for number, rule in enumerate(statements(program)):
        head, _, body = rule.rstrip().removesuffix(".").partition(":-")
        symbol = head.strip().partition("(")[0]
        seen_by = HELPERS.get(symbol, tuple(re.findall(r'violated\("([^"]+)"', head)))
        for what, changed in _changes(head.strip(), literals(body)):
            text = program.replace(rule, changed, 1)
            if _safe(changed):
                label = " ".join(f"{head.strip()} #{number}".split())
                found.append(Mutant(f"{label}: {what}", seen_by, program=text))
    return tuple(found)


def _changes(head: str, body: list[str]) -> Iterator[tuple[str, str]]:
    yield "gone", ""
    for index, literal in enumerate(body):
        rest = [other for place, other in enumerate(body) if place != index]
        if rest:
            yield f"without {literal}", f"{head} :- {', '.join(rest)}."

        def put(other: str, index: int = index) -> str:
            return f"{head} :- {', '.join([*body[:index], other, *body[index + 1 :]])}."

        if literal.startswith("not "):
            yield f"{literal} turned round", put(literal.removeprefix("not "))
        elif "(" in literal and not COMPARISON.search(literal) and ":" not in literal:
            yield f"{literal} turned round", put(f"not {literal}")
        for sign in COMPARISON.finditer(literal) if "{" not in literal else ():
            other = OFF_BY_ONE[sign.group(1)]
            changed = f"{literal[: sign.start()]} {other} {literal[sign.end() :]}"
            yield f"{literal} with {other}", put(changed)


def _safe(rule: str) -> bool:
    """Tell whether clingo takes a rule: a variable that nothing binds is an error."""
    control = clingo.Control(["--warn=none"], logger=lambda _code, _text: None)
    try:
        control.add("base", [], rule)
        control.ground([("base", [])])
    except RuntimeError:
        return False
    return True
