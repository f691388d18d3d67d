"""The kinds of fact about sharing a GPU: modes, and the limits of MPS and MIG."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.catalogue.facts import Branch, ComputeCapability, Value, Version


class MpsLimit(Value):
    """How many clients one device's MPS server takes, by the CUDA version of the driver.

    Where it is `by` the device plugin, it is how many replicas that offers of a board, whatever the
    server takes: on nodes of Kubernetes alone, by the board's compute capability.
    """

    limit: str
    by: Literal["driver", "device-plugin"] = "driver"
    cuda_from: Version | None = None
    cuda_upto: Version | None = None
    capability_from: ComputeCapability | None = None
    capability_upto: ComputeCapability | None = None
    clients: int


class MpsEffect(Value):
    """What clients of MPS on one GPU do to each other, whatever their limits.

    `one-user`: those of another user wait. `shared-faults`: a fault of one ends all.
    """

    effect: Literal["one-user", "shared-faults"]


class UnmeasuredMode(Value):
    """A sharing mode in which nothing says which process used a GPU, and so which share is idle."""

    mode: Literal["none", "time-slicing", "mps", "mig", "hami", "dra"]


class MemoryReserve(Value):
    """GPU memory that no program has: `percent` of a GPU, or `mebibytes` of each process.

    `reserve` is `gpu`, `cuda` for a process that has loaded nothing else, or a framework; with a
    dash and an architecture after it where that was measured, as in `cuda-hopper`.
    """

    reserve: str
    percent: Annotated[int, Field(ge=0, le=50)] | None = None
    mebibytes: Annotated[int, Field(ge=0)] | None = None


class MigGeometry(Value):
    """How many instances of a profile one board of any of the models holds.

    An instance takes `size` of the board's memory slices in a row, from one of the `starts` on;
    where they are not known, nothing can be said of it together with other profiles.
    """

    geometry: str
    models: Annotated[list[str], Field(min_length=1)]
    profile: str
    instances: Annotated[int, Field(ge=1)]
    size: Annotated[int, Field(ge=1)] | None = None
    starts: tuple[Annotated[int, Field(ge=0)], ...] = ()


class MigCondition(Value):
    """What a GPU needs before MIG can be enabled: a display mode, and its VBIOS at least."""

    model: str
    display_mode: Literal["compute"] | None = None
    firmware_from: str | None = None


#: What holds a share back: the scheduler's sum alone, software, or the hardware.
Word = Literal["counted", "limited", "isolated"]


class SharingMode(Value):
    """What holds back a share's memory and compute in a mode, and what else it gives.

    Where it depends on the driver's branch, a mode has a fact for each range. `limits` is for the
    mode with limits that the setting isolation asks for; those need `cgroup` and `toolkit_from`.
    `lifted_by` is who gets round a limit: any program of a share, one that is root, or one for its
    own share alone, by memory that CUDA manages.
    `shares` is how many one GPU has, in words; `replicas_from` the fewest that can be asked for.
    An encoder or decoder is the pod's own, shared with the others, or as the MIG profile has it.
    """

    sharing: str
    mode: Literal["none", "time-slicing", "mps", "mig", "hami", "dra"]
    limits: bool = False
    branch_from: Branch | None = None
    branch_upto: Branch | None = None
    memory: Word
    compute: Word
    lifted_by: Literal["any-client", "root", "managed-memory"] | None = None
    sizes: Literal["whole", "one", "geometry", "any"]
    shares: str
    replicas_from: int | None = None
    encoder: Literal["own", "shared", "profile"]
    decoder: Literal["own", "shared", "profile"]
    resource: str
    mixed_resource: str | None = None
    cgroup: Literal[1, 2] | None = None
    toolkit_from: Version | None = None
