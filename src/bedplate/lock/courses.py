"""The decision about courses, the hub and data, as the stacks and the hub read it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of these parts: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Share(Part):
    """What each student's pod asks for: `count` of a resource, or a claim by memory.

    `memory_mib` is there in pools of mode `dra`: the size of the claim, the framework's own memory
    in it. `user_mib` is what is left of the share's memory for the student's program, as far as the
    catalogue says, and `user_part` how much of the whole GPU's memory that is: frameworks that take
    memory in advance are to take no more.
    """

    resource: str
    count: int
    memory_mib: int | None = None
    user_mib: int | None = None
    user_part: float | None = None


class Notebook(Part):
    """What each student's notebook has of its node; what is not known is absent.

    `memory_mib` is requested and limited, `shm_mib` is how much of it /dev/shm may take.
    `cpu_milli` are requested thousandths of a CPU: what others leave idle may be used as well.
    `disk_mib` is requested and limited: what is written outside the home.
    """

    memory_mib: int | None = None
    cpu_milli: int | None = None
    shm_mib: int | None = None
    disk_mib: int | None = None


class PerUser(Part):
    """What a person may have of a course at once: `shares`, notebooks and those on request.

    `time_s` is the longest time of a share on request, in seconds. `hours` are GPU-hours in a week,
    of the course and its sizes together.
    """

    shares: int = 1
    time_s: int | None = None
    hours: float | None = None


class InPool(Part):
    """How many shares of a course are in one more pool."""

    pool: str
    shares: int


class Course(Part):
    """A course. `hours` are weekly, in the site's local time; without any it is always on.

    With `runs_at_once` notebooks have no GPU, and runs in them take as many shares at once.
    One more size of a course is a course with the name of the other in `of`: homes, students and
    hours are the other's, and all students together have `at_once` shares of it.
    `registry_mib` is the size of what its teachers push, where the course has a registry.
    `then` are the pools after `pool`, in the order in which they are filled.
    """

    students: int
    share: Share
    notebook: Notebook = Notebook()
    per_user: PerUser = PerUser()
    runs_at_once: int | None = None
    of: str | None = None
    at_once: int | None = None
    pool: str
    then: list[InPool] = []
    frameworks: list[str] = []
    hours: list[str] = []
    idle_timeout_s: int
    storage_mib: int | None = None
    teachers: list[str] = []
    members: list[str] = []
    datasets: list[str] = []
    material: str | None = None
    registry_mib: int | None = None

    @property
    def seats(self) -> int:
        """Return how many shares all students may have at once."""
        most = self.students * self.per_user.shares
        return min(self.at_once or self.runs_at_once or most, most)

    @property
    def pools(self) -> dict[str, int]:
        """Return how many shares each pool has, in the order in which they are filled."""
        further = {one.pool: one.shares for one in self.then}
        return {self.pool: self.seats - sum(further.values()), **further}


class OAuth(Part):
    """Where users sign in by OAuth."""

    client_id: str
    authorize_url: str
    token_url: str
    userdata_url: str
    username: str
    groups: str | None = None
    scopes: list[str] = []


class Lti(Part):
    """The learning platform from which users come by LTI 1.3."""

    client_ids: list[str]
    issuer: str
    authorize_url: str
    keys_url: str
    username: str


class Hub(Part):
    """How users sign in to the hub, and the address at which they reach it."""

    sign_in: Literal["native", "oauth", "lti"]
    url: str | None = None
    timezone: str = "UTC"
    admins: list[str] = []
    certificate: str | None = None
    oauth: OAuth | None = None
    lti: Lti | None = None


class Nfs(Part):
    """A folder of an NFS server."""

    server: str
    path: str


class Volume(Part):
    """Where data lies. Exactly one of path, nfs and url is there; `cache` is of the last."""

    path: str | None = None
    nfs: Nfs | None = None
    url: str | None = None
    cache: str = "50Gi"
    shared: bool = False


class Storage(Part):
    """Users' homes, and datasets by name."""

    homes: Volume | None = None
    datasets: dict[str, Volume] = {}

    @property
    def of_nfs(self) -> bool:
        """Tell whether the nodes of courses mount folders of an NFS server."""
        return any(one is not None and one.nfs for one in (self.homes, *self.datasets.values()))
