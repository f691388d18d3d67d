"""The page of the command line, `docs/cli.md`: `python -m bedplate.cli.reference` writes it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.main import parser

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
HEAD = """\
# The command line

Written from the program by `python -m bedplate.cli.reference`; a test compares them. Every command
has `--help`. Hosts are changed by `ansible-playbook` and clusters by `pulumi`, not by `bedplate`.
Where a command says nothing else, its exit status is 0 done, 3 refused or misused, 1 internal
error.

A terminal gets colours, unless `NO_COLOR` is set, and bars of progress; a pipe or a file gets plain
text with no row broken, and a line of progress every 15 seconds on standard error. Where a command
lists something, `--output json` or `yaml` prints it as data, and nothing else on standard output.
`simulate` and `frameworks` call it `--format`: their `--output` names what they write.
"""


def text() -> str:
    """Return the page."""
    return HEAD + "".join(_sections(parser(with_mirror=True)))


def _sections(of: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section for each command below a parser, in the order of its help."""
    for action in of._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for one in action.choices.values():
            if not any(isinstance(each, argparse._SubParsersAction) for each in one._actions):
                yield _section(one)
            yield from _sections(one)


def _section(command: argparse.ArgumentParser) -> str:
    parts = [f"\n## {command.prog}\n", command.description or ""]
    rows = [row for action in command._actions if (row := _row(action))]
    if rows:
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    if epilog := (command.epilog or "").strip():
        parts.append(f"```text\n{epilog}\n```" if "\n" in epilog else epilog)
    return "\n".join(f"{part}\n" if part else "" for part in parts).replace("\n\n\n", "\n\n")


def _row(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
        return ""
    words = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = action.metavar or words or action.dest.upper()
    shown = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.option_strings:
        shown = ", ".join(action.option_strings) + (f" {shown}" if action.nargs != 0 else "")
    elif action.nargs == argparse.OPTIONAL:
        shown = f"[{shown}]"
    help_ = (action.help or "") % {**vars(action), "prog": ""}
    return f"| `{shown}` | {help_} |"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
