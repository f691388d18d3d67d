"""What a plan says of courses that fit: facts that are weak, and what the proof does not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.versions import minor
from bedplate.courses.hours import together
from bedplate.courses.packing import Kind, Places, in_any_order
from bedplate.lock import builds, hub_state
from bedplate.lock.offers import offered
from bedplate.portable.quantities import memory
from bedplate.resolver.course_room import rooms
from bedplate.resolver.course_shares import OF_GPU, OF_PROCESS, reserved_for, reserves
from bedplate.resolver.outcome import WEAK, Notice
from bedplate.resolver.outcome import Kind as Of
from bedplate.site.site import NODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Cluster
    from bedplate.resolver.course_room import Room

#: The setting by which the hub's own proxy answers by TLS.
CERTIFICATE = ("bedplate_hub", "certificate")
#: Of a pool's other facts a plan says it already.
GRADES = ("secondary", "unproved")


def of(lock: Lock, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield the notices about courses."""
    cluster = lock.cluster
    if cluster is None or not cluster.courses:
        return
    yield from _unencrypted(cluster)
    yield from _on_one_host(lock)
    known = rooms(lock, catalogue)
    for pool in sorted({pool for course in cluster.courses.values() for pool in course.pools}):
        yield from _reserves(known[pool], cluster, catalogue)
        yield from _order(known[pool], cluster)
        yield from _lent(lock, cluster, pool)
    yield from _unknown(cluster)
    yield from _disk(lock, cluster)
    yield from _runs(cluster, known)
    yield from _versions(lock, cluster)
    yield from _registries(lock, cluster)


def _on_one_host(lock: Lock) -> Iterator[Notice]:
    """Report accounts of the hub that lie on one of several nodes."""
    nodes = [one for one in lock.hosts.values() if set(NODES) & set(one.groups)]
    if hub_state.shared(lock) is None and len(nodes) > 1:
        yield Notice(
            f"the hub's accounts are on {hub_state.host(lock)} alone, and are lost with it",
            hint="write bedplate_storage.homes with nfs, or with shared: true",
        )


def _unencrypted(cluster: Cluster) -> Iterator[Notice]:
    """Report a hub that users reach by plain HTTP: nothing ends TLS before or in its proxy."""
    hub = cluster.hub
    if hub is None or hub.certificate or (hub.url or "").startswith("https:"):
        return
    sent = "passwords and cookies" if hub.sign_in == "native" else "cookies"
    yield Notice(
        f"the hub answers by plain HTTP: {sent} travel unencrypted",
        hint=f"write {'.'.join(CERTIFICATE)}, or an https bedplate_hub.url where your own proxy "
        "ends TLS",
    )


def _reserves(room: Room, cluster: Cluster, catalogue: Catalogue) -> Iterator[Notice]:
    names = {OF_GPU, OF_PROCESS}
    for course in cluster.courses.values():
        if room.pool in course.pools and course.share.user_mib is not None:
            names |= set(reserved_for(course.frameworks, catalogue))
    facts = reserves(sorted(names), room.gpus, catalogue)
    for grade in GRADES:
        if items := tuple(fact.id for fact in facts if fact.sure == grade):
            yield Notice(WEAK[grade], room.pool, Of.WEAK, items)


def _unknown(cluster: Cluster) -> Iterator[Notice]:
    """Report notebooks that nothing keeps from filling their node."""
    without = {
        name: course.pools
        for name, course in cluster.courses.items()
        if course.notebook.memory_mib is None
    }
    if without:
        pools = ", ".join(sorted({pool for its in without.values() for pool in its}))
        text = f"notebooks of {', '.join(without)} have no limit of memory"
        hint = f"write bedplate_host.memory of {pools}"
        yield Notice(text, hint=hint)


def _disk(lock: Lock, cluster: Cluster) -> Iterator[Notice]:
    """Report notebooks whose limit of disk is not compared with what their hosts have."""
    its = {
        name: pool
        for name, course in cluster.courses.items()
        for pool in course.pools
        if course.notebook.disk_mib and lock.pools[pool].disk_mib is None
    }
    if its:
        text = f"whether hosts have the disk for notebooks of {', '.join(its)} is not known"
        hint = f"write bedplate_host.disk of {', '.join(sorted(set(its.values())))}"
        yield Notice(text, hint=hint)


