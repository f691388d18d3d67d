"""What of a site is decided together: the shared components, pools, other hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from bedplate.resolver.candidates import Candidates
from bedplate.resolver.wishes import (
    CLUSTER,
    Subject,
    Wish,
    cluster_wishes,
    host_wishes,
    pin_wishes,
    pool_wishes,
)
from bedplate.site.courses import listed

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost

#: Where the name of a wish ends in a spelt key path.
ROOT_KEY = re.compile(r"[.\[]")


def subjects(site: Site, catalogue: Catalogue) -> tuple[Subject, list[Subject]]:
    """Return the shared components, and the pools and other hosts that are decided together."""
    hosts = [host for _, host in sorted(site.hosts.items())]
    found = [
        _subject(name, members, list(pool_wishes(name, members, catalogue)))
        for name, members in site.pools.items()
    ]
    found = _for_all(found, catalogue)
    others: dict[Hashable, list[SiteHost]] = {}
    for host in hosts:
        if host.pool is None:
            pins = tuple(sorted(host.wishes.bedplate_pins.items()))
            alike = (host.wishes.bedplate_host, pins, host.is_node)
            others.setdefault(alike, []).append(host)
    for members in others.values():
        # No host can have such a name: hosts, pools and the cluster share one space of subjects.
        name = f"hosts like {members[0].name}"
        wishes = [*host_wishes(name, members[0]), *pin_wishes(name, members[0])]
        found.append(_subject(name, members, wishes))
    shared = list(cluster_wishes(hosts[0], catalogue))
    for subject in found:
        shared += [wish for wish in subject.wishes if wish.subject == CLUSTER]
    unique = {(wish.path, wish.label, _place(wish)): wish for wish in shared}
    pools = [
        replace(one, wishes=tuple(w for w in one.wishes if w.subject != CLUSTER)) for one in found
    ]
    return Subject(CLUSTER, len(hosts), hosts[0], tuple(unique.values())), pools


def _for_all(pools: Sequence[Subject], catalogue: Catalogue) -> list[Subject]:
    """Let a framework of a course in several pools have one build, with code for all their GPUs.

    Where no build has that, each pool has its own, and `course_pools` says so.
    """
    gpus = {
        one.name: {w.model.value.compute_capability for w in one.wishes if w.model} for one in pools
    }
    needs: dict[tuple[str, str], set[str]] = {}
    wished = pools[0].host.wishes.bedplate_courses if pools else ()
    for course in (one.course for one in listed(wished)):
        for pool, text in product(course.pool, course.frameworks if course.pool[1:] else ()):
            needed = needs.setdefault((pool, text), set())
            needed.update(*(gpus.get(other, ()) for other in course.pool))
    builds = [fact.value for fact in catalogue.frameworks.values()]

    def changed(wish: Wish) -> Wish:
        needed = frozenset(needs.get((wish.subject, wish.label), ()))
        whole = replace(wish, gpus=needed)
        able = wish.kind == "framework" and any(Candidates.fits(whole, one) for one in builds)
        return whole if needed and able else wish

    return [replace(one, wishes=tuple(map(changed, one.wishes))) for one in pools]


def _subject(name: str, members: Sequence[SiteHost], wishes: Sequence[Wish]) -> Subject:
    return Subject(name, len(members), members[0], tuple(wishes))


def _place(wish: Wish) -> str:
    return str(wish.host.places.of(wish.path))


def without(
    cluster: Subject, pools: Sequence[Subject], problems: Sequence[Problem]
) -> tuple[Subject, list[Subject]]:
    """Leave out the wishes that are refused already: what stands beside them is told as well."""
    refused = {(one.file, one.line, ROOT_KEY.split(one.key or "")[0]) for one in problems}

    def fine(wish: Wish) -> bool:
        key = str(wish.path[0])
        places = [wish.host.places.of(path) for path in (wish.path, wish.path[:1])]
        return not any((place.file, place.line, key) in refused for place in places)

    return (
        replace(cluster, wishes=tuple(w for w in cluster.wishes if fine(w))),
        [replace(one, wishes=tuple(w for w in one.wishes if fine(w))) for one in pools],
    )
