"""The options of `bedplate render`, read at each start of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.common.arguments import path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: In the order in which they are applied.
STACKS: Final = ("cluster", "schedulers", "frameworks")


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `render`."""
    parser = commands.add_parser(
        "render",
        help="what the stacks would apply to Kubernetes, as YAML",
        description="Print what the stacks would apply to Kubernetes for a planned site, as YAML "
        "documents. Charts are shown with their values. What is only known later has a "
        "placeholder, and so has each secret. No host, cluster or vendor is contacted.",
        epilog="Examples: bedplate render SITE --stack schedulers — bedplate render SITE --output "
        "rendered, then kubectl diff --filename rendered/schedulers. Each stack's folder has the "
        "whole objects, its folder `parts` what kubectl cannot take as it is: charts, patches and "
        "objects with a placeholder. Exit status: 0 shown, 3 refused or misused, 1 internal error.",
    )
    parser.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    parser.add_argument(
        "--stack",
        choices=STACKS,
        action="append",
        help="this one alone (may be repeated; default: all three)",
    )
    parser.add_argument(
        "--pulumi-stack",
        metavar="NAME",
        help="whose settings count, of stacks/*/Pulumi.NAME.yaml (default: that of the site's "
        "name, else main, where there is one)",
    )
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="FOLDER",
        help="write a file per object below this folder, and remove those of an earlier render",
    )
