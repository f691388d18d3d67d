"""Evidence of kubelet, and of the certificates of a control plane."""

from ..host import Host
from . import certificates
from .area import Collected, Wishes, version_check
from .checks import AGAIN

KEPT = (
    "This version upgrades no Kubernetes of a running cluster: plan the version that the node runs."
)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare kubelet's version with the lock, and certificates with the calendar."""
    argv = ["kubelet", "--version"]
    what, fix = "kubelet at the lock's version", KEPT if host.joined else AGAIN
    version_check(host, to, "kubelet.version", what, wish.kubelet_version, argv, fix)
    certificates.collect(host, wish, to)
