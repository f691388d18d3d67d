"""The process behind `pulumi-resource-bedplate`: serves the provider as long as an engine lives."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING

import grpc.aio
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2_grpc

from bedplate.provider.servicer import Provider
from bedplate.provider.ssh import SshTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bedplate.provider.ssh import Transport

WATCH_SECONDS = 1.0
ANSWER_SECONDS = 2.0
# The engine's own limit: it sends what it likes, and cuts off who takes less.
MESSAGE_BYTES = 400 << 20
LIMITS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)


async def serve(
    transport: Callable[[Path | None, Path | None, Path], Transport] = SshTransport,
) -> None:
    """Serve on a free loopback port, print it, and end on a signal or with the engine.

    A killed engine leaves its plugins running; ours would go on changing hosts that nobody keeps
    in state. So the process ends when its parent is no longer the engine that started it.
    """
    parent = os.getppid()
    provider = Provider(transport, version=metadata.version("bedplate"), tell=_warn)
    server = grpc.aio.server(options=LIMITS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The engine ends its plugins with SIGINT; a user's Ctrl-C does not come here but as Cancel.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    while os.getppid() == parent and not ended.is_set():
        try:
            await asyncio.wait_for(ended.wait(), WATCH_SECONDS)
        except TimeoutError:
            continue
    provider.cancel_all()
    await server.stop(grace=ANSWER_SECONDS)
    await provider.close()


async def _warn(text: str) -> None:
    """Let the engine show a warning: what a plugin prints, its user does not see.

    What it cannot be told goes to the plugin's own log.
    """
    try:
        async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
            request = engine_pb2.LogRequest(severity=engine_pb2.WARNING, message=text)
            await engine_pb2_grpc.EngineStub(channel).Log(request, timeout=ANSWER_SECONDS)
    except (IndexError, grpc.RpcError):
        with suppress(OSError):  # it was read by an engine that is gone
            print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of `pulumi-resource-bedplate ENGINE_ADDRESS`."""
    asyncio.run(serve())
