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
    Pools,
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
    """GPU memory that a student's program can use; what the framework itself takes is added. Unit:
    bytes. Example: `2Gi`"""


class StudentGpus(Wish):
    """Whole GPUs, or whole instances of MIG, for each student."""

    gpus: Annotated[int, Field(ge=1, le=64)]
    """Whole GPUs, or whole MIG instances. Unit: GPUs. Example: `1`"""


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
    """What a person may have of a course at once."""

    shares: Annotated[int, Field(ge=1, le=16)] = 1
    """Notebooks and shares on request together; with `runs_at_once`, runs alone. The plan proves
    room for as many for each student. Unit: shares. Example: `2`"""
    time: Annotated[str, Field(pattern=IDLE)] | None = None
    """The longest time of a share on request. Unit: s, m or h. Left out: the lesson's. Example:
    `2h`"""


class CoursePerUser(PerUser):
    """What a person may have of a course: at once, and in a week."""

    hours: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """The most that a person uses in a week from Monday on, UTC, all sizes together; then nothing
    more is started until Monday, and what runs goes on. A share counts as its part of the GPU.
    Unit: GPU-hours. Left out: no limit. Example: `5`"""


class Size(Wish):
    """One more size of share in a course, for students who need more at times."""

    name: Name
    """The size's name, which follows the course's in the name of its queue and namespace. Example:
    `large`"""
    share: Share
    """What one share of this size is: a part of a GPU, GPU memory as `{memory: 8Gi}`, or whole GPUs
    as `{gpus: 1}`. Unit: GPUs. Example: `0.5`"""
    at_once: Annotated[int, Field(ge=1, le=100_000)]
    """How many shares of this size all students hold at most; the plan proves room for them. Unit:
    shares. Example: `2`"""
    pool: Pools | None = None
    """The pool that this size is in, or several. Left out: the course's. Example: `pool_large`"""
    frameworks: list[Named] | None = None
    """The frameworks that students choose from. Left out: the course's. Example: `[pytorch]`"""
    per_user: PerUser | None = None
    """What a person may have of this size. Left out: the course's. Example: `{time: 1h}`"""
    memory: Memory | None = None
    """Memory of the host for each notebook. Unit: bytes. Left out: the share's part of the host,
    where `bedplate_host` says what it has. Example: `64Gi`"""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """CPUs of the host for each notebook. Unit: CPUs. Left out: the share's part of the host, where
    `bedplate_host` says what it has. Example: `16`"""
    shm: Memory | None = None
    """How much of that memory /dev/shm may take. Unit: bytes. Left out: half of it. Example:
    `16Gi`"""
    disk: Memory | None = None
    """The most that a notebook writes to its node outside the home. Unit: bytes. Left out: the
    course's. Example: `100Gi`"""


class Registry(Wish):
    """A registry of a course, to which its teachers push images."""

    size: Memory
    """The most that its images have together; it is counted, and no space is reserved. Unit: bytes.
    Example: `20Gi`"""


class Course(Wish):
    """A course: its students, and what each of them gets while it takes place."""

    name: Name
    """The course's name, also that of its team, queue and namespace. Example: `intro`"""
    students: Annotated[int, Field(ge=1, le=100_000)]
    """How many students the course has; the plan proves room for all of them. Unit: students.
    Example: `36`"""
    share: Share
    """What each student gets: a part of a GPU, GPU memory as `{memory: 2Gi}`, or whole GPUs as
    `{gpus: 1}`. Unit: GPUs. Example: `0.1`"""
    pool: Pools
    """The pool that the course is in, or several, in the order in which they are filled. Example:
    `[pool_new, pool_old]`"""
    frameworks: list[Named] = []
    """The frameworks that students choose from, also images of `bedplate_images`. Example:
    `[jax]`"""
    hours: list[Annotated[str, Field(pattern=HOURS)]] = []
    """Weekly lessons in `bedplate_hub.timezone`. Left out: the course takes place always. Example:
    `["Mon 10:00-12:00", "Thu 14:00-16:00"]`"""
    idle_timeout: Annotated[str, Field(pattern=IDLE)] = "30m"
    """After how long a server that does nothing is stopped. Unit: s, m or h. Example: `1h`"""
    storage: Memory | None = None
    """Size of each student's home, which stays; it is planned and not enforced. Unit: bytes. Left
    out: students have no home. Example: `2Gi`"""
    memory: Memory | None = None
    """Memory of the host for each notebook. Unit: bytes. Left out: the share's part of the host,
    where `bedplate_host` says what it has. Example: `8Gi`"""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """CPUs of the host for each notebook. Unit: CPUs. Left out: the share's part of the host, where
    `bedplate_host` says what it has. Example: `2`"""
    shm: Memory | None = None
    """How much of that memory /dev/shm may take. Unit: bytes. Left out: half of it. Example:
    `4Gi`"""
    disk: Memory | None = None
    """The most that a notebook or share writes to its node outside the home. Unit: bytes. Left out:
    no limit. Example: `20Gi`"""
    per_user: CoursePerUser = CoursePerUser()
    """What a person may have of the course. Example: `{shares: 2, time: 2h, hours: 5}`"""
    runs_at_once: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """How many runs hold a share at once, where notebooks hold no GPU and runs queue. Unit: shares.
    Left out: each notebook holds a share. Example: `10`"""
    sizes: list[Size] = []
    """Larger or other shares, of which there are fewer than students. Example: `[{name: large,
    share: 0.5, at_once: 2}]`"""
    teachers: list[Member] = []
    """Who may do in the course's namespace what members of a team may. Example: `[ada]`"""
    members: list[Member] = []
    """The students, as users and as `group:NAME`. Left out: who knows the course's code. Example:
    `["group:students"]`"""
    datasets: list[Name] = []
    """Datasets of `bedplate_storage` that notebooks have, read-only. Example: `[mnist]`"""
    material: Annotated[str, Field(pattern=GIT)] | None = None
    """A Git repository that each home gets, with `#BRANCH` where it is not the default one. Left
    out: none. Example: `https://git.example.org/intro.git#autumn`"""

    registry: Registry | None = None
    """Where its teachers push images, at the hub. Left out: they push to a registry of the site.
    Example: `{size: 20Gi}`"""

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
            whole |= {"runs_at_once": None, "sizes": [], "registry": None}
            yield Listed(OfSize.model_construct(**whole), index, number, frozenset(own))


