"""What `bedplate init` is asked with: the parser alone, so that every start stays quick."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bedplate.common.arguments import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION = """\
Write a folder with everything that a site needs: inventory, Pulumi projects, ansible.cfg,
.gitignore, a README with the commands in order, and requirements.txt where Bedplate came from a
wheel, a repository or an index. No host is contacted.
"""
EPILOG = """\
HOSTS are names or addresses, with commas and with ranges as Ansible writes them.

Examples:
  One machine with four GPUs:
    bedplate init lab --one-machine 192.0.2.5 --gpu l40s:4
  Three control planes behind one address, and sixteen GPU servers:
    bedplate init farm --hosts 'cp=cp[1:3].example' --hosts 'gpu=gpu[01:16].example' \\
      --gpu h100-sxm5-80gb:8 --endpoint k8s.example:6443
  Two kinds of GPU servers, each a pool:
    bedplate init farm --hosts cp=192.0.2.1 --hosts 'train=192.0.2.[11:26]' \\
      --hosts 'class=192.0.2.[31:34]' --gpu train=h100-sxm5-80gb:8 --gpu class=l40s:4

Exit status: 0 written, 3 refused or misused, 1 a bug.
"""


def add_parser(commands: Any) -> None:
    """Add the parser of `bedplate init`."""
    init = commands.add_parser(
        "init",
        help="write a folder to start with: inventory, stacks, README",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    init.add_argument("folder", type=path_of, metavar="DIR", help="a new or an empty folder")
    hosts = init.add_mutually_exclusive_group()
    hosts.add_argument(
        "--one-machine", metavar="HOST", help="one host is control plane and GPU host"
    )
    hosts.add_argument(
        "--hosts",
        action="append",
        default=[],
        metavar="NAME=HOSTS",
        help="`cp` are the control planes, any other NAME is a pool of GPU hosts; repeat it",
    )
    system = init.add_argument("--os", metavar="OS", help="the hosts' system, as ubuntu-24.04")
    gpu = init.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="[NAME=]MODEL:COUNT",
        help="GPUs of each host of pool NAME, or of every pool; `bedplate gpus` lists the models; "
        "without it you write them into the pool's settings",
    )
    init.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        help="how all hosts reach the control planes; needed for more than one of them",
    )
    init.add_argument(
        "--user", metavar="USER", help="user for SSH, with sudo unless it is root (default: root)"
    )
    system.completer = _systems
    gpu.completer = _models


def _systems(**_: object) -> Sequence[str]:
    from bedplate.catalogue import load_catalogue

    return sorted(load_catalogue().systems)


def _models(**_: object) -> Sequence[str]:
    from bedplate.catalogue import load_catalogue

    return sorted(load_catalogue().gpu_models)
