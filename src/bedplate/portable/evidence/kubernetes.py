"""Evidence of kubelet, and of the certificates of a control plane."""

from ..host import Host
from . import certificates
from .area import Collected, Wishes, version_check


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare kubelet's version with the lock, and certificates with the calendar."""
    argv = ["kubelet", "--version"]
    what = "kubelet at the lock's version"
    version_check(host, to, "kubelet.version", what, wish.kubelet_version, argv)
    certificates.collect(host, wish, to)