class OAuth(Wish):
    """Where users sign in by OAuth."""

    client_id: Annotated[str, Field(min_length=1)]
    """The hub's identifier at the provider; its secret is configuration of the stack. Example:
    `hub`"""
    authorize_url: Address
    """The provider's page at which users sign in. Example: `https://id.example/authorize`"""
    token_url: Address
    """The provider's address of tokens. Example: `https://id.example/token`"""
    userdata_url: Address
    """The provider's address that says who the user is. Example: `https://id.example/userinfo`"""
    username: str = "preferred_username"
    """The field of that answer with the user's name. Example: `email`"""
    groups: str | None = None
    """The field of that answer with the user's groups. Left out: no group is read. Example:
    `groups`"""
    scopes: list[str] = ["openid"]
    """The scopes that the hub asks for. Example: `[openid, profile]`"""


class Lti(Wish):
    """The learning platform from which users come by LTI 1.3."""

    client_ids: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    """The hub's identifiers at the learning platform. Example: `["10000000000001"]`"""
    issuer: Address
    """The learning platform's address, by which it signs. Example: `https://learn.example`"""
    authorize_url: Address
    """The platform's page at which users sign in. Example: `https://learn.example/authorize`"""
    keys_url: Address
    """The platform's public keys. Example: `https://learn.example/keys`"""
    username: str = "email"
    """The field of the platform's message with the user's name. Example: `sub`"""


class Hub(Wish):
    """How users sign in to the hub, and where they reach it."""

    sign_in: Literal["native", "oauth", "lti"] = "native"
    """By accounts of the hub's own, by OAuth, or from a learning platform by LTI 1.3. Example:
    `oauth`"""
    url: Address | None = None
    """The address at which users reach the hub. Left out: the address of the first control plane,
    as the stack exports it. Example: `https://hub.example`"""
    timezone: Annotated[str, Field(pattern=ZONE)] = "UTC"
    """The time zone of all lessons. Example: `Europe/Paris`"""
    admins: list[Member] = []
    """The hub's administrators, as users and as `group:NAME`. Example: `[root-ada]`"""
    certificate: OwnFile | None = None
    """A PEM file of the site with which the hub answers by TLS alone; its path begins with a dot,
    and its key is configuration of the stack. Left out: plain HTTP. Example: `.tls/hub.pem`"""
    oauth: OAuth | None = None
    """The provider, for `sign_in: oauth`. Left out: not used. Example: `{client_id: hub,
    authorize_url: "https://id.example/authorize", token_url: "https://id.example/token",
    userdata_url: "https://id.example/userinfo"}`"""
    lti: Lti | None = None
    """The learning platform, for `sign_in: lti`. Left out: not used. Example: `{client_ids:
    ["10000000000001"], issuer: "https://learn.example", authorize_url:
    "https://learn.example/authorize", keys_url: "https://learn.example/keys"}`"""


class Nfs(Wish):
    """A folder of an NFS server."""

    server: Annotated[str, Field(pattern=SERVER)]
    """The NFS server's name or address. Example: `nfs.example`"""
    path: Folder
    """The folder that it exports. Example: `/export/homes`"""


class Volume(Wish):
    """Where data lies: a folder of the hosts, one of an NFS server, or a web server."""

    path: Folder | None = None
    """A folder of the hosts. Left out: `nfs` or `url` says where. Example: `/srv/homes`"""
    nfs: Nfs | None = None
    """A folder of an NFS server. Left out: `path` or `url` says where. Example: `{server:
    nfs.example, path: /export/homes}`"""
    url: Address | None = None
    """A web server that lists its folders, for datasets. Left out: `path` or `nfs` says where.
    Example: `https://data.example/mnist`"""
    cache: Memory = "50Gi"
    """How much of `url` each node keeps of what it has read. Unit: bytes. Example: `200Gi`"""
    shared: bool = False
    """Whether all hosts see the same files below `path`, on a file system that they all mount.
    Example: `true`"""


class Storage(Wish):
    """The data of the site: users' homes, and datasets by name, which nobody writes."""

    homes: Volume | None = None
    """Where the homes of users lie. Left out: there are none. Example: `{path: /srv/homes}`"""
    datasets: dict[Name, Volume] = {}
    """Datasets by name, which are read-only. Example: `{mnist: {path: /srv/mnist}}`"""
