"""Sites that nothing but the order of preferences decides, with what they are decided to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.resolver.cases import DEBIAN, GUESTLESS, one, pins, share
from tests.resolver.cases_of_drivers import DRIVER
from tests.resolver.cases_of_names import MIRROR

if TYPE_CHECKING:
    from tests.properties.building import Plain

GUESTS = {"kind": "passthrough"}
FRAMEWORKS = "pools.pool_a.frameworks"


def crio(source: str | None = None, **shared: object) -> Plain:
    """Return a site with CRI-O, whose vendor has a newer one, for a newer Kubernetes too."""
    runtime = {"name": "cri-o", **({"source": source} if source else {})}
    return one(os=DEBIAN, shared={"container_runtime": runtime, **shared})


VENDORS = {
    "cluster.kubernetes.version": "1.36.3",
    "cluster.cri_o.version": "1.36.0",
    "cluster.cri_o.source": "vendor-repo",
}
#: Sites that are decided by the order of preferences alone.
PREFERRED = {
    # Two newest ones are known to be bad together: the later by name steps back.
    "components-by-name": (
        one(os=GUESTLESS, kubernetes="1.35"),
        {
            "cluster.nvidia_container_toolkit.version": "1.20.1",
            "cluster.nvidia_device_plugin.version": "0.17.0",
        },
    ),
    # The newest Kubernetes goes with no driver, the second with none that is supported.
    "shared-before-pools": (
        one(host=GUESTS, sharing=share("time-slicing", replicas=2)),
        {"cluster.kubernetes.version": "1.36.2", f"{DRIVER}.version": "570.211.01"},
    ),
    "vendor's-newer-runtime": (crio(), VENDORS),
    "mirror's-archive-before-newer": (
        crio(sources=MIRROR),
        {
            "cluster.kubernetes.version": "1.35.1",
            "cluster.cri_o.version": "1.35.2",
            "cluster.cri_o.source": "archive",
        },
    ),
    "wished-of-the-vendor-beside-a-mirror": (crio("vendor-repo", sources=MIRROR), VENDORS),
    "pinned-beside-a-mirror": (crio(sources=MIRROR, pins=pins(cri_o="1.36.0")), VENDORS),
    "lts-before-newer": (one(), {f"{DRIVER}.version": "580.178.04"}),
    "production": (one(driver={"policy": "production"}), {f"{DRIVER}.version": "595.91.07"}),
    "supported-before-policy": (
        one("pro-4500", driver={"policy": "lts"}),
        {f"{DRIVER}.version": "595.91.07"},
    ),
    "new-feature": (one(driver={"policy": "new-feature"}), {f"{DRIVER}.version": "615.71.09"}),
    # R610 reached its end of life a day before the catalogue was read, R595 on that very day.
    "end-of-life": (
        one(driver={"policy": "new-feature", "source": "vendor-repo", "flavour": "proprietary"}),
        {f"{DRIVER}.version": "595.91.07"},
    ),
    "default-flavour": (one(), {f"{DRIVER}.flavour": "open"}),
    "default-flavour-of-the-branch": (
        one(driver={"branch": "535"}),
        {f"{DRIVER}.flavour": "proprietary"},
    ),
    "distribution's-own-first": (one(), {f"{DRIVER}.source": "distro"}),
    # What nobody has confirmed, and what has to be brought, is taken where it is named.
    "confirmed-before-supported": (
        one("v100", os=DEBIAN, pins=pins(nvidia_container_toolkit="1.17.8")),
        {f"{DRIVER}.version": "535.309.01", "pools.pool_a.not_yet": []},
    ),
    "unconfirmed-and-named": (
        one("v100", os=DEBIAN, driver={"branch": "580", "source": "vendor-repo"}),
        {f"{DRIVER}.version": "580.178.04", "pools.pool_a.not_yet": ["source vendor-repo"]},
    ),
    "unconfirmed-and-pinned": (
        one("v100", os=DEBIAN, pins=pins(nvidia_driver="580.178.04")),
        {f"{DRIVER}.version": "580.178.04", "pools.pool_a.not_yet": ["source vendor-repo"]},
    ),
    "unconfirmed-where-nothing-else-is-left": (
        one("v100", os=DEBIAN, driver={"branch": "580"}),
        {
            f"{DRIVER}.version": "580.178.04",
            "pools.pool_a.not_yet": ["source vendor-repo", "unconfirmed 580.178.04"],
        },
    ),
    "a-runfile-that-is-named": (
        one(driver={"branch": "595", "source": "runfile"}),
        {f"{DRIVER}.source": "runfile"},
    ),
    "packages-before-a-runfile": (
        one(driver={"branch": "595"}),
        {f"{DRIVER}.source": "vendor-repo"},
    ),
    # The newest Volcano was not run by this project, an older one was.
    "run-before-newer": (
        one(shared={"schedulers": ["volcano"]}),
        {"cluster.addons": [{"name": "volcano", "kind": "scheduler", "version": "1.13.0"}]},
    ),
    "newest-cuda": (one(cuda=["12.9"]), {"pools.pool_a.cuda_toolkit": ["12.9.1"]}),
    "newest-build": (one(frameworks=["pytorch"]), {f"{FRAMEWORKS}.0.variant": "cu130"}),
    "newest-cuda-of-a-build": (
        one(frameworks=["pytorch"], driver={"branch": "535"}),
        {f"{FRAMEWORKS}.0.version": "2.12.0", f"{FRAMEWORKS}.0.variant": "cu128"},
    ),
    "dma-buf-before-peermem": (
        one(rdma={"stack": "doca"}),
        {"pools.pool_a.rdma.method": "dma-buf"},
    ),
}
