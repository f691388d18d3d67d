"""The settings of courses, of the hub that their students use, and of the data that both have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from bedplate.site.patterns import (
    BY_GPUS,
    BY_MEMORY,
    BY_PART,
    Member,
    Memory,
    Name,
    Named,
    OwnFile,
    PoolName,
    Wish,
    address,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.site.places import KeyPath

#: A weekly lesson in the site's local time; a day's end may be written 24:00.
TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
HOURS = rf"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) {TIME}-({TIME}|24:00)$"
IDLE = r"^[1-9][0-9]*(s|m|h)$"
FOLDER = r"^/[^\s:]*$"
GIT = r"^https?://[^\s/@#]+/[^\s@#]+(#[A-Za-z0-9][\w./-]*)?$"
SERVER = r"^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$"
ZONE = r"^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"
ADDRESS = r"^https?://[^\s/@]+(/\S*)?$"

Folder = Annotated[str, Field(pattern=FOLDER)]
Address = Annotated[str, Field(pattern=ADDRESS), AfterValidator(address)]


class StudentMemory(Wish):
    """GPU memory for each student, to which that of the framework itself is added."""

    memory: Memory


class StudentGpus(Wish):
    """Whole GPUs, or whole instances of MIG, for each student."""

    gpus: Annotated[int, Field(ge=1, le=64)]


def _form_of_share(value: object) -> str:
    if isinstance(value, StudentGpus) or (isinstance(value, dict) and "gpus" in value):
        return BY_GPUS
    return BY_MEMORY if isinstance(value, dict | StudentMemory) else BY_PART


Share = Annotated[
    Annotated[Annotated[float, Field(ge=0.001, le=1)], Tag(BY_PART)]
    | Annotated[StudentMemory, Tag(BY_MEMORY)]
    | Annotated[StudentGpus, Tag(BY_GPUS)],
    Discriminator(_form_of_share),
]


class PerUser(Wish):
    """What a person may have of a course at once.

    `shares` counts notebooks and shares on request together, and the proof has room for as many for
    each student. With `runs_at_once` it counts runs alone. `time` is the longest time of a share on
    request; left out, it is the lesson's.
    """

    shares: Annotated[int, Field(ge=1, le=16)] = 1
    time: Annotated[str, Field(pattern=IDLE)] | None = None


class Size(Wish):
    """One more size of share in a course, for students who need more at times.

    `name` follows the course's in the name of its queue and namespace. `at_once` is how many shares
    of this size all students hold at most: the plan proves room for them next to the course's own
    share for each student. Left out, `pool`, `frameworks`, `per_user` and `disk` are the course's,
    and `memory`, `cpus` and `shm` follow from the share.
    """

    name: Name
    share: Share
    at_once: Annotated[int, Field(ge=1, le=100_000)]
    pool: PoolName | None = None
    frameworks: list[Named] | None = None
    per_user: PerUser | None = None
    memory: Memory | None = None
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    shm: Memory | None = None
    disk: Memory | None = None


class Course(Wish):
    """A course: its students, and what each of them gets while it takes place.

    `name` is also that of its team, queue and namespace. `share` is a part of a GPU, memory of one,
    or whole GPUs. Without `hours` the course takes place always. `storage` is the home of each
    student, which stays; without it a student has none. `datasets` are read-only. `material` is the
    address of a repository of Git, with `#BRANCH` where it is not the default one.

    `memory` and `cpus` are what each notebook has of its node, and `shm` is how much of that memory
    /dev/shm may take. Left out, they follow from the share where `bedplate_host` says what a node
    of the pool has. `disk` is the most that a notebook or share writes to the disk of its node, its
    home not counted. Left out, there is no limit.

    With `runs_at_once` notebooks hold no GPU. A run in one takes a share and waits in the queue,
    and so many shares are held at once: all that the proof has room for.

    `sizes` are larger or other shares, of which there are fewer than students.

    `frameworks` has names of `bedplate_images` too.
    """

    name: Name
    students: Annotated[int, Field(ge=1, le=100_000)]
    share: Share
    pool: PoolName
    frameworks: list[Named] = []
    hours: list[Annotated[str, Field(pattern=HOURS)]] = []
    idle_timeout: Annotated[str, Field(pattern=IDLE)] = "30m"
    storage: Memory | None = None
    memory: Memory | None = None
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    shm: Memory | None = None
    disk: Memory | None = None
    per_user: PerUser = PerUser()
    runs_at_once: Annotated[int, Field(ge=1, le=100_000)] | None = None
    sizes: list[Size] = []
    teachers: list[Member] = []
    members: list[Member] = []
    datasets: list[Name] = []
    material: Annotated[str, Field(pattern=GIT)] | None = None

    @property
    def seats(self) -> int:
        """Return how many shares all students may have at once."""
        most = self.students * self.per_user.shares
        return min(self.runs_at_once or most, most)


class OfSize(Course):
    """A size of a course, as the course that it would be by itself. No setting is one."""

    of: Name
    at_once: int

    @property
    def seats(self) -> int:
        """Return how many shares of this size all students may have at once."""
        return min(self.at_once, self.students * self.per_user.shares)


@dataclass(frozen=True)
class Listed:
    """A course, or one of its sizes, with its place in the settings."""

    course: Course
    index: int
    size: int | None = None
    own: frozenset[str] = frozenset()

    def writes(self, key: str) -> bool:
        """Tell whether a setting is written here: what a size leaves out is its course's."""
        return self.size is None or key in self.own

    def at(self, key: str, *below: str | int) -> KeyPath:
        """Return where a setting stands."""
        own = ("sizes", self.size) if self.size is not None and self.writes(key) else ()
        return ("bedplate_courses", self.index, *own, key, *below)


