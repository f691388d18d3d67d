"""The options of `bedplate doctor`, read at each start of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.arguments import add_output, path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="what this machine lacks to run Bedplate, Ansible and Pulumi, each with its fix",
        description="Check this machine, all at once: programs, Python, collection, Pulumi's "
        "provider and state; with a SITE also inventory, lock, bill, and whether hosts have a "
        "name, an answer at SSH's port and a known key. Nothing is changed and no host is logged "
        "in to. Hosts behind a jump host are not asked for an answer.",
        epilog="Exit status: 0 nothing is lacking, 2 something is, 3 misused, 1 internal error. "
        "What was not checked is listed with the reason, and does not count.",
    )
    parser.add_argument(
        "site", type=path_of, nargs="?", metavar="SITE", help="an Ansible inventory directory"
    )
    add_output(parser)
