"""The options of `bedplate kubeconfig`, read at each start of the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from bedplate.common.arguments import path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction

HOURS: Final = 12
#: A week: a certificate that is lost is good until its end.
MOST: Final = 168


def _hours(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST:  # which no number that is none is
        raise argparse.ArgumentTypeError(f"got {text}, allowed a number of hours, up to {MOST}")
    return found


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `kubeconfig`."""
    parser = commands.add_parser(
        "kubeconfig",
        help="make a kubeconfig for a member of a team, good for some hours",
        description="Make a private key, have the cluster sign a client certificate for it with "
        "the administrator's kubeconfig of the site, and write a kubeconfig for a member of a "
        "team. Kubernetes cannot revoke a certificate before its end.",
        epilog="Example: bedplate kubeconfig SITE --user alice --team vision --hours 8. "
        "Exit status: 0 written, 3 refused, 1 internal error.",
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument("--user", required=True, metavar="NAME", help="as the team's members say")
    parser.add_argument(
        "--team",
        help="the context gets its first namespace (default: the only team that has the user)",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        dest="groups",
        metavar="GROUP",
        help="a group of the user (may be repeated)",
    )
    parser.add_argument(
        "--hours",
        type=_hours,
        default=HOURS,
        metavar="N",
        help=f"how long it is good (default: {HOURS}, at most {MOST})",
    )
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="FILE",
        help="default: SITE/.bedplate/kubeconfigs/NAME",
    )
