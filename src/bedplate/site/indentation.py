"""Lines of YAML that begin too far to the right: what its parser says of them names no cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What the parser says where the cause may be in the spaces at the beginning of a line.
SAYS = re.compile(r"(?i)mapping values|colons in unquoted|document start|expected (key|'-')")
#: A line that is no comment: its spaces, whether it is an item of a list, and what it has.
_LINE = re.compile(r"( *)(- )?(?!#|---)(\S.*?)(?:\s+#.*|\s*)")
#: How a line ends below which others are indented.
_OPENS = re.compile(r".*([:,\[{(]|\s[|>][-+]?)")


class Fault(NamedTuple):
    """A line and the column in which it begins, what is found there, and what to do."""

    line: int
    column: int
    found: str
    fix: str


def too_far(lines: Sequence[str], at: int) -> Fault | None:
    """Return the line that is indented too far, if any is why YAML cannot be read on at a line."""
    written = {n: one for n, text in enumerate(lines[:at], 1) if (one := _LINE.fullmatch(text))}
    column = {number: len(one[1]) + 1 for number, one in written.items()}
    above = [number for number in written if number < at]
    if at not in written or not above:
        return None
    if column[at] > column[above[-1]]:
        first, other = at, above[-1]
        why = " and has a value, so that nothing may be below it"
        more = f", or, if it belongs to line {other}, remove the value there"
        # A setting of ours belongs to no other one.
        more = "" if written[at][2] or written[at][3].startswith("bedplate_") else more
        if _OPENS.fullmatch(written[other][3]):
            return None
    else:
        # It goes back to a column in which nothing begins: what is before it went too far.
        outer = next((one for one in reversed(above) if column[one] <= column[at]), 0)
        first = next((one for one in above if one > outer), at)
        other, more, why = at, ", and what is below it too", ""
        if column.get(outer) == column[at]:
            return None
    if written[first][2] != written[other][2]:
        return None
    found = f"column {column[first]}, and line {other} begins in column {column[other]}{why}"
    return Fault(first, column[first], found, f"write it as far left as line {other}{more}")
