"""What another sharing mode would do: the same jobs, one pool shared in another way.

Each way is put to the resolver as if the site asked for it, so that whatever `bedplate plan`
refuses is refused here too, with its words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from bedplate.planning.simulation.fit import Fit, best_fit
from bedplate.planning.simulation.of_lock import supply_of
from bedplate.resolver import Refusal, resolve
from bedplate.site.sharing import Sharing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.planning.simulation.jobs import Row
    from bedplate.planning.simulation.supply import Supply
    from bedplate.site import Site

MODES = ("none", "time-slicing", "mps", "mig", "dra")
#: How many ways of one mode are tried: sizes that the jobs ask for, the smallest shares first.
WAYS = 6


@dataclass(frozen=True)
class Way:
    """One way to share a pool's GPUs, and what the jobs would get of it.

    Where the plan refuses it, there is no `fit`, and the remark says why. `memory` is what holds
    a share's memory, in one of the three words.
    """

    pool: str
    mode: str
    setting: str
    fit: Fit | None
    memory: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Asked:
    """What the ways are compared for."""

    site: Site
    lock: Lock
    catalogue: Catalogue
    today: date
    supply: Supply
    rows: Sequence[Row]
    sizes: Mapping[str, tuple[int, int]]


def other_ways(asked: Asked) -> tuple[Way, ...]:
    """Return for each pool and mode the way in which most of the jobs run at once."""
    found = []
    written = get_args(Sharing.model_fields["mode"].annotation)
    for pool in asked.supply.pools:
        locked = asked.lock.pools[pool]
        wanted = any(one.request.on_gpu and one.request.pool in {"", pool} for one in asked.rows)
        if not locked.gpu or not wanted:
            continue  # other makers' accelerators are not shared
        for mode in (one for one in MODES if one in written):
            tried = [_tried(asked, pool, mode, setting) for setting in _settings(asked, pool, mode)]
            if tried:
                found.append(max(tried, key=_rank))
    return tuple(found)


def _rank(way: Way) -> tuple[int, int, int]:
    """Rank ways by how much runs; of equal ones the first that was tried stays."""
    if way.fit is None:
        return (0, 0, 0)
    return (1, way.fit.least, -way.fit.impossible)


def _settings(asked: Asked, pool: str, mode: str) -> Iterator[dict[str, Any]]:
    """Yield what could be written for a mode, for the sizes that the jobs ask for."""
    gpus = asked.supply.kinds(pool)
    if mode in {"none", "dra"}:
        yield {"mode": mode}
    elif mode == "mig":
        models = {gpu.model for gpu in gpus}
        profiles = [
            {fact.value.profile for fact in asked.catalogue.mig_geometries.values()
             if model in fact.value.models and "+" not in fact.value.profile}
            for model in sorted(models)
        ]  # fmt: skip
        for profile in sorted(set.intersection(*profiles) if profiles else set()):
            yield {"mode": mode, "profile": profile}
    else:
        counts = set()
        memory = min(gpu.memory for gpu in gpus)
        for row in asked.rows:
            if row.request.share:
                counts.add(int(1 / row.request.share))
            elif row.request.memory:
                counts.add(memory // row.request.memory)
        limit = _most_clients(asked, gpus[0].model) if mode == "mps" else None
        if limit is not None and counts and max(counts) > limit:
            counts.add(limit)
        for count in sorted((one for one in counts if one > 1), reverse=True)[:WAYS]:
            yield {"mode": mode, "replicas": count}


def _most_clients(asked: Asked, model: str) -> int | None:
    """Return how many shares NVIDIA's device plugin offers of a GPU under MPS."""
    capability = float(asked.catalogue.gpu_models[model].value.compute_capability)
    for fact in asked.catalogue.mps_limits.values():
        limit = fact.value
        above = limit.capability_from is None or capability >= float(limit.capability_from)
        below = limit.capability_upto is None or capability <= float(limit.capability_upto)
        if limit.by == "device-plugin" and above and below:
            return limit.clients
    return None


def _tried(asked: Asked, pool: str, mode: str, setting: dict[str, Any]) -> Way:
    shown = ", ".join(f"{key} {value}" for key, value in setting.items() if key != "mode")
    site = _with(asked.site, pool, Sharing(**setting))
    answer = resolve(site, asked.catalogue, asked.today, asked.lock)
    if isinstance(answer, Refusal):
        first = answer.problems[0]
        said = f"refused: {first.what}" + (f" (allowed {first.allowed})" if first.allowed else "")
        return Way(pool, mode, shown, None, remark=said)
    supply = supply_of(answer.lock, asked.catalogue, asked.sizes)
    fit = best_fit(replace(supply, teams={}), asked.rows)
    memory = answer.lock.pools[pool].sharing.memory or ""
    remark = "as it is" if answer.lock.pools[pool].sharing == asked.lock.pools[pool].sharing else ""
    before, after = asked.lock.cluster, answer.lock.cluster
    if before and after and before.kubernetes.version != after.kubernetes.version:
        remark = f"with Kubernetes {after.kubernetes.version}"
    return Way(pool, mode, shown, fit, memory, remark)


def _with(site: Site, pool: str, sharing: Sharing) -> Site:
    """Return the site with a pool shared otherwise; quotas are in what the pool offers now."""
    hosts = {}
    for name, host in site.hosts.items():
        changes: dict[str, Any] = {"bedplate_teams": {}}
        if host.pool == pool:
            changes["bedplate_sharing"] = sharing
        hosts[name] = replace(host, wishes=host.wishes.model_copy(update=changes))
    return replace(site, hosts=hosts)
