"""What the work of teams has by default besides GPUs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bedplate.site.patterns import Memory, Wish


class PerContainer(Wish):
    """What a container has of its node where its own manifest does not say it.

    `memory` and `disk` are requested and limited, `cpus` are requested.
    """

    memory: Memory | None = None
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    disk: Memory | None = None
