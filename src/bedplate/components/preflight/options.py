"""The options of `bedplate preflight`, read at each start of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.arguments import add_output, path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `preflight`."""
    parser = commands.add_parser(
        "preflight",
        help="measure messages between nodes by MPI and keep the result as evidence",
        description="Run one MPI job over the nodes of the site's pools, two processes on each, in "
        "a temporary namespace, which is deleted at the end. What was measured, and why the rest "
        "was not, is evidence: `bedplate report` shows it.",
        epilog="Exit status: 0 every pair of nodes was measured, 2 a node was not, 3 refused, "
        "1 internal error.",
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument(
        "--image",
        required=True,
        help="NAME:TAG or NAME@DIGEST with Open MPI, OpenSSH and mpi4py: "
        "templates/preflight/Containerfile makes one",
    )
    parser.add_argument(
        "--seconds", type=int, default=300, help="how long the job may take (default: 300)"
    )
    add_output(parser)
