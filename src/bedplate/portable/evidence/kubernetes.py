"""Evidence of kubelet."""

from ..host import Host
from .area import Collected, Wishes, version_check


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare kubelet's version with the lock."""
    argv = ["kubelet", "--version"]
    version_check(
        host, to, "kubelet.version", "kubelet at the lock's version", wish.kubelet_version, argv
    )