def listed(courses: Iterable[Course]) -> Iterator[Listed]:
    """Yield all courses, each followed by its sizes.

    A size has its own queue, in which the course's students wait for it alone: it takes no share of
    those that each of them is promised.
    """
    for index, course in enumerate(courses):
        yield Listed(course, index)
        for number, size in enumerate(course.sizes):
            own = {key: value for key, value in dict(size).items() if value is not None}
            if size.per_user is not None:
                # What it does not write of a person's limits is the course's, as all else.
                limits = size.per_user.model_dump(exclude_unset=True)
                own["per_user"] = course.per_user.model_copy(update=limits)
            whole = {**dict(course), **dict.fromkeys(("memory", "cpus", "shm")), **own}
            whole |= {"name": f"{course.name}-{size.name}", "of": course.name}
            whole |= {"runs_at_once": None, "sizes": []}
            yield Listed(OfSize.model_construct(**whole), index, number, frozenset(own))


class OAuth(Wish):
    """Where users sign in by OAuth; the secret is the stack's configuration.

    `username` and `groups` are the fields of the answer of `userdata_url` that say who it is.
    """

    client_id: Annotated[str, Field(min_length=1)]
    authorize_url: Address
    token_url: Address
    userdata_url: Address
    username: str = "preferred_username"
    groups: str | None = None
    scopes: list[str] = ["openid"]


class Lti(Wish):
    """The learning platform from which users come by LTI 1.3."""

    client_ids: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    issuer: Address
    authorize_url: Address
    keys_url: Address
    username: str = "email"


class Hub(Wish):
    """How users sign in to the hub; `url` is the address at which they reach it.

    `timezone` is that of all courses' hours. `certificate` is a PEM file in the site's directory
    whose path begins with a dot, as `.tls/hub.pem`: with it the hub answers by TLS alone; its key
    is the stack's configuration.
    """

    sign_in: Literal["native", "oauth", "lti"] = "native"
    url: Address | None = None
    timezone: Annotated[str, Field(pattern=ZONE)] = "UTC"
    admins: list[Member] = []
    certificate: OwnFile | None = None
    oauth: OAuth | None = None
    lti: Lti | None = None


class Nfs(Wish):
    """A folder of an NFS server."""

    server: Annotated[str, Field(pattern=SERVER)]
    path: Folder


class Volume(Wish):
    """Where data lies: a folder of the hosts, one of an NFS server, or a web server.

    Of `url` each node keeps what it has read, up to the size `cache`.
    `shared` says that all hosts see the same files below `path`: they mount one file system there.
    """

    path: Folder | None = None
    nfs: Nfs | None = None
    url: Address | None = None
    cache: Memory = "50Gi"
    shared: bool = False


class Storage(Wish):
    """The data of the site: users' homes, and datasets by name, which nobody writes."""

    homes: Volume | None = None
    datasets: dict[Name, Volume] = {}
