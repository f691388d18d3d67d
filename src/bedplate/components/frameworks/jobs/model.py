"""What a job asks for, before it is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Form = Literal["Job", "JobSet", "VolcanoGang", "MPI", "torchrun"]
FORMS: Final[tuple[str, ...]] = get_args(Form)


@dataclass(frozen=True)
class Volume:
    """A claim of the job's namespace, and where its containers find it."""

    claim: str
    at: str
    read_only: bool = True


@dataclass(frozen=True)
class Request:
    """A job of a team.

    Attributes:
        name: of the job and of what it needs.
        team: whose quota it takes.
        image: what its containers run: an own image by name, or any by digest.
        form: how its pods belong together.
        command: what they run; the image's own where it is empty.
        pods: how many, one after the other on nodes as they have room.
        gpus: whole GPUs of each pod.
        shares: shares of GPUs of each pod, in a pool that divides its GPUs.
        processes: processes in each pod, of MPI and torchrun; by default one for each GPU.
        pool: whose nodes it runs on; the only one that the team has a quota of by default.
        resource: which of the pool's resources, where its GPUs are cut in several ways.
        namespace: one of the team's; the first by default.
        seconds: how long it may run; what waits in the queue is not counted.
        volumes: data.
        environment: further variables of the containers.
        framework: NAME or NAME-VERSION of a build that the pool must have: its image runs
            where none is named.
    """

    name: str
    team: str
    image: str = ""
    form: str = "Job"
    command: tuple[str, ...] = ()
    pods: int = 1
    gpus: int = 0
    shares: int = 0
    processes: int | None = None
    pool: str | None = None
    resource: str | None = None
    namespace: str | None = None
    seconds: int | None = None
    volumes: tuple[Volume, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    framework: str | None = None

    @property
    def devices(self) -> int:
        """Return how many of the pool's resource each pod asks for."""
        return self.gpus or self.shares

    @property
    def ranks_per_pod(self) -> int:
        """Return the processes in each pod: as many as GPUs, and one where GPUs are shared."""
        return self.processes or max(1, self.gpus)
