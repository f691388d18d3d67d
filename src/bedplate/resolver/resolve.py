"""Wishes and facts to one plan or one refusal. A pure function: no host, no network, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.errors import in_order
from bedplate.lock import Lock
from bedplate.lock import model as locked
from bedplate.resolver import rules
from bedplate.resolver.outcome import Plan, Reason, Refusal
from bedplate.site.load import CONTROL_PLANE

if TYPE_CHECKING:
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import DriverPackages, Fact
    from bedplate.errors import Problem
    from bedplate.site import Site, SiteHost

RESOURCE, STACK = "nvidia.com/gpu", "cluster"


def resolve(
    site: Site, catalogue: Catalogue, today: date, previous_lock: Lock | None = None
) -> Plan | Refusal:
    """Decide every version of a site.

    Args:
        site: the wishes.
        catalogue: the facts.
        today: touches warnings only.
        previous_lock: what is locked already is kept where it still satisfies the wishes.

    Returns:
        A plan with its lock, or all reasons why there is none.
    """
    problems: list[Problem] = []
    for _, host in sorted(site.hosts.items()):
        problems += rules.undecided(host)
        problems += rules.system(host, catalogue)
    problems += rules.shared(site, catalogue)
    pools: dict[str, locked.Pool] = {}
    reasons: list[Reason] = []
    warnings: list[str] = []
    for name, hosts in site.pools.items():
        old = previous_lock.pools.get(name) if previous_lock else None
        decided, wrong = _pool(name, hosts[0], catalogue, old)
        problems += wrong
        if decided:
            pools[name], why, driver = decided
            reasons += why
            warnings += _driver_warnings(name, driver, catalogue, today)
    if problems:
        return Refusal(tuple(in_order(problems)))
    cluster, cluster_why = _cluster(site, catalogue)
    warnings += _site_warnings(site, catalogue)
    lock = Lock(
        format=locked.FORMAT,
        catalogue=catalogue.digest,
        site_digest=site.digest,
        sources=_sources(site),
        cluster=cluster,
        hosts={
            name: locked.Host(
                address=host.address,
                port=host.port,
                user=host.user,
                pool=host.pool,
                groups=list(host.groups),
            )
            for name, host in sorted(site.hosts.items())
        },
        pools=pools,
    )
    return Plan(lock, (cluster_why, *reasons), tuple(dict.fromkeys(warnings)))


def _first(site: Site) -> SiteHost:
    return site.hosts[min(site.hosts)]


def _sources(site: Site) -> locked.Sources:
    wished = _first(site).wishes.bedplate_sources
    return locked.Sources(mode=wished.mode, url=wished.url.rstrip("/") if wished.url else None)


def _cluster(site: Site, catalogue: Catalogue) -> tuple[locked.Cluster, Reason]:
    wished = _first(site).wishes.bedplate_kubernetes
    version = rules.releases(wished.version, catalogue)[0]
    fact = catalogue.kubernetes[version]
    parts = fact.value.model_dump(mode="json", exclude={"version", "cgroup_v1"})
    kubernetes = wished.model_dump(mode="json", exclude={"cni"}) | {"version": version}
    cluster = locked.Cluster.model_validate({"kubernetes": kubernetes, **parts})
    why = f"newest known release of the wished {wished.version}. {fact.reason}"
    return cluster, Reason("cluster", "kubernetes", version, why)


def _pool(
    name: str, host: SiteHost, catalogue: Catalogue, old: locked.Pool | None
) -> tuple[tuple[locked.Pool, list[Reason], Fact[DriverPackages]] | None, list[Problem]]:
    gpus, problems = rules.gpus_of(host, catalogue)
    if host.wishes.bedplate_host.os not in catalogue.systems:
        return None, problems  # refused with the host already
    problems += rules.driver_wish(host, gpus, catalogue)
    if problems:
        return None, problems
    candidates, problems = rules.drivers_for(host, gpus, catalogue)
    if problems:
        return None, problems
    kept = old.nvidia_driver.version if old else None
    best = max(
        candidates,
        key=lambda fact: (
            fact.value.branch,
            fact.value.version == kept,
            rules.version_key(fact.value.version),
            fact.value.flavour,  # the last by name: proprietary, which is what most boards run
        ),
    )
    driver = best.value
    counts = [gpu.count for gpu in host.wishes.bedplate_gpu]
    wished = [(fact.value, count) for fact, count in zip(gpus, counts, strict=True)]
    total = sum(count for _, count in wished)
    pool = locked.Pool(
        os=host.wishes.bedplate_host.os,
        kind=host.wishes.bedplate_host.kind,
        gpu=[locked.Gpu(model=gpu.model, pci=gpu.pci, count=n) for gpu, n in wished],
        nvidia_driver=locked.Driver(
            version=driver.version,
            branch=driver.branch,
            flavour=driver.flavour,
            source="distro",
            packages=dict(sorted(driver.packages.items())),
        ),
        sharing=locked.Sharing(mode="none"),
        frameworks=[],
        expects=locked.Expects(resource=RESOURCE, count=total, by=STACK),
    )
    newest = max((f.value.version for f in candidates), key=rules.version_key)
    how = "newest" if driver.version == newest else f"kept as locked, {newest} is known"
    architectures = ", ".join(sorted({fact.value.architecture for fact in gpus}))
    why = f"{how} of R{driver.branch} that {driver.os} packages for {architectures}. {best.reason}"
    return (pool, [Reason(name, "nvidia_driver", driver.version, why)], best), []


def _driver_warnings(
    pool: str, driver: Fact[DriverPackages], catalogue: Catalogue, today: date
) -> list[str]:
    branch = catalogue.branches[driver.value.branch]
    end = branch.value.end_of_life
    found = []
    if end is not None and end < today:
        found.append(
            f"{pool}: driver branch R{branch.value.branch} reached its end of life on {end}; "
            f"{driver.value.os} packages no newer one for this wish ({branch.source.url})"
        )
    if driver.sure in {"unproved", "secondary"}:
        found.append(f"{pool}: driver packages lean on a fact that is {driver.sure}: {driver.id}")
    return found


def _site_warnings(site: Site, catalogue: Catalogue) -> list[str]:
    found = []
    models = {gpu.model for h in site.hosts.values() for gpu in h.wishes.bedplate_gpu if gpu.model}
    for model in sorted(models):
        fact = catalogue.gpus[model]
        if fact.sure in {"unproved", "secondary"}:
            found.append(f"{model}: leans on a fact that is {fact.sure}: {fact.id}")
    if not any(CONTROL_PLANE in host.groups for host in site.hosts.values()):
        found.append("no host in control_plane: hosts are prepared for a cluster made elsewhere")
    if _first(site).wishes.bedplate_sources.mode == "upstream":
        names = [f.value.artifact for f in catalogue.artifacts.values() if f.sure == "unproved"]
        if names:
            found.append(f"upstream addresses are unproved facts: {', '.join(sorted(names))}")
    return found
