"""Command line of the substrate: ``python -m tests.substrate bases|up|down|reboot|status``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.common.errors import BedplateError
from bedplate.mirror.service import run_directory
from bedplate.mirror.store import Store, cache
from tests.substrate import images
from tests.substrate.gpu import SimulationError
from tests.substrate.hosts import description, image, lifecycle, machine, network
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import say, step
from tests.substrate.internet.plug import plug
from tests.substrate.internet.service import Service

if TYPE_CHECKING:
    from tests.substrate.hosts.description import Description


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser(
        prog="python -m tests.substrate",
        description="Bare hosts for the demo and the tests: systemd containers with simulated GPUs"
        " on this machine, and the mirror that they install from.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start hosts and mirror; changes nothing when they run")
    bases = commands.add_parser(
        "bases",
        help="make ahead what needs no tool: images of hosts, layers of the mirror's images",
    )
    down = commands.add_parser("down", help="remove hosts, volumes, network and mirror processes")
    reboot = commands.add_parser("reboot", help="restart one host in order and wait for its SSH")
    status = commands.add_parser("status", help="show the hosts; status 1 unless all are running")
    example = "such as tests/substrate/hosts/demo.yml"
    for command in (bases, up):
        command.add_argument("--demo", action="store_true", help="without what only tests need")
    for command in (bases, up, reboot, status):
        command.add_argument("description", type=Path, help=example)
    up.add_argument(
        "--site",
        type=Path,
        required=True,
        help="inventory directory: SSH key and known hosts go to its .bedplate/",
    )
    without = up.add_mutually_exclusive_group()
    without.add_argument("--no-mirror", action="store_true", help="hosts only")
    without.add_argument(
        "--internet",
        action="store_true",
        help="no mirror: the vendors' own names lead to a stand-in, and nowhere else",
    )
    which = down.add_mutually_exclusive_group(required=True)
    which.add_argument("description", type=Path, nargs="?", help=example)
    which.add_argument("--all", action="store_true", help="every substrate on this machine")
    down.add_argument("--site", type=Path, help="the site to forget; default: that of its 'up'")
    reboot.add_argument("host")
    return top


def up(arguments: argparse.Namespace) -> int:
    """Bring the hosts and the mirror up."""
    wanted = description.load(arguments.description)
    with machine.exclusive(wanted.network):
        lifecycle.up(wanted, arguments.site)
        if arguments.internet:
            _plug(wanted)
        elif not arguments.no_mirror:
            images.up(wanted.network, wanted.gateway, demo=arguments.demo)
    return 0


def bases(arguments: argparse.Namespace) -> int:
    """Make the hosts' images, and the layers that the mirror's images stand on."""
    wanted = description.load(arguments.description)
    machine.check()
    with machine.exclusive("images"):
        for system in sorted({host.os for host in wanted.hosts}):
            image.ensure(system)
    images.make_layers(Store(cache() / "mirror"), images.known_tools(), demo=arguments.demo)
    return 0


def _plug(wanted: Description) -> None:
    images.fill(Store(cache() / "mirror"), images.known_tools())
    internet = Service(wanted.network, wanted.gateway)
    if internet.start():
        say(f"a stand-in for the internet at {internet.address}, log {internet.records.log}")
    lifecycle.together(lambda host: plug(internet, wanted, host), wanted.hosts)


def down(arguments: argparse.Namespace) -> int:
    """Take the hosts and the mirror down."""
    machine.check()
    if arguments.all:
        names = sorted({*network.ours(), *mirrored()})
    else:
        names = [description.load(arguments.description).network]
    for name in names:
        with machine.exclusive(name), step(f"taking {name} down"):
            site = arguments.site or network.site(name)
            Service(name, "").stop()
            images.down(name)
            lifecycle.down(name)
            if site:
                lifecycle.forget(site)
    return 0


def mirrored() -> list[str]:
    """Return the networks that something was started for, should the network itself be gone."""
    runs = run_directory("any").parent
    found = [*runs.glob("*/mirror.json"), *runs.glob("*/internet")]
    return sorted({path.parent.name for path in found})


def reboot(arguments: argparse.Namespace) -> int:
    """Restart one host."""
    wanted = description.load(arguments.description)
    seconds = lifecycle.reboot(wanted, wanted.host(arguments.host))
    say(f"{arguments.host} is back after {seconds:.1f} s")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Show the hosts."""
    wanted = description.load(arguments.description)
    states = lifecycle.status(wanted)
    for host in wanted.hosts:
        cards = f"{host.gpus.count} x {host.gpus.model}" if host.gpus else "no GPU"
        print(f"{host.name:12} {host.address:16} {host.os:12} {cards:22} {states[host.name]}")
    return 0 if set(states.values()) == {"running"} else 1


def main() -> int:
    """Run a command; a user's own mistake is one line on standard error and status 1."""
    arguments = parser().parse_args()
    commands = {"bases": bases, "up": up, "down": down, "reboot": reboot, "status": status}
    try:
        return commands[arguments.command](arguments)
    except (SubstrateError, SimulationError, BedplateError) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: the same command goes on from what is there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
