"""The front of a remote claim, attacked: each attack works once the defence against it is off.

The engine is a stand-in: an echo server. TLS, certificates and sockets are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.remote import front as fronts
from bedplate.pods.remote import tunnel
from bedplate.pods.remote.certificates import Bundle, Pair, issue
from bedplate.pods.remote.front import ExposedError, Front, Limits, context_of
from bedplate.pods.remote.listeners import exposed
from tests.schedulers.processes import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HOST = "claim-1.remote-vision.svc"
CLAIM = "11111111-aaaa"
PATIENCE = 240
NO_CHECK_TIME = 0x200000  # of OpenSSL; the ssl module has no name for it


def after(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def files(folder: Path, authority: bytes, pair: Pair, port: int = 0) -> Path:
    """Write a Secret as a kubelet mounts it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"ca.crt": authority, "tls.crt": pair.certificate, "tls.key": pair.key}
    content |= {"address": f"{HOST}:{port}".encode(), "connect": f"127.0.0.1:{port}".encode()}
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


@dataclass
class Served:
    """A front with its engine, and the ways to come at it."""

    folder: Path
    engine: tuple[str, int]
    bundle: Bundle = field(default_factory=lambda: issue(CLAIM, HOST, after(3600)))
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    async def front(
        self,
        *,
        weaken: Callable[[ssl.SSLContext], Any] = lambda _: None,
        until: float = 3600,
        **options: Any,
    ) -> Front:
        where = files(self.folder / "front", self.bundle.authority, self.bundle.front)
        context = context_of(*(where / name for name in ("tls.crt", "tls.key", "ca.crt")))
        weaken(context)
        made = Front(context, CLAIM, self.engine, time.time() + until, **options)
        made.listen("127.0.0.1", 0)
        self.tasks[made.port] = asyncio.create_task(made.serve())
        return made

    def client(self, port: int, bundle: Bundle | None = None, pair: Pair | None = None) -> Path:
        """Return the folder of a client's Secret; its trust is that of the real one."""
        pair = pair or (bundle or self.bundle).client
        name = f"client-{abs(hash(pair.key))}-{port}"
        return files(self.folder / name, self.bundle.authority, pair, port)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    found = Served(tmp_path, ("127.0.0.1", server.sockets[0].getsockname()[1]))
    yield found
    for task in found.tasks.values():
        task.cancel()
    await asyncio.gather(*found.tasks.values(), return_exceptions=True)
    server.close()


async def opened(
    secret: Path, context: ssl.SSLContext | None = None, source: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the front of a client's Secret."""
    port = int((secret / "address").read_text().rpartition(":")[2])
    context = context or tunnel.context_of(secret)
    opening = asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=HOST, local_addr=(source, 0)
    )
    return await asyncio.wait_for(opening, PATIENCE)


async def answers(secret: Path, context: ssl.SSLContext | None = None) -> bool:
    """Tell whether the engine echoes what is sent; with TLS 1.3 a refusal comes after the start."""
    try:
        reader, writer = await opened(secret, context)
        writer.write(b"hello")
        answer = await asyncio.wait_for(reader.read(5), PATIENCE)
        writer.transport.abort()
    except OSError:
        return False
    return answer == b"hello"


def anonymous(secret: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secret / "ca.crt"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def test_the_client_reaches_the_engine_and_is_metered(served: Served) -> None:
    """A megabyte each way, to the byte; the front's own certificate reads the meter."""
    front = await served.front()
    reader, writer = await opened(served.client(front.port))
    sent = bytes(range(256)) * 4096
    writer.write(sent)
    assert await asyncio.wait_for(reader.readexactly(len(sent)), PATIENCE) == sent
    meter = await read_meter(served, front)
    assert (meter["bytes_in"], meter["bytes_out"], meter["connections"]) == (2**20, 2**20, 1)
    assert 0 < meter["seconds"] < PATIENCE
    writer.close()


async def read_meter(served: Served, front: Front) -> dict[str, Any]:
    reader, _ = await opened(served.client(front.port, pair=served.bundle.front))
    return json.loads(await asyncio.wait_for(reader.read(), PATIENCE))


async def test_the_tunnel_passes_a_plain_connection_on(served: Served) -> None:
    """What a pod of the client runs beside its program, as the process that it is there."""
    front = await served.front()
    port = free_port()
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", tunnel.__file__, f"--port={port}"),
        f"--secret={served.client(front.port)}",
    )
    try:
        reader, writer = await connected(port)
        writer.write(b"x" * 300_000)
        assert await asyncio.wait_for(reader.readexactly(300_000), PATIENCE) == b"x" * 300_000
        writer.close()
    finally:
        running.kill()
        await running.wait()
    assert front.meter.bytes_in == 300_000


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for _ in range(PATIENCE * 20):
        with contextlib.suppress(OSError):
            return await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


