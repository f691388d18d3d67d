"""What each student's notebook has of its node, and each run: memory, CPUs, /dev/shm and disk."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.lock.courses import Notebook
from bedplate.portable.quantities import mebibytes
from bedplate.resolver import courses
from bedplate.resolver.course_shares import gpus_of
from bedplate.resolver.node_pods import for_users, of_unit, parted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.courses import Share
    from bedplate.resolver.node_pods import Free
    from bedplate.site import Site


def decided(site: Site, lock: Lock, catalogue: Catalogue) -> Lock:
    """Return the lock with what notebooks have of their nodes."""
    cluster = lock.cluster
    if cluster is None or not cluster.courses:
        return lock
    free = for_users(lock, catalogue)
    parts = {
        name: Part(lock, name, free, catalogue)
        for name in {pool for course in cluster.courses.values() for pool in course.pools}
    }
    found = {}
    for asked in courses.of(site):
        course = cluster.courses[asked.name]
        # Alike in all its pools: what the least of them has.
        each = list(zip(*(parts[pool].of(course.share) for pool in course.pools), strict=True))
        memory, cpu = (None if None in has else min(has) for has in each)
        if course.runs_at_once:
            # Notebooks and runs together have what as many shares have.
            pods = course.seats + course.students
            memory = memory and max(1, memory * course.seats // pods)
            cpu = cpu and max(1, cpu * course.seats // pods)
        memory = mebibytes(asked.memory) if asked.memory else memory
        cpu = max(1, round(asked.cpus * 1000)) if asked.cpus else cpu
        shm = mebibytes(asked.shm) if asked.shm else None
        # As Linux sizes a tmpfs.
        shm = memory // 2 if shm is None and memory is not None else shm
        disk = mebibytes(asked.disk) if asked.disk else None
        notebook = Notebook(memory_mib=memory, cpu_milli=cpu, shm_mib=shm, disk_mib=disk)
        if notebook != Notebook():
            found[asked.name] = course.model_copy(update={"notebook": notebook})
    if not found:
        return lock
    return lock.model_copy(
        update={"cluster": cluster.model_copy(update={"courses": cluster.courses | found})}
    )


class Part:
    """What goes with a share of a pool: a part of the pool's nodes."""

    def __init__(
        self, lock: Lock, pool: str, free: Mapping[str, Free], catalogue: Catalogue
    ) -> None:
        self.nodes = [free[name] for name, host in lock.hosts.items() if host.pool == pool]
        self.unit = of_unit(lock, pool, free)
        gpus = gpus_of(lock.pools[pool], 1, catalogue)
        self.memory = (gpus.memory or 1) * (gpus.per_host or 1)

    def of(self, share: Share) -> tuple[int | None, int | None]:
        """Return MiB and thousandths of CPUs; of a claim by memory its part of the GPUs."""
        if self.unit == (None, None):
            return self.unit
        if share.memory_mib is not None:
            return parted(self.nodes, Fraction(share.memory_mib, self.memory))
        memory, cpu = self.unit
        return memory and memory * share.count, cpu and cpu * share.count
