"""Evidence of the device plugin: its manifest, and what kubelet was given of it."""

import hashlib

from ..host import Host
from . import dra
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

MANIFEST = "/etc/bedplate/device-plugin.yaml"
PLACED_MANIFEST = "/etc/kubernetes/manifests/nvidia-device-plugin.yaml"


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare the manifest with the lock and with kubelet's copy; of a DRA pool, its driver."""
    if wish.sharing.get("mode") == "dra":
        _no_second_owner(host, to)
        dra.collect(host, wish, to)
        return
    manifest = host.read(MANIFEST)
    what = "the device plugin's manifest is kept on the host"
    if not wish.plugin_image:
        to.checks.append(skipped("plugin.manifest", what, "the lock names no device plugin"))
        return
    if manifest is None:
        to.checks.append(
            failed("plugin.manifest", what, f"there is no {MANIFEST}", AGAIN, MANIFEST)
        )
        return
    digest = "sha256:" + hashlib.sha256(manifest.encode()).hexdigest()
    to.facts["plugin_manifest"] = digest
    image = wish.plugin_image if wish.plugin_image in manifest else "another image"
    to.checks.append(
        check("plugin.manifest", what + ", with the lock's image", wish.plugin_image, image, AGAIN)
    )
    what = "kubelet was given that manifest"
    if not host.joined:
        to.checks.append(skipped("plugin.placed", what, "the host is in no cluster"))
        return
    placed = host.read(PLACED_MANIFEST)
    found = None if placed is None else "sha256:" + hashlib.sha256(placed.encode()).hexdigest()
    fix = "Restart kubelet on the host: it puts the manifest in place when it starts."
    to.checks.append(check("plugin.placed", what, digest, found, fix))


def _no_second_owner(host: Host, to: Collected) -> None:
    """With both, two pods would get one GPU: neither knows of the other."""
    found = [path for path in (MANIFEST, PLACED_MANIFEST) if host.exists(path)]
    what = "the DRA driver alone owns the GPUs, without a device plugin"
    fix = "Run bedplate.gpu.upgrade for this host, which drains it."
    to.checks.append(check("plugin.absent", what, [], found, fix))
