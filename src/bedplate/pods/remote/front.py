"""The front of one claim: the only way to its engine, for its one client, until its time is up.

It runs in the engine's pod and passes TCP connections on to the engine on loopback. TLS 1.3, both
sides with a certificate of the claim's own authority, which signed these certificates and no more.
Standard library alone: the program is mounted into a plain Python image.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = logging.getLogger(__name__)
CHUNK = 64 * 1024
FLUSH = 10.0
#: Of the TCP connections: a client whose node died is noticed within two minutes.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
#: Ends of the names in certificates: who uses the engine, and who reads the meter.
CLIENT, FRONT = "client", "front"


class ExposedError(Exception):
    """Something but the front listens where others reach it."""


@dataclass(frozen=True)
class Limits:
    """What strangers and the client may use of the front.

    Attributes:
        handshake: seconds from a connection's first packet to its verified certificate.
        pending: connections in their handshake, of all sources.
        per_source: connections in their handshake from one address.
        connections: open connections of the client.
        engine: seconds in which the engine has to take a connection; it may still be starting.
    """

    handshake: float = 5.0
    pending: int = 64
    per_source: int = 8
    connections: int = 64
    engine: float = 10.0


@dataclass
class Meter:
    """What went through a front. `seconds` is the time with at least one open connection."""

    bytes_in: int = 0
    bytes_out: int = 0
    connections: int = 0
    refused: int = 0
    seconds: float = 0.0


def context_of(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the TLS side of a front: a client certificate is required, sessions never resume."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # a resumed session would not show its certificate again
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context


def names_of(certificate: dict[str, Any] | None) -> list[str]:
    """Return the URIs in a verified peer's certificate."""
    alternatives = (certificate or {}).get("subjectAltName", ())
    return [value for kind, value in alternatives if kind == "URI"]


