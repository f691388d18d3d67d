"""`python -m bedplate.pods.remote`: the front in an engine's pod, or all claims' controller."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from bedplate.pods.api import Api, chosen, options
from bedplate.pods.remote import listeners
from bedplate.pods.remote.front import ExposedError, Front, context_of
from bedplate.pods.remote.objects import FILES, PORT, SCRATCH, Settings

TABLES = ("tcp", "tcp6")


def main() -> None:
    """Read the arguments and serve."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    parser = argparse.ArgumentParser(prog="python -m bedplate.pods.remote", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    front = parts.add_parser("front", help="before one engine")
    front.add_argument("--files", type=Path, default=Path(FILES), help="the front's Secret")
    front.add_argument("--kept", type=Path, default=Path(SCRATCH), help="where the meter is kept")
    front.add_argument("--address", default="0.0.0.0")  # noqa: S104 - a pod's own address
    front.add_argument("--port", type=int, default=PORT)
    front.add_argument("--engine-port", type=int, required=True, help="on loopback")
    front.add_argument("--network", type=Path, default=Path("/proc/net"), help="who listens")
    controller = parts.add_parser("controller", help="of all claims")
    options(controller)
    controller.add_argument("--settings", type=Path, required=True, help="JSON")
    controller.add_argument("--program", type=Path, default=Path(sys.argv[0]), help="the archive")
    controller.add_argument("--pause", type=float, default=2.0, help="seconds between looks")
    arguments = parser.parse_args()
    if arguments.part == "front":
        asyncio.run(_front(arguments))
    else:
        _controller(arguments)


async def _front(arguments: argparse.Namespace) -> None:
    files = arguments.files
    tables = [arguments.network / name for name in TABLES]
    front = Front(
        context_of(files / "tls.crt", files / "tls.key", files / "ca.crt"),
        (files / "claim").read_text().strip(),
        ("127.0.0.1", arguments.engine_port),
        float((files / "until").read_text()),
        kept=arguments.kept / "meter.json",
        guard=lambda: listeners.exposed(listeners.read(tables), arguments.port),
    )
    front.listen(arguments.address, arguments.port)
    serving = asyncio.create_task(front.serve())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, functools.partial(serving.cancel))
    await asyncio.wait({serving})
    if not serving.cancelled():
        try:
            serving.result()
        except ExposedError as error:
            sys.exit(str(error))


def _controller(arguments: argparse.Namespace) -> None:
    # Signing needs a library that the front's image doesn't have.
    from bedplate.pods.remote.controller import Controller

    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    found = json.loads(arguments.settings.read_text())
    settings = Settings(**{key: _frozen(value) for key, value in found.items()})
    api, program = Api(chosen(arguments)), arguments.program.read_bytes()
    Controller(api, settings, program).run(arguments.pause)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
