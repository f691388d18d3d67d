#!/usr/bin/env bash
# clingo refuses a #sum by the total of all its weights, also of those that never hold together.
#
# Seen 2026-11-27 with clingo 5.8.3 from PyPI. `{ at(0..N) } = 1` chooses one number, so that the
# sum of `X : at(X)` is never more than N. clasp adds up all N + 1 weights when it reads the rule,
# in a signed number of 32 bits: with N = 70,000 (a total of 2,450,035,000) grounding raises
# RuntimeError "Integer overflow", although each value and the bound are far below 2**31.
# In the order encoding, `at least X`, the same sum has N weights of 1 and is taken.
# The error names clasp, LogicProgram::simplifySum.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check clingo==5.8.3

"$folder/venv/bin/python" - <<'PYTHON'
import sys

import clingo

ONE = "{ at(0..%d) } = 1. :- #sum { X : at(X) } > 60000."
ORDER = "{ at(1..%d) }. :- at(X), X > 1, not at(X-1). :- #sum { 1,X : at(X) } > 60000."


def outcome(program: str) -> str:
    control = clingo.Control(["--warn=none"])
    control.add("base", [], program)
    try:
        control.ground([("base", [])])
        return str(control.solve())
    except (RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}, {'Integer overflow' if 'overflow' in str(error) else error}"


expected = {
    ONE % 60_000: "SAT",
    ONE % 70_000: "RuntimeError, Integer overflow",
    ORDER % 70_000: "SAT",
}
print("clingo", clingo.__version__)
wrong = 0
for program, before in expected.items():
    found = outcome(program)
    print(f"{program[:60]:60} {found}")
    if found != before:
        print("  changed: expected", before)
        wrong = 1
sys.exit(wrong)
PYTHON
