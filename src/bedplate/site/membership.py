"""Which groups there are, and which host may be in which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.errors import Problem
from bedplate.common.nearest import nearest
from bedplate.site.places import Place
from bedplate.site.site import (
    CONTROL_PLANE,
    GROUPS,
    HYPERVISORS,
    NODES,
    PARENTS,
    POOL_PREFIX,
    POOLS,
    SLURM,
    WORKERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bedplate.site.ansible_adapter import RawSite
    from bedplate.site.effective import RawHost
    from bedplate.site.site import SiteHost

NO_POOL = "GPU host is in no pool"
#: Ansible's own groups.
BUILT_IN = ("all", "ungrouped")
#: How alike a group's name must be to one of ours to be taken for a misspelt one.
ALIKE = 0.8


def at(place: Place, what: str, key: str, got: str, allowed: str, fix: str, rule: str) -> Problem:
    """Return a problem at a place."""
    return Problem(what, place.file, place.line, place.column, key, got, allowed, fix, rule)


def pools_of(host: RawHost) -> list[str]:
    """Return the pools that a host is in."""
    return [group for group in host.groups if group.startswith(POOL_PREFIX)]


def of_site(path: Path, raw: RawSite) -> list[Problem]:
    """Return what is wrong with the groups."""
    home = Place(str(path))
    filled = {group for host in raw.hosts for group in host.groups}
    problems = _misspelt(raw, home)
    if not filled & set(GROUPS):
        outside = f"{len(raw.hosts)} hosts outside of Bedplate's groups"
        problems.append(
            at(
                home,
                "site has no hosts",
                "",
                outside if raw.hosts else "none",
                f"hosts in {', '.join(GROUPS[:2])}",
                f"put hosts into the groups {CONTROL_PLANE} and {POOLS}",
                "hosts",
            )
        )
    for pool in sorted(group for group in raw.groups if group.startswith(POOL_PREFIX)):
        place = raw.places.get(pool, home)
        above = _nearest_above(pool, raw.groups)
        parents = [group for group in PARENTS if group in above]
        outer = [group for group in above if group.startswith(POOL_PREFIX)]
        if outer:
            fix = f"list {pool} next to {outer[0]}, or rename one that is no pool of its own"
            what, got = "pool is below another pool", ", ".join([pool, *outer])
            allowed = f"groups of other names below {POOL_PREFIX}…"
            problems.append(at(place, what, pool, got, allowed, fix, "one-pool"))
        elif len(parents) != 1:
            problems.append(
                at(
                    place,
                    f"pool is below {' and '.join(parents)}"
                    if parents
                    else f"pool is not below {', '.join(PARENTS[:-1])} or {PARENTS[-1]}",
                    pool,
                    ", ".join(parents) or "a group of its own",
                    f"below one of {', '.join(PARENTS)}",
                    f"list {pool} under the children of one of them alone, or of a group below it",
                    "one-pool",
                )
            )
        if pool not in filled:
            fix = "add hosts to it, or remove the group"
            problems.append(
                at(place, "pool is empty", pool, "no hosts", "at least one host", fix, "hosts")
            )
    return problems


def _nearest_above(group: str, children: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the nearest groups above one, on each way up, that are pools or that pools are in."""
    found: set[str] = set()
    seen, waiting = {group}, [group]
    while waiting:
        below = waiting.pop()
        for parent in (name for name, its in children.items() if below in its):
            if parent in PARENTS or parent.startswith(POOL_PREFIX):
                found.add(parent)
            elif parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return sorted(found)


def _misspelt(raw: RawSite, home: Place) -> list[Problem]:
    """Groups that were meant to be ours: Ansible knows no wrong group, and we would not look."""
    problems = []
    for host in raw.hosts:
        if set(host.groups) & set(GROUPS):
            continue
        for group in host.groups:
            close = nearest(group, GROUPS, at_least=ALIKE)
            if close and group not in GROUPS:
                place = raw.places.get(group, home)
                allowed, fix = ", ".join(GROUPS), f"write {close}"
                problems.append(
                    at(place, "unknown group", group, group, allowed, fix, "known-groups")
                )
    return list(dict.fromkeys(problems))


