"""What parts of a node ask of its kernel and of its control groups, and who may do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.versions import last, number
from bedplate.resolver.outcome import Notice, Stops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.kubernetes_facts import NodeNeed
    from bedplate.lock.model import Cluster
    from bedplate.site import Site, SiteHost
    from bedplate.site.places import KeyPath

SETTING = "bedplate_kubernetes"
#: kubeadm's word for all of its preflight checks.
ALL = "all"


def refusing(catalogue: Catalogue) -> list[Fact[NodeNeed]]:
    """Return the needs without which a node does not start."""
    return [fact for fact in catalogue.node_needs.values() if not fact.value.warns]


def holds_in(need: NodeNeed, version: str) -> bool:
    """Tell whether a release of Kubernetes has a need."""
    first, end = need.kubernetes_from, need.kubernetes_upto
    return (first is None or number(first) <= number(version)) and (
        end is None or number(version) <= last(end)
    )


def ignored(need: NodeNeed, host: SiteHost) -> bool:
    """Tell whether a host's site ignores the preflight check that refuses for a need."""
    kubernetes = host.wishes.bedplate_kubernetes
    return kubernetes is not None and bool({need.check, ALL} & {*kubernetes.ignore_preflight})


def asked_by(path: KeyPath, catalogue: Catalogue) -> list[Fact[NodeNeed]]:
    """Return the needs of a setting."""
    return [fact for fact in refusing(catalogue) if path == (SETTING, *fact.value.setting)]


def settings(host: SiteHost, catalogue: Catalogue) -> dict[KeyPath, str]:
    """Return what a site writes and nodes need something for, with what it wrote."""
    return {
        (SETTING, *fact.value.setting): str(fact.value.value)
        for fact in refusing(catalogue)
        if fact.value.setting and _asks(fact.value, host)
    }


def _asks(need: NodeNeed, host: SiteHost) -> bool:
    kubernetes = host.wishes.bedplate_kubernetes
    found: Any = kubernetes.model_dump() if kubernetes is not None else {}
    for step in need.setting:
        found = found.get(step) if isinstance(found, dict) else None
    return not need.setting or (found == need.value and type(found) is type(need.value))


def notices(site: Site, cluster: Cluster, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield the needs that nodes do not meet and that refuse nothing: parts that only warn."""
    version = cluster.kubernetes.version
    for fact in catalogue.node_needs.values():
        need = fact.value
        unmet: dict[str, list[str]] = {}
        for host in site.nodes:
            asks = _asks(need, host) and (need.warns or ignored(need, host))
            if asks and holds_in(need, version) and (has := _lacks(need, host, catalogue)):
                unmet.setdefault(has, []).append(host.pool or host.name)
        for has, names in unmet.items():
            subject = ", ".join(sorted(set(names)))
            text = f"{need.of} asks for {need.asks}, and there is {has}"
            hint = f"{need.check} is ignored, which would stop there" if need.check else fact.reason
            stops = Stops.NOTHING if need.warns else Stops.PULUMI_UP
            hint = hint.removesuffix(".")
            yield Notice(text, subject, hint=hint, source=fact.source.url, stops=stops)


def _lacks(need: NodeNeed, host: SiteHost, catalogue: Catalogue) -> str | None:
    """Return what a host has in place of what a need asks for, None where it has that."""
    wished = host.wishes.bedplate_host
    system = catalogue.systems[wished.os].value
    kernel = wished.kernel or system.kernel
    if need.kernel_from is not None:
        return f"kernel {kernel}" if number(kernel) < number(need.kernel_from) else None
    return f"cgroup v{system.cgroup}" if system.cgroup < (need.cgroup or 0) else None
