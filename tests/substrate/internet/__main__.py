"""The process of a stand-in: ``python -m tests.substrate.internet NETWORK ADDRESS``."""

from __future__ import annotations

import sys

from tests.substrate.internet.server import Server
from tests.substrate.internet.service import PORT, Service


def main() -> None:
    """Serve until the process is ended."""
    service = Service(*sys.argv[1:])
    context = service.authority.context(service.internet.names())
    place = (service.address, PORT)
    with Server(place, service.internet, service.records, context) as server:
        (service.folder / "ready").touch()
        server.serve_forever()


if __name__ == "__main__":
    main()