async def test_no_certificate_is_refused(served: Served) -> None:
    front = await served.front()
    secret = served.client(front.port)
    assert not await answers(secret, anonymous(secret))
    assert front.meter.refused == 1
    assert await answers(secret)


async def test_who_goes_away_before_a_word_is_not_counted(served: Served) -> None:
    """A kubelet's probe of the port does so every few seconds."""
    front = await served.front()
    for writer in await silent(front, "127.0.0.1", 3):
        writer.transport.abort()
    assert await answers(served.client(front.port))
    assert front.meter.refused == 0


async def test_without_the_demand_and_the_name_anybody_gets_in(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No certificate is two defences: TLS asks for one, and the front looks for its name."""

    def off(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_NONE

    front = await served.front(weaken=off)
    secret = served.client(front.port)
    assert not await answers(secret, anonymous(secret)), "the name alone refuses too"
    monkeypatch.setattr(fronts, "names_of", lambda _: [fronts.identity(CLAIM, fronts.CLIENT)])
    assert await answers(secret, anonymous(secret))


async def test_the_certificate_of_another_claim_is_refused(served: Served) -> None:
    front = await served.front()
    other = issue("22222222-bbbb", HOST, after(3600))
    assert not await answers(served.client(front.port, other))
    assert front.meter.refused == 1


async def test_with_a_common_authority_another_claim_gets_in(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two defences again: an authority of each claim's own, and the claim's name."""
    other = issue("22222222-bbbb", HOST, after(3600))
    front = await served.front(
        weaken=lambda context: context.load_verify_locations(cadata=other.authority.decode())
    )
    secret = served.client(front.port, other)
    assert not await answers(secret), "the name alone refuses too"
    monkeypatch.setattr(fronts, "names_of", lambda _: [fronts.identity(CLAIM, fronts.CLIENT)])
    assert await answers(secret)


async def test_what_was_given_before_a_release_opens_nothing(served: Served) -> None:
    """The same claim, opened again: certificates of before have another authority."""
    replayed = served.bundle
    served.bundle = issue(CLAIM, HOST, after(3600))
    front = await served.front()
    assert not await answers(served.client(front.port, replayed))
    kept = await served.front(
        weaken=lambda context: context.load_verify_locations(cadata=replayed.authority.decode())
    )
    assert await answers(served.client(kept.port, replayed)), "with an authority that is kept"


async def test_a_certificate_whose_time_is_up_is_refused(served: Served) -> None:
    """The front's clock is wrong here by an hour, so that the certificate alone is left."""
    served.bundle = issue(CLAIM, HOST, after(-60))
    lax = tunnel.context_of(served.client(0))
    lax.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    front = await served.front()
    assert not await answers(served.client(front.port), lax)

    def off(context: ssl.SSLContext) -> None:
        context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)

    assert await answers(served.client((await served.front(weaken=off)).port), lax)


async def test_open_connections_end_with_the_time(served: Served) -> None:
    """One is open, another comes later: both end, the meter is read once more, and it is over."""
    passed = [0.0]
    front = await served.front(clock=lambda: time.time() + passed[0], linger=PATIENCE)
    endless = await served.front()
    secret = served.client(front.port)
    reader, writer = await opened(secret)
    other = await opened(served.client(endless.port))
    for stream, sink in ((reader, writer), other):
        sink.write(b"hello")
        assert await asyncio.wait_for(stream.readexactly(5), PATIENCE) == b"hello"
    passed[0] = 3600
    with contextlib.suppress(OSError):
        assert await asyncio.wait_for(reader.read(1), PATIENCE) == b""
    assert not await answers(secret)
    assert (await read_meter(served, front))["bytes_in"] == 5
    await asyncio.wait_for(served.tasks[front.port], PATIENCE)
    with pytest.raises(ConnectionRefusedError):
        await opened(secret)
    # The defence off: the front that knows of no end goes on with the same client.
    other[1].write(b"hello")
    assert await asyncio.wait_for(other[0].readexactly(5), PATIENCE) == b"hello"