def _runs(cluster: Cluster, known: Mapping[str, Room]) -> Iterator[Notice]:
    """Report runs with less memory of their host than of their GPU: data goes through the first."""
    for name, course in cluster.courses.items():
        has, share, gpus = course.notebook.memory_mib, course.share, known[course.pool].gpus
        of_gpu = share.memory_mib or share.user_mib or (gpus.memory or 0) * share.count
        if course.runs_at_once and has is not None and has < of_gpu:
            yield Notice(
                f"notebooks and runs of {name} have {has}Mi of their host each, and {of_gpu}Mi of "
                "a GPU",
                course.pool,
                hint=f"write memory of {name}, where the default divides what {course.seats} "
                f"shares have of the host over {course.seats + course.students} pods; or have "
                "fewer students, or more runs_at_once",
            )


def _versions(lock: Lock, cluster: Cluster) -> Iterator[Notice]:
    """Report runs in another version of the framework than their notebook has."""
    for name, course in cluster.courses.items():
        found = builds.of_course(lock, course)
        for one in found:
            if isinstance(one, builds.Own) or one.cuda:
                continue
            other = builds.with_gpu(one, found)
            if other is None or other.version == one.version:
                continue
            yield Notice(
                f"notebooks of {name} have {one.name} {one.version}, and their runs {other.name} "
                f"{other.version}",
                course.pool,
                hint=f"name both with one version, as {one.name}-{minor(other.version)} and "
                f"{other.name}-{minor(other.version)}",
            )


def _registries(lock: Lock, cluster: Cluster) -> Iterator[Notice]:
    """Report registries: their sizes are counted, and whether the disk has them is not known."""
    sizes = {name: one.registry_mib for name, one in cluster.courses.items() if one.registry_mib}
    if sizes:
        total = memory(sum(sizes.values()))
        yield Notice(
            f"registries of {', '.join(sizes)} have up to {total}, which is not reserved",
            hint=f"have {total} free where the hub's accounts lie: with the homes, or on "
            f"{hub_state.host(lock)}",
        )


def _order(room: Room, cluster: Cluster) -> Iterator[Notice]:
    """Report courses that fit together only if the scheduler puts them as the proof does."""
    if room.gpus.mode not in {"dra", "none"}:
        return
    # One in several pools may have no share in this one.
    found = cluster.courses.items()
    hours = {name: one.hours for name, one in found if one.pools.get(room.pool)}
    for when, names in together(hours):
        sizes: dict[str, dict[int, int]] = {}
        for name in names:
            course = cluster.courses[name]
            its, size = sizes.setdefault(course.share.resource, {}), room.size(course.share)
            its[size] = its.get(size, 0) + course.pools[room.pool]
        for resource, numbers in sizes.items():
            places, among = room.places(resource), list(names)
            if own := room.teams.get(resource):
                each = (room.gpus.memory or 0) if room.gpus.mode == "dra" else 1
                numbers[each] = numbers.get(each, 0) + own
                if room.gpus.mode == "dra":  # nothing keeps claims off the GPUs that are a team's
                    places, among = Places(room.gpus.count, places.has), [*among, "teams"]
            kinds = [Kind(number, (size,)) for size, number in sorted(numbers.items())]
            if len(kinds) < 2 or in_any_order([places], kinds):
                continue
            text = f"{', '.join(among)} fit together ({when}), but not in every order"
            hint = "give each size a pool of its own, or leave more room: nothing moves a share"
            yield Notice(text, room.pool, hint=hint)


def _lent(lock: Lock, cluster: Cluster, pool: str) -> Iterator[Notice]:
    """Report quotas of courses at other hours that teams could borrow all at once."""
    parts = [team.gpus.get(pool, {}) for team in cluster.teams.values()]
    borrows = any(
        quota.borrow != 0
        for name, team in cluster.teams.items()
        for quota in team.gpus.get(pool, {}).values()
        if name not in cluster.courses
    )
    total = sum(quota.guaranteed for part in parts for quota in part.values())
    has = sum(offered(lock, pool).values())
    if borrows and total > has:
        text = f"courses of different hours have quotas of {total} where there are {has}"
        hint = "teams that borrow could be admitted beyond that, and wait for a node"
        yield Notice(text, pool, hint=hint)
