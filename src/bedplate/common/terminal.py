"""What the command line prints: tables, colours and documents, all by rich.

In a file or a pipe a text is plain, and as wide as it has to be: grep finds a whole row. On a
terminal rich sees to its width and its colours, and reads NO_COLOR, FORCE_COLOR and TERM. It is
imported where something is printed by it: most commands start without.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from bedplate.common.harmless import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Columns where nobody looks at a screen: no row is broken.
WIDE: Final = 1 << 16
#: The parts of a refusal in their colours: what is wrong, and what to do about it.
REFUSAL: Final = re.compile(
    r"^(?:(?P<bold>\S+:\d+(?::\d+)?): )?(?P<red>[^—\n]+)(?:—.*)?— (?P<green>[^—\n]+)$", re.MULTILINE
)


def console(*, error: bool = False) -> Console:
    """Return the console of standard output, or of standard error.

    Colours reach it: what is printed on it has to be printable already.
    """
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else WIDE
    file = getattr(stream, "steering", stream)
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(
    head: Sequence[str] | None, rows: Iterable[Sequence[object]], right: Iterable[int] = ()
) -> Table:
    """Return a table for `show`.

    Args:
        head: the names of its columns; None for a list without.
        rows: a cell for each column.
        right: the columns whose cells end at the same place, from 0.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(printable(str(cell))) for cell in row] for row in rows]
    columns = len(head) if head is not None else max(map(len, cells), default=0)
    made = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=head is not None,
        header_style="bold",
    )
    for number in range(columns):
        made.add_column(
            head[number] if head is not None else "",
            style="cyan" if number == 0 else "",
            justify="right" if number in right else "left",
            overflow="fold",
        )
    for row in cells:
        made.add_row(*row)
    return made


def styled(text: str, style: str) -> Text:
    """Return a line that has a colour on a terminal."""
    from rich.text import Text

    return Text(printable(text), style)


def show(*parts: str | Table | Text, error: bool = False) -> None:
    """Print texts and tables, each from a new line. Raises BedplateError as `print` does here."""
    stream = sys.stderr if error else sys.stdout
    for part in parts:
        if isinstance(part, str):
            print(part, file=stream)
            continue
        out = console(error=error)
        with out.capture() as captured:
            out.print(part, soft_wrap=not hasattr(part, "columns"))
        lines = (line.rstrip() for line in captured.get().splitlines())
        out.file.write("".join(f"{line}\n" for line in lines))


def refuse(text: object) -> None:
    """Print a refusal on standard error; on a terminal in colours."""
    if not (sys.stderr.isatty() or "FORCE_COLOR" in os.environ):
        print(text, file=sys.stderr)
        return
    shown = styled(str(text), "")
    shown.highlight_regex(REFUSAL)
    show(shown, error=True)


def document(content: Any, form: str) -> None:
    """Print data as one document, ``json`` or ``yaml``: the same in both."""
    text = json.dumps(content, indent=2)
    if form == "yaml":
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False).rstrip("\n")
    print(text)
