"""The courses as the hub knows them: who may use which, and when. Standard library only."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

GROUP: Final = "group:"
#: Groups of the hub that hold who signed up with a course's code.
ENROLLED: Final = "course-"
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WEEK: Final = timedelta(days=7)
LESSON: Final = re.compile(r"(?P<day>\w{3}) (?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d)", re.ASCII)
WHERE: Final = "BEDPLATE_HUB"
USUAL: Final = "/etc/bedplate/hub.json"


@dataclass(frozen=True)
class Profile:
    """What a student of a course may start: an image, and the numbers that the form shows.

    `runs` is the slug of the profile whose image runs by %%share have: a CPU build's are another's.
    """

    slug: str
    title: str
    about: str
    image: str
    runs: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Course:
    """A course of the site; `name` is also that of its namespace and ClusterQueue.

    `limits` are the extended resources of a student's pod by name. With a `claim`, the name of a
    template, the pod claims by that, and `limits` are what its queue counts. `volumes` and `mounts`
    are as Kubernetes has them, with `{username}` for who it is. `material` is the command that
    fetches it. `memory_mib` and `cpu_milli` are what a notebook has of its node, `shm_mib` is how
    much of that memory /dev/shm may take, and `disk_mib` what it may write outside the home; 0 is
    not known, or no limit.
    `shares` is how many a person may have at once, notebooks and shares on request together,
    `longest` the seconds of the longest share on request, and `gpu_hours` what a person may use in
    a week of the course and its sizes; 0 is no such limit. With `runs`, the most shares at once,
    notebooks have no GPU: `placed` is what keeps them on the pool's nodes, as KubeSpawner's
    settings.
    `registry_mib` is the size of what teachers push; 0 is no registry.
    Another size of a course is a course with the name of that in `of`: its students are the
    other's. `sizes` are the names of those.
    """

    name: str
    zone: str
    profiles: list[Profile]
    limits: dict[str, str]
    claim: str = ""
    hours: list[str] = field(default_factory=list)
    idle_timeout: float = 1800
    members: list[str] = field(default_factory=list)
    teachers: list[str] = field(default_factory=list)
    students: int = 0
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    material: list[str] = field(default_factory=list)
    memory_mib: int = 0
    cpu_milli: int = 0
    shm_mib: int = 0
    disk_mib: int = 0
    shares: int = 1
    longest: int = 0
    gpu_hours: float = 0
    runs: int = 0
    of: str = ""
    sizes: list[str] = field(default_factory=list)
    placed: dict[str, Any] = field(default_factory=dict)
    registry_mib: int = 0

    @property
    def notebooks(self) -> int:
        """Return how many notebooks a person may have of the course at once."""
        return 1 if self.runs else self.shares

    def admits(self, user: str, groups: frozenset[str]) -> bool:
        """Tell whether a user may use the course: by name, by a group, or by having enrolled."""
        listed = {*self.members, *self.teachers}
        return is_one(user, groups, listed) or (ENROLLED + (self.of or self.name) in groups)

    def taught_by(self, user: str, groups: frozenset[str]) -> bool:
        """Tell whether a user is a teacher of the course, by name or by a group."""
        return is_one(user, groups, set(self.teachers))

    def lesson(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Return when the lesson began that is on now, and when it ends; None between lessons.

        Lessons that touch are one. A course without hours has none: see `open`.
        """
        spans = sorted(span for text in self.hours for span in self._spans(text, now))
        joined: list[tuple[datetime, datetime]] = []
        for begin, end in spans:
            if joined and begin <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((begin, end))
        return next(((begin, end) for begin, end in joined if begin <= now < end), None)

    def open(self, now: datetime) -> bool:
        """Tell whether the course takes place now; one without hours always does."""
        return not self.hours or self.lesson(now) is not None

    def left(self, now: datetime) -> timedelta | None:
        """Return how long the lesson goes on; None where nothing ends."""
        lesson = self.lesson(now)
        return lesson[1] - now if lesson else None

    def next(self, now: datetime) -> datetime | None:
        """Return when the next lesson begins; None for a course without hours."""
        begins = [begin for text in self.hours for begin, _ in self._spans(text, now)]
        return min((begin for begin in begins if begin > now), default=None)

    def timetable(self, now: datetime) -> str:
        """Say when the course takes place and when it begins next, as its students would."""
        begin = self.next(now)
        if begin is None:
            return f"{self.name} takes place at any time."
        hours = " and ".join(", ".join(self.hours).rsplit(", ", 1))
        return (
            f"{self.name} takes place {hours} (time of {self.zone}). "
            f"The next lesson starts on {begin:%A}, {begin.day} {begin:%B} at {begin:%H:%M}."
        )

    def here(self) -> ZoneInfo:
        """Return the course's time zone."""
        return ZoneInfo(self.zone)

    def _spans(self, text: str, now: datetime) -> list[tuple[datetime, datetime]]:
        """Return a lesson of the week before, of this one and of the next, on the wall clock."""
        found = LESSON.fullmatch(text)
        if found is None:
            raise ValueError(f"hours of {self.name}: got {text!r} / allowed 'Mon 10:00-12:00'")
        zone = self.here()
        here = now.astimezone(zone)
        monday = (here - timedelta(days=here.weekday())).date()
        day = monday + timedelta(days=DAYS.index(found["day"]))
        return [
            (self._at(day + week, found["begin"], zone), self._at(day + week, found["end"], zone))
            for week in (-WEEK, timedelta(), WEEK)
        ]

    @staticmethod
    def _at(day: Any, clock: str, zone: ZoneInfo) -> datetime:
        hours, minutes = map(int, clock.split(":"))
        whole = datetime(day.year, day.month, day.day, tzinfo=zone)
        if hours == 24:
            return whole + timedelta(days=1)
        return whole.replace(hour=hours, minute=minutes)


def is_one(user: str, groups: frozenset[str], listed: set[str]) -> bool:
    """Return whether a list of users and `group:NAME` has a user, or one of the user's groups."""
    named = user in listed and not user.startswith(GROUP)
    return named or bool(listed & {GROUP + group for group in groups})


@dataclass(frozen=True)
class Settings:
    """What the stack decided for the hub: the file of a ConfigMap."""

    courses: dict[str, Course]
    sign_in: str
    sign_in_settings: dict[str, Any]
    admins: list[str]
    service: dict[str, Any]

    def named(self) -> set[str]:
        """Name the users whom the site lists by name: nobody else signs up under these."""
        listed = {*self.admins, *(name for one in self.courses.values() for name in one.teachers)}
        listed |= {name for one in self.courses.values() for name in one.members}
        return {name for name in listed if not name.startswith(GROUP)}

    def of(self, user: str, groups: frozenset[str]) -> list[Course]:
        """Return the courses of a user."""
        return [one for one in self.courses.values() if one.admits(user, groups)]


def settings(path: str | None = None) -> Settings:
    """Read the file of settings, by default that which the environment names."""
    where = Path(path or os.environ.get(WHERE, USUAL))
    content = json.loads(where.read_text())
    courses = {
        name: Course(
            **{
                "name": name,
                "zone": content["zone"],
                **one,
                "profiles": [Profile(**profile) for profile in one["profiles"]],
            }
        )
        for name, one in content["courses"].items()
    }
    return Settings(
        courses=courses,
        sign_in=content["sign_in"],
        sign_in_settings=content.get("sign_in_settings", {}),
        admins=content.get("admins", []),
        service=content.get("service", {}),
    )
