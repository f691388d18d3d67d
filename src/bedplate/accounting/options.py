"""The options of `bedplate usage`, read at each start of the command line: nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.common.arguments import add_output, path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction

WAYS: Final = ("user", "course", "team", "queue")


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `usage`."""
    parser = commands.add_parser(
        "usage",
        help="GPU-hours and share-hours by user, course, team or queue",
        description="Sum up who held how many GPUs for how long, by the queue's own records: what "
        "the cluster knows now is merged into SITE/.bedplate/usage.jsonl, and nothing is counted "
        "twice.",
        epilog="Example: bedplate usage SITE --since 2026-11-01 --by user --format csv.",
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument("--since", metavar="TIME", help="YYYY-MM-DD[THH:MM], UTC where no zone is")
    parser.add_argument("--until", metavar="TIME", help="the end, not included (default: now)")
    parser.add_argument("--by", choices=WAYS, default="team", help="what a row is (default: team)")
    add_output(parser, "csv")
    parser.add_argument(
        "--offline", action="store_true", help="read SITE/.bedplate/usage.jsonl alone"
    )
