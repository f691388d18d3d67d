"""The settings of teams, and of how their work waits and is placed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bedplate.presets.model import (
    ClassName,
    Order,
    Pods,
    Preemption,
    PresetName,
    Priority,
    Reclaim,
    TopologyUse,
)
from bedplate.site.courses import IDLE
from bedplate.site.patterns import Member, Memory, Name, PoolName, Wish


class PerContainer(Wish):
    """What a container has of its node where its own manifest does not say it.

    `memory` and `disk` are requested and limited, `cpus` are requested.
    """

    memory: Memory | None = None
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    disk: Memory | None = None


class SizeQuota(Wish):
    """A team's part of one size of a pool.

    `borrow` is how much more of it the team may use while others leave it idle; left out, the
    preset decides.
    """

    guaranteed: Annotated[int, Field(ge=0, le=1_000_000)]
    borrow: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


class Quota(Wish):
    """A team's part of a pool, in what the pool offers: GPUs, or shares of them.

    A pool of several sizes has a quota for each in `sizes`, by MIG profile; `gpu` is a whole one.
    """

    guaranteed: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    borrow: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    sizes: dict[str, SizeQuota] = {}


class PerRequest(Wish):
    """What one request of a team's member has at most: a job, a pod, a share, a remote claim.

    `gpus` are GPUs, or shares of them, as the quota counts, of all pods of the request together.
    `time` is how long it runs; a request that says no time has this one.
    """

    gpus: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    time: Annotated[str, Field(pattern=IDLE)] | None = None


class Team(Wish):
    """Who shares a quota; the namespaces are its own, and by default one of the team's name."""

    namespaces: list[Name] = []
    members: list[Member] = []
    gpus: dict[PoolName, Quota]
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    priority: Priority = 0
    per_request: PerRequest = PerRequest()
    per_container: PerContainer = PerContainer()


class QueueChange(Wish):
    """Values of a preset's queue to take in place of its own."""

    order: Order | None = None
    borrowing: bool | None = None
    reclaim: Reclaim | None = None
    preemption: Preemption | None = None
    fair_sharing: bool | None = None


class PlacementChange(Wish):
    """Values of a preset's placement to take in place of its own."""

    pods: Pods | None = None
    gang: bool | None = None
    topology: TopologyUse | None = None
    extender: bool | None = None


class PresetChoice(Wish):
    """A preset by its name, with single values changed; `priorities` are added to its own."""

    name: PresetName
    queue: QueueChange = QueueChange()
    placement: PlacementChange = PlacementChange()
    priorities: dict[ClassName, Priority] = {}
