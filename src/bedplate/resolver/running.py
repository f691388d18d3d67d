"""A cluster that runs: its Kubernetes goes up by one minor version at a time, and never down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.errors import Problem, RefusedError
from bedplate.common.lock_place import FACTS
from bedplate.common.versions import minor, parts
from bedplate.lock import model as locked
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.site import Site
    from bedplate.site.places import KeyPath

RULE = "kubernetes-running"


def cluster_runs(path: Path) -> bool:
    """Tell whether the site has a cluster, as far as this machine knows; no host is contacted.

    The cluster stack writes the kubeconfig when it makes the first control plane and removes it
    with that. Evidence outlives a cluster, so it says nothing. On a machine without the kubeconfig
    upgrade.yml and the stack's preview refuse what the plan could not know.
    """
    try:
        return (path / ".bedplate" / "kubeconfig").stat().st_size > 0
    except OSError:
        return False


def one_step(lock: Lock, catalogue: Catalogue) -> Lock:
    """Return a lock that has Kubernetes alone: the newest release that one upgrade can bring.

    What is resolved against it is decided again, and takes that release where the settings allow.
    """
    if lock.cluster is None:
        return lock.model_copy(update={"pools": {}})
    kubernetes = lock.cluster.kubernetes
    newest = _reached(kubernetes.version, catalogue.kubernetes)
    content: dict[str, Any] = dict.fromkeys(locked.Cluster.model_fields)
    content |= {"kubernetes": kubernetes.model_copy(update={"version": newest}), "addons": []}
    cluster = locked.Cluster.model_construct(**content)
    return lock.model_copy(update={"cluster": cluster, "pools": {}})


def refuse_unreachable(site: Site, before: Lock, after: Lock, catalogue: Catalogue) -> None:
    """Raise RefusedError where a plan moves a running cluster's Kubernetes as no upgrade can.

    The lock says what was planned, and maybe not carried out yet: what the hosts run is compared by
    upgrade.yml and by the stack's preview. So a plan that was not carried out is undone by the lock
    from before it; to plan downwards is refused, since nothing here knows that it is safe.
    """
    if before.cluster is None or after.cluster is None:
        return
    old, new = before.cluster.kubernetes.version, after.cluster.kubernetes.version
    if parts(old) <= parts(new) and parts(new)[:2] <= _next_minor(old):
        return
    known = catalogue.kubernetes
    if parts(new) < parts(old):
        what = "Kubernetes of a running cluster is never downgraded"
        fix = (
            f'write "{old}"; if bedplate.gpu.upgrade has not run since {old} was planned, restore '
            "the lock from before that plan (git has it) and plan again"
        )
    else:
        what = "Kubernetes of a running cluster goes up by one minor version at a time"
        fix = _way(old, new, known, site.path)
    reached = _reached(old, known)
    host = next(iter(site.hosts.values()))
    path: KeyPath = ("bedplate_kubernetes", "version")
    if "kubernetes" in host.wishes.bedplate_pins:
        path = ("bedplate_pins", "kubernetes")
    place = host.places.of(path)
    raise RefusedError(
        [
            Problem(
                what,
                place.file,
                place.line,
                place.column,
                spelt(path),
                new,
                old if reached == old else f"{old} to {reached}",
                fix,
                RULE,
            )
        ]
    )


def _next_minor(version: str) -> tuple[int, ...]:
    major, number = parts(version)[:2]
    return (major, number + 1)


def _reached(old: str, known: Iterable[str]) -> str:
    """Return the newest release that an upgrade from *old* can bring; *old* where none is newer."""
    near = (one for one in known if parts(one)[:2] <= _next_minor(old))
    return max((old, *near), key=parts)


def _way(old: str, new: str, known: Iterable[str], site: Path) -> str:
    """Return how to get up over several minor versions, by the newest release of each."""
    major, first = _next_minor(old)
    between = [f"{major}.{number}" for number in range(first, parts(new)[1])]
    newest = {minor(one): one for one in sorted(known, key=parts)}
    if missing := [one for one in between if one not in newest]:
        return (
            f"add a release of {' and of '.join(missing)} to {site}/{FACTS}, since the catalogue "
            "has none, and upgrade by way of it"
        )
    way = [newest[one] for one in between]
    rest = " and ".join(f'"{one}"' for one in (*way[1:], new))
    return (
        f"upgrade by way of {' and '.join(way)}: "
        f'write "{way[0]}", run bedplate plan and bedplate.gpu.upgrade, then the same with {rest}'
    )
