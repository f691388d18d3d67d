"""The provider's real server, with the test world in the place of SSH.

It looks after a plugin more often than on hosts, where each look is a command over SSH, and waits
less for a node whose machine is gone and for an API that does not come back.
"""

from __future__ import annotations

import asyncio

from bedplate.provider import control_plane, gpu_ready, succession
from bedplate.provider.server import serve
from tests.stacks.world.transport import WorldTransport

if __name__ == "__main__":
    gpu_ready.LOOK_SECONDS = 0.5
    succession.NOTICE_SECONDS = 1.0
    control_plane.SERVED_SECONDS = 6.0
    asyncio.run(serve(WorldTransport))
