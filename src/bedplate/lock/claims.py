"""Courses whose students have shares of a GPU by memory: names of what claims and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bedplate.lock.courses import Course
    from bedplate.lock.model import Lock

#: What a queue counts: one for each claim, whatever its memory.
RESOURCE: Final = "bedplate.io/gpu-share"


def by_claim(lock: Lock) -> dict[str, Course]:
    """Return the courses whose students claim memory, by name."""
    courses = lock.cluster.courses if lock.cluster else {}
    return {name: one for name, one in sorted(courses.items()) if one.share.memory_mib is not None}


def in_pools_of_claims(lock: Lock) -> dict[str, Course]:
    """Return the courses in pools of mode dra, by name: whole GPUs are claims there too."""
    courses = lock.cluster.courses if lock.cluster else {}
    return {
        name: one
        for name, one in sorted(courses.items())
        if lock.pools[one.pool].sharing.mode == "dra"
    }


def template(course: Course) -> str:
    """Return the name of the template of a course's claims: its size is in it."""
    return f"share-{course.share.memory_mib}mi"
