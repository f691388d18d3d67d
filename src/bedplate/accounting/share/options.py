"""The options of `bedplate share`, read at each start of the command line: little is imported."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bedplate.common.arguments import add_output, path_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(commands: _SubParsersAction[Any]) -> None:
    """Give the command line its `share`."""
    parser = commands.add_parser(
        "share",
        help="ask for a share of a GPU for a limited time, list shares, release them",
        description="Ask for a share of a GPU with your own kubeconfig, in your team's queue. It "
        "ends when its time is up, and is counted to you and your team.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--kubeconfig", type=path_of, metavar="FILE", help="default: KUBECONFIG, or ~/.kube/config"
    )
    common.add_argument(
        "--namespace", "-n", help="of your team (default: that of the kubeconfig's context)"
    )
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    request = what.add_parser(
        "request",
        parents=[common],
        help="ask for a share and wait for it",
        epilog="Examples: bedplate share request 0.1 --for 1h --image IMAGE — "
        "bedplate share request 2Gi --for 30m --image IMAGE -- python3 train.py. Exit status: "
        "0 it runs, 2 it ended or was deleted before it ran, 3 refused, 1 internal error.",
    )
    request.add_argument("share", help="a part of a GPU (0.1), whole GPUs (1, 2), memory (2Gi)")
    request.add_argument("command_line", nargs="*", metavar="COMMAND", help="default: it waits")
    request.add_argument("--for", dest="time", default="1h", metavar="TIME", help="default: 1h")
    request.add_argument("--image", required=True, help="what runs in it")
    request.add_argument("--name", default="", help="default: one is made up")
    request.add_argument(
        "--ssh-key",
        type=path_of,
        metavar="FILE.pub",
        help="log in with this key; the image needs OpenSSH, and no COMMAND is run",
    )
    request.add_argument("--no-wait", action="store_true", help="do not wait until it runs")
    listed = what.add_parser("list", parents=[common], help="shares, their place or when they end")
    add_output(listed)
    release = what.add_parser("release", parents=[common], help="end shares, or leave the queue")
    release.add_argument("names", nargs="+", metavar="NAME")
