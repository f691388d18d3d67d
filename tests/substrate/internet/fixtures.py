"""The stand-in for tests without hosts: a server in the test's own process.

A module takes the fixture `internet` with ``pytest_plugins`` in tests/conftest.py: nothing is
imported by the tests that use it.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.substrate.internet.authority import Authority
from tests.substrate.internet.faults import Records
from tests.substrate.internet.server import Server
from tests.substrate.internet.tree import Tree
from tests.substrate.internet.vendors import Internet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What Python's own client and requests read; a folder of certificates counts beside the first.
TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Served:
    """A stand-in that runs: what it holds, its log and faults, and where it is.

    Attributes:
        tree: what it holds; a test writes to it at any time.
        records: the access log and the faults.
        url: the address of the same tree as a mirror, over plain HTTP.
        authority: what a client is to trust.
    """

    tree: Tree
    records: Records
    url: str
    authority: Path

    @contextmanager
    def names(self) -> Iterator[None]:
        """Lead the vendors' names, in this process alone, to the stand-in, and trust it.

        Any other name that is asked for is an error: nothing leaves this machine.
        """
        port = int(self.url.rpartition(":")[2])
        real = socket.getaddrinfo

        def here(host: Any, asked: Any, *arguments: Any, **options: Any) -> Any:
            if host == "127.0.0.1":
                return real(host, asked, *arguments, **options)
            if host not in Internet(self.tree).names():
                raise socket.gaierror(socket.EAI_NONAME, f"{host} is no host of the stand-in")
            return real("127.0.0.1", port, *arguments, **options)

        before = {name: os.environ.get(name) for name in TRUST}
        os.environ.update(dict.fromkeys(TRUST, str(self.authority)))
        socket.getaddrinfo = here
        try:
            yield
        finally:
            socket.getaddrinfo = real
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve ``folder/tree`` from this process on a free loopback port."""
    tree, records = Tree(folder / "tree"), Records(folder / "records")
    authority = Authority(folder / "authority")
    whole = Internet(tree)
    context = authority.context(whole.names())
    with Server(("127.0.0.1", 0), whole, records, context) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield Served(
                tree, records, f"http://127.0.0.1:{server.server_port}", authority.certificate
            )
        finally:
            server.shutdown()


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[Served]:
    """An empty stand-in."""
    with serving(tmp_path / "internet") as served:
        yield served
