"""Stand-in packages: the vendor's names, versions and dependencies, and nothing of the vendor's.

They let order, pins, holds and transactions really run where the vendor's repository cannot be
reached. What runs on them is no proof that the vendor's own packages install: each says so itself.
"""

from tests.substrate.standin.packages import (
    ORIGIN,
    StandIn,
    driver_packages,
    kernel_packages,
    runtime_packages,
)

__all__ = ["ORIGIN", "StandIn", "driver_packages", "kernel_packages", "runtime_packages"]
