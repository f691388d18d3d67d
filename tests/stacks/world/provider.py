"""The provider's real server, with the test world in the place of SSH."""

from __future__ import annotations

import asyncio

from bedplate.provider.server import serve
from tests.stacks.world.transport import WorldTransport

if __name__ == "__main__":
    asyncio.run(serve(WorldTransport))
