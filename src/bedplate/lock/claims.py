"""Courses whose students have shares of a GPU by memory: names of what claims and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bedplate.lock.courses import Course

#: What a queue counts: one for each claim, whatever its memory.
RESOURCE: Final = "bedplate.io/gpu-share"


def by_claim(courses: Mapping[str, Course]) -> dict[str, Course]:
    """Return the courses whose students claim memory, by name."""
    return {name: one for name, one in sorted(courses.items()) if one.share.memory_mib is not None}


def in_pools(courses: Mapping[str, Course], pools: Collection[str]) -> dict[str, Course]:
    """Return the courses in some pools, by name."""
    return {name: one for name, one in sorted(courses.items()) if one.pool in pools}


def template(course: Course) -> str:
    """Return the name of the template of a course's claims: its size is in it."""
    return f"share-{course.share.memory_mib}mi"
