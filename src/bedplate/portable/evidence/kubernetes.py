"""Evidence of kubelet."""

from ..host import Host
from .area import Collected, Wishes, version_check
from .checks import AGAIN

KEPT = (
    "This version upgrades no Kubernetes of a running cluster: plan the version that the node runs."
)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare kubelet's version with the lock."""
    argv = ["kubelet", "--version"]
    what, fix = "kubelet at the lock's version", KEPT if host.joined else AGAIN
    version_check(host, to, "kubelet.version", what, wish.kubelet_version, argv, fix)
