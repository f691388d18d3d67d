"""The provider's real server, with the test world in the place of SSH.

It looks after a plugin more often than on hosts, where each look is a command over SSH.
"""

from __future__ import annotations

import asyncio

from bedplate.provider import gpu_ready
from bedplate.provider.server import serve
from tests.stacks.world.transport import WorldTransport

if __name__ == "__main__":
    gpu_ready.LOOK_SECONDS = 0.5
    asyncio.run(serve(WorldTransport))