async def test_a_started_again_front_has_no_new_time(served: Served, tmp_path: Path) -> None:
    """Its time is a moment, not a duration; and the meter goes on from what was kept."""
    kept = tmp_path / "meter.json"
    kept.write_text(json.dumps({"bytes_in": 7, "connections": 2}))
    front = await served.front(until=-5, linger=PATIENCE, kept=kept)
    assert not await answers(served.client(front.port))
    assert (await read_meter(served, front))["bytes_in"] == 7
    await asyncio.wait_for(served.tasks[front.port], PATIENCE)


async def silent(front: Front, source: str, number: int) -> list[asyncio.StreamWriter]:
    """Open connections that never begin their handshake."""
    return [
        (await asyncio.open_connection("127.0.0.1", front.port, local_addr=(source, 0)))[1]
        for _ in range(number)
    ]


async def test_a_flood_of_silent_connections_keeps_nobody_out(served: Served) -> None:
    """An attacker at 127.0.0.9 holds as many handshakes as one source may; the client gets in."""
    front = await served.front(limits=Limits(handshake=3600, pending=12, per_source=4))
    held = await silent(front, "127.0.0.9", 40)
    assert await answers(served.client(front.port))
    assert front.meter.refused == 36
    # The defence off: one source may have all.
    unlimited = await served.front(limits=Limits(handshake=3600, pending=12, per_source=1000))
    held += await silent(unlimited, "127.0.0.9", 40)
    assert not await answers(served.client(unlimited.port))
    for writer in held:
        writer.transport.abort()


async def test_a_handshake_that_never_ends_is_ended(served: Served) -> None:
    """A byte of a hello and then nothing, from every source that there may be."""
    limits = {"pending": 2, "per_source": 2}
    patient = await served.front(limits=Limits(handshake=3600, **limits))
    front = await served.front(limits=Limits(handshake=0.3, **limits))
    held = [*await silent(patient, "127.0.0.9", 2), *await silent(front, "127.0.0.9", 2)]
    for writer in held:
        writer.write(b"\x16")
    reached = False
    for _ in range(PATIENCE * 10):
        reached = reached or await answers(served.client(front.port))
        if reached:
            break
        await asyncio.sleep(0.1)
    assert reached
    assert not await answers(served.client(patient.port)), "the defence off: they are held"
    for writer in held:
        writer.transport.abort()


async def test_the_client_has_no_more_connections_than_it_may(served: Served) -> None:
    front = await served.front(limits=Limits(connections=2))
    secret = served.client(front.port)
    one, two = await opened(secret), await opened(secret)
    for reader, writer in (one, two):
        writer.write(b"1")
        assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"1"
    assert not await answers(secret)
    one[1].transport.abort()
    for _ in range(PATIENCE * 10):
        if await answers(secret):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("a closed connection still counts")


HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


def line(address: str, port: int, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 0 0\n"


def test_who_listens_outside_loopback_is_found() -> None:
    """As the kernel writes addresses: IPv4, IPv6, and one in the other."""
    four = HEADER + line("00000000", 7443) + line("0100007F", 14833) + line("0100007F", 1, "01")
    six = HEADER + line("00000000000000000000000001000000", 14833)
    six += line("0000000000000000FFFF00000100007F", 14833)
    assert exposed([four, six], 7443) == []
    assert exposed([four + line("00000000", 14833)], 7443) == [14833]
    assert exposed([four, six + line("0" * 32, 9000)], 7443) == [9000]
    assert exposed([four + line("0200000A", 5, "01")], 7443) == []


async def test_a_front_before_an_engine_in_the_open_does_not_serve(served: Served) -> None:
    """The engine came up on all addresses after the front did."""
    ports: list[int] = []
    front = await served.front(guard=lambda: ports)
    assert await answers(served.client(front.port))
    ports.append(14833)
    with pytest.raises(ExposedError, match=r"ports \[14833\] of this pod"):
        await asyncio.wait_for(served.tasks[front.port], PATIENCE)
    with pytest.raises(ConnectionRefusedError):
        await opened(served.client(front.port))
