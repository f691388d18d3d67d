"""Kernels that a site names and no fact does: they are unknown, which is not wrong.

A distribution has more kernels than the catalogue: those of clouds, of newer hardware, of last
month. Such a kernel counts as one of its system, with headers; what is reported as broken for
kernels of its version stays refused, and the plan says that nothing else was checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.catalogue.facts import Fact
from bedplate.catalogue.system_facts import Kernel
from bedplate.resolver.outcome import Notice, Stops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.site import Site, SiteHost

HINT = "bedplate.gpu.discover shows the kernel of a host; install one host first (--limit HOST)"


def unknown(site: Site, catalogue: Catalogue) -> dict[tuple[str, str], list[SiteHost]]:
    """Return the hosts of each kernel that no fact has, by system and kernel.

    A kernel that the facts have for other systems alone is another system's, and none of these.
    """
    known = {fact.value.kernel for fact in catalogue.kernels.values()}
    found: dict[tuple[str, str], list[SiteHost]] = {}
    for _, host in sorted(site.hosts.items()):
        wished = host.wishes.bedplate_host
        if wished.kernel is None or wished.kernel in known or wished.os not in catalogue.systems:
            continue
        found.setdefault((wished.os, wished.kernel), []).append(host)
    return found


def with_unknown(site: Site, catalogue: Catalogue) -> Catalogue:
    """Return the catalogue with the kernels that a site names and no fact does."""
    added = {
        f"{os}-{kernel}": _fact(os, kernel, catalogue) for os, kernel in unknown(site, catalogue)
    }
    return replace(catalogue, kernels=catalogue.kernels | added) if added else catalogue


def _fact(os: str, kernel: str, catalogue: Catalogue) -> Fact[Kernel]:
    return Fact(
        id=f"kernel/{os}-{kernel.replace('~', '-')}",
        value=Kernel(kernel=kernel, os=os, headers=f"headers of {kernel}"),
        reason="The site names it.",
        source=catalogue.systems[os].source,
        sure="site",
    )


def notices(site: Site, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield which kernels nothing is known of; *catalogue* is the one without them."""
    for (_, kernel), hosts in unknown(site, catalogue).items():
        pools = sorted({host.pool or host.name for host in hosts})
        yield Notice(
            f"kernel {kernel} is not in the catalogue: whether it has headers, and the driver "
            "builds for it, is unknown",
            ", ".join(pools),
            hint=HINT,
            stops=Stops.SITE_YML,
        )
