"""What each student's notebook has of its node: memory, CPUs and /dev/shm."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.lock.courses import Notebook
from bedplate.lock.node_pods import for_users, of_unit, parted
from bedplate.portable.quantities import mebibytes
from bedplate.resolver import courses
from bedplate.resolver.course_shares import gpus_of

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.courses import Course
    from bedplate.site import Site


def decided(site: Site, lock: Lock, catalogue: Catalogue) -> Lock:
    """Return the lock with what notebooks have of their nodes."""
    cluster = lock.cluster
    if cluster is None or not cluster.courses:
        return lock
    found = {}
    for asked in courses.of(site):
        course = cluster.courses[asked.name]
        memory, cpu = _part(lock, course, catalogue)
        memory = mebibytes(asked.memory) if asked.memory else memory
        cpu = max(1, round(asked.cpus * 1000)) if asked.cpus else cpu
        shm = mebibytes(asked.shm) if asked.shm else None
        # As Linux sizes a tmpfs.
        shm = memory // 2 if shm is None and memory is not None else shm
        notebook = Notebook(memory_mib=memory, cpu_milli=cpu, shm_mib=shm)
        found[asked.name] = course.model_copy(update={"notebook": notebook})
    return lock.model_copy(
        update={"cluster": cluster.model_copy(update={"courses": cluster.courses | found})}
    )


def _part(lock: Lock, course: Course, catalogue: Catalogue) -> tuple[int | None, int | None]:
    """Return MiB and thousandths of CPUs that go with a student's share."""
    if course.share.memory_mib is None:
        memory, cpu = of_unit(lock, course.pool, catalogue)
        count = course.share.count
        return memory and memory * count, cpu and cpu * count
    free = for_users(lock, catalogue)
    its = [free[name] for name, host in lock.hosts.items() if host.pool == course.pool]
    gpus = gpus_of(lock.pools[course.pool], 1, catalogue)
    of_gpu = Fraction(course.share.memory_mib, gpus.memory or course.share.memory_mib)
    return parted(its, of_gpu / (gpus.per_host or 1))