def of_host(raw: RawHost, groups: Mapping[str, Place], lost: Sequence[str] = ()) -> list[Problem]:
    """Return what is wrong with the groups of a host; *lost* are pools that have a file alone.

    `groups` are the places of groups: that of one which is to be renamed is where that is done.
    """
    problems = []
    place, name, pools = raw.places.fallback, raw.name, pools_of(raw)
    if len(pools) > 1:
        problems.append(
            at(
                place,
                "host is in two pools",
                name,
                ", ".join(pools),
                "one pool",
                f"remove {name} from {' or '.join(pools)}",
                "one-pool",
            )
        )
    if POOLS in raw.groups and not pools:
        allowed = f"a group {POOL_PREFIX}… below {POOLS}"
        inner = [group for group in raw.groups if group not in {*GROUPS, *BUILT_IN}]
        like = [pool for pool in lost if pool.removeprefix(POOL_PREFIX) in inner] or lost
        meant = like[0] if len(like) == 1 else None
        fix = f"put {name} into " + (f"a group {meant}" if meant else "one")
        if len(inner) == 1:
            fix = f"rename {inner[0]} to {meant or POOL_PREFIX + inner[0]}"
            fix += "" if meant else ", and its file in group_vars too, if it has one"
        got, home = ", ".join([POOLS, *inner]), groups.get(inner[0], place) if inner else place
        problems.append(at(home, NO_POOL, name, got, allowed, fix, "one-pool"))
    kubernetes = [group for group in NODES if group in raw.groups]
    if WORKERS in raw.groups and kubernetes != [WORKERS]:
        problems.append(_worker_too(raw, kubernetes))
    if SLURM in raw.groups and kubernetes:
        problems.append(
            at(
                place,
                "host is in Slurm and in Kubernetes",
                name,
                ", ".join([SLURM, *kubernetes]),
                "one of them",
                f"remove {name} from {SLURM}, or from {' and '.join(kubernetes)}",
                "slurm-or-kubernetes",
            )
        )
    others = [group for group in GROUPS if group != HYPERVISORS and group in raw.groups]
    if HYPERVISORS in raw.groups and others:
        problems.append(
            at(
                place,
                "hypervisor is a node too",
                name,
                ", ".join([HYPERVISORS, *others]),
                f"{HYPERVISORS} alone",
                f"remove {name} from {' and '.join(others)}, and put its guests there",
                "hypervisor-bare",
            )
        )
    return problems


def _worker_too(raw: RawHost, groups: Iterable[str]) -> Problem:
    """Refuse a worker in another group of nodes: workers have no GPU, and are no control plane."""
    others = [group for group in groups if group != WORKERS]
    fix = f"remove {raw.name} from {WORKERS}"
    if POOLS not in others:
        fix += "; bedplate_kubernetes.control_plane_taint: false lets pods run on control planes"
    return at(
        raw.places.fallback,
        f"host is in {WORKERS} and in another group of nodes",
        raw.name,
        ", ".join([WORKERS, *others]),
        f"{WORKERS} alone, for nodes without a GPU",
        fix,
        "worker-alone",
    )


def outside(raw: RawSite) -> list[str]:
    """Return the hosts that are in none of our groups: they get nothing."""
    return [host.name for host in raw.hosts if not set(host.groups) & set(GROUPS)]


def of_kinds(hosts: Mapping[str, SiteHost]) -> list[Problem]:
    """Return the hosts whose kind is not that of their group."""
    problems = []
    for _, host in sorted(hosts.items()):
        kind = host.wishes.bedplate_host.kind
        if (HYPERVISORS in host.groups) == (kind == "hypervisor"):
            continue
        path = ("bedplate_host", "kind")
        inside = HYPERVISORS in host.groups
        problems.append(
            at(
                host.places.of(path),
                f"host is in {HYPERVISORS} and of another kind"
                if inside
                else f"hypervisor is not in {HYPERVISORS}",
                ".".join(path),
                f"{kind} for {host.name}",
                "hypervisor" if inside else "bare-metal, passthrough",
                f"set kind: hypervisor in group_vars/{HYPERVISORS}, or move the host"
                if inside
                else f"move the host to {HYPERVISORS}, or correct its kind",
                "hypervisor-bare",
            )
        )
    return _first_of_each_place(problems)


def of_cluster(hosts: Sequence[RawHost]) -> list[Problem]:
    """Return that the cluster's endpoint is not set, once: a site without nodes needs none."""
    key, allowed = "bedplate_kubernetes", "what only you can know"
    named = any(map(_names_docker, hosts))
    for host in hosts:
        if not set(NODES) & set(host.groups) or host.wishes.get(key) is not None:
            continue
        others = [group for group in (CONTROL_PLANE, WORKERS) if group in host.groups]
        if named and not others:
            continue
        fix = "set bedplate_kubernetes in group_vars"
        if named:
            fix += f"; for Docker without Kubernetes, remove {host.name} from {others[0]}"
        elif not others:
            fix += ", or bedplate_container_runtime: {name: docker} for Docker without Kubernetes"
        place = host.places.of((key,))
        return [at(place, "setting is missing", key, "nothing", allowed, fix, "setting-form")]
    return []


def _names_docker(host: RawHost) -> bool:
    runtime = host.wishes.get("bedplate_container_runtime")
    return (runtime.get("name") if isinstance(runtime, dict) else runtime) == "docker"


def _first_of_each_place(problems: Iterable[Problem]) -> list[Problem]:
    """One message for a wish that many hosts have from one place."""
    return list({(p.file, p.line, p.column, p.key): p for p in reversed(list(problems))}.values())
