"""Evidence of the container runtime."""

from .evidence import AGAIN, check, skipped
from .evidence_area import NO_VERSION, VERSION, Collected, Wishes
from .host import Host


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Ask the running daemon for its version."""
    what = "the container runtime answers, at the lock's version"
    if not wish.containerd_version:
        to.checks.append(skipped("runtime.version", what, NO_VERSION))
        return
    answer = host.run(["ctr", "version"])
    server = answer.out.partition("Server:")[2]
    found = VERSION.search(server)
    reason = "" if found else answer.said
    to.checks.append(
        check(
            "runtime.version",
            what,
            wish.containerd_version,
            found.group(1) if found else None,
            AGAIN,
            reason,
        )
    )