@dataclass
class Front:
    """Serves one claim.

    Attributes:
        context: of `context_of`.
        claim: the claim's UID, which the peer's certificate names with its role.
        engine: host and port of the engine.
        until: when the claim ends, seconds since the epoch.
        kept: file that keeps the meter when this container starts again.
        guard: returns the ports by which the engine is reached without the front; none is right.
        linger: seconds after the end in which the meter, and nothing else, can still be read.
    """

    context: ssl.SSLContext
    claim: str
    engine: tuple[str, int]
    until: float
    limits: Limits = field(default_factory=Limits)
    kept: Path | None = None
    clock: Callable[[], float] = time.time
    guard: Callable[[], list[int]] = list
    linger: float = 6.0

    def __post_init__(self) -> None:
        self.meter = Meter()
        if self.kept is not None and self.kept.exists():
            self.meter = Meter(**json.loads(self.kept.read_text()))
        self._pending: dict[str, int] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.Task[Any]] = set()
        self._read = asyncio.Event()
        self._tunnels = 0
        self._busy_since = 0.0
        self._listener: socket.socket | None = None
        self.port = 0

    def listen(self, host: str, port: int) -> None:
        """Bind the address; connections are taken by `serve`."""
        listener = socket.create_server((host, port), backlog=128)
        listener.setblocking(False)
        self._listener, self.port = listener, listener.getsockname()[1]

    async def serve(self) -> None:
        """Take connections until the time is up, then close all. Cancel it to end it before.

        Raises ExposedError where the engine can be reached without the front.
        """
        if self._listener is None:
            raise RuntimeError("listen comes first")
        accepting = asyncio.create_task(self._accept(self._listener))
        try:
            while (left := self.until - self.clock()) > 0:
                self._guarded()
                # Short steps: the clock may be set while it waits.
                await asyncio.wait({accepting}, timeout=min(left, 1.0))
                if accepting.done():
                    accepting.result()
                self._keep()
            for task in self._clients:
                task.cancel()
            self._read.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._read.wait(), self.linger)
        finally:
            self._listener.close()
            for task in (accepting, *self._open):
                task.cancel()
            await asyncio.gather(accepting, *self._open, return_exceptions=True)
            self._keep()
            LOG.info("closed: %s", json.dumps(self.record()))

    def _guarded(self) -> None:
        if ports := self.guard():
            raise ExposedError(
                f"the engine is reached without its front — ports {ports} of this pod — got a "
                "listener outside loopback / allowed 127.0.0.1 — start the engine on loopback"
            )

    def record(self) -> dict[str, Any]:
        """Return the meter as it is now."""
        running = time.monotonic() - self._busy_since if self._tunnels else 0.0
        return {**asdict(self.meter), "seconds": round(self.meter.seconds + running, 3)}

    def _keep(self) -> None:
        if self.kept is not None:
            new = self.kept.with_suffix(".new")
            new.write_text(json.dumps(self.record()))
            new.replace(self.kept)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                raw, peer = await loop.sock_accept(listener)
            except OSError as error:  # no file descriptors left, or the peer has gone already
                LOG.warning("connection not taken: %s", error)
                await asyncio.sleep(0.05)
                continue
            source = str(peer[0])
            here = self._pending.get(source, 0)
            if here >= self.limits.per_source or self._handshakes() >= self.limits.pending:
                self.meter.refused += 1
                raw.close()
                continue
            self._pending[source] = here + 1
            task = asyncio.create_task(self._connection(raw, source))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    def _handshakes(self) -> int:
        return sum(self._pending.values())

    async def _connection(self, raw: socket.socket, source: str) -> None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (*KEEPALIVE, (socket.TCP_NODELAY, 1)):
            raw.setsockopt(socket.IPPROTO_TCP, option, value)
        try:
            reader, writer = await self._verified(raw)
        except ConnectionResetError:  # it went away before it said anything, as a kubelet's probe
            raw.close()
            return
        except (OSError, TimeoutError) as error:  # an ssl.SSLError is an OSError
            self.meter.refused += 1
            LOG.info("refused %s: %s", source, error)
            raw.close()
            return
        finally:
            self._pending[source] -= 1
            if not self._pending[source]:
                del self._pending[source]
        try:
            await self._serve_peer(reader, writer, source)
        finally:
            writer.transport.abort()

    async def _verified(
        self, raw: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            raw,
            ssl=self.context,
            ssl_handshake_timeout=self.limits.handshake,
            ssl_shutdown_timeout=1.0,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _serve_peer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str
    ) -> None:
        names = names_of(writer.get_extra_info("peercert"))
        if identity(self.claim, FRONT) in names:
            writer.write(json.dumps(self.record()).encode() + b"\n")
            await _flushed(writer)
            self._read.set()
        elif identity(self.claim, CLIENT) not in names:
            self.meter.refused += 1
            LOG.warning("refused %s: its certificate names %s", source, names)
        elif self._tunnels >= self.limits.connections:
            self.meter.refused += 1
            LOG.warning("refused %s: %s connections are open", source, self._tunnels)
        elif self.clock() >= self.until:
            self.meter.refused += 1
        else:
            task = asyncio.current_task()
            self._clients |= {task} if task else set()
            try:
                await self._tunnel(reader, writer)
            finally:
                self._clients -= {task}

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._tunnels:
            self._busy_since = time.monotonic()
        self._tunnels += 1
        self.meter.connections += 1
        try:
            inward, outward = await self._engine()
            try:
                await pipes((reader, outward, self._count_in), (inward, writer, self._count_out))
                await _flushed(writer)
            finally:
                outward.transport.abort()
        except OSError as error:
            LOG.warning("connection ended: %s", error)
        finally:
            self._tunnels -= 1
            if not self._tunnels:
                self.meter.seconds += time.monotonic() - self._busy_since

    async def _engine(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        patience = time.monotonic() + self.limits.engine
        while True:
            try:
                return await asyncio.open_connection(*self.engine, limit=CHUNK)
            except OSError:
                if time.monotonic() > patience:
                    raise
                await asyncio.sleep(0.1)

    def _count_in(self, size: int) -> None:
        self.meter.bytes_in += size

    def _count_out(self, size: int) -> None:
        self.meter.bytes_out += size


def identity(claim: str, role: str) -> str:
    """Return the name of a claim's client or front, as it stands in certificates."""
    return f"bedplate://remote/{claim}/{role}"


async def pipes(
    *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter, Callable[[int], None]],
) -> None:
    """Copy both ways until one ends: TLS has no half-closed connection. Raises OSError."""

    async def copy(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: Callable[[int], None]
    ) -> None:
        while data := await source.read(CHUNK):
            count(len(data))
            sink.write(data)
            await sink.drain()

    tasks = [asyncio.create_task(copy(*way)) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Close after what was written has left, if its reader takes it."""
    with contextlib.suppress(OSError, TimeoutError):
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), FLUSH)
