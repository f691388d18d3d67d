"""Evidence of kubelet, and of a control plane's certificates, keys and etcd."""

from ..host import Host
from . import certificates, encryption, etcd
from .area import Collected, Wishes, version_check


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare kubelet's version with the lock, and certificates with the calendar; ask etcd."""
    argv = ["kubelet", "--version"]
    what = "kubelet at the lock's version"
    version_check(host, to, "kubelet.version", what, wish.kubelet_version, argv)
    certificates.collect(host, wish, to)
    encryption.collect(host, to)
    etcd.collect(host, to)
