"""Whether the kube-scheduler in the same pod is the one that leads.

There is one Lease and one election, kube-scheduler's own: its identity starts with the host name,
which containers of a pod share. The extender reads the Lease and never writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VALID = 2 / 3
"""Part of a lease's duration, from its last renewal seen, in which it is relied on."""


class Leadership:
    """The Lease as last seen. Its callers hold the lock."""

    def __init__(self, identity: str, clock: Callable[[], float]) -> None:
        self._prefix = f"{identity}_"
        self._clock = clock
        self._renewed = ""
        self._until = float("-inf")
        self.holder = ""
        self.since: float | None = None
        """When it began to lead, or None: what was listed before may miss another's bindings."""

    def listed(self, leases: list[dict[str, Any]], _asked: float) -> None:
        """See the Lease, or that there is none."""
        self.event("ADDED" if leases else "DELETED", leases[0] if leases else {})

    def event(self, kind: str, lease: dict[str, Any]) -> None:
        """See a change of the Lease."""
        spec = lease.get("spec") or {}
        self.holder = "" if kind == "DELETED" else str(spec.get("holderIdentity") or "")
        if not self.holder.startswith(self._prefix):
            self.since = None
            return
        renewed = str(spec.get("renewTime"))
        if renewed != self._renewed:
            if not self.leading():
                self.since = self._clock()
            self._renewed = renewed
            self._until = self._clock() + VALID * float(spec.get("leaseDurationSeconds") or 0)

    def leading(self) -> bool:
        """Return whether the lease is held and was renewed lately."""
        return self.since is not None and self._clock() < self._until
