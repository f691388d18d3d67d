"""The settings of teams, and of how their work waits and is placed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bedplate.site.courses import IDLE
from bedplate.site.patterns import Member, Memory, Name, PoolName, Wish
from bedplate.site.presets.model import (
    ClassName,
    Order,
    Pods,
    Preemption,
    PresetName,
    Priority,
    Reclaim,
    TopologyUse,
)


class PerContainer(Wish):
    """What a container has of its node where its own manifest does not say it."""

    memory: Memory | None = None
    """Memory of the host that is requested and limited. Unit: bytes. Left out: no default. Example:
    `16Gi`"""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """CPUs of the host that are requested. Unit: CPUs. Left out: no default. Example: `4`"""
    disk: Memory | None = None
    """Disk of the node, without volumes, that is requested and limited. Unit: bytes. Left out: no
    default. Example: `50Gi`"""


class PerPod(Wish):
    """The most of its node that one pod of a team has, its containers together."""

    memory: Memory | None = None
    """Memory of the host, with what lies in /dev/shm. Unit: bytes. Left out: no limit. Example:
    `64Gi`"""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """CPUs of the host. Unit: CPUs. Left out: no limit. Example: `16`"""
    disk: Memory | None = None
    """Disk of the node, without volumes. Unit: bytes. Left out: no limit. Example: `200Gi`"""


class SizeQuota(Wish):
    """A team's part of one size of a pool."""

    guaranteed: Annotated[int, Field(ge=0, le=1_000_000)]
    """What the team always gets. Unit: instances. Example: `12`"""
    borrow: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """How many more the team may use while others leave them idle. Unit: instances. Left out: no
    limit where the preset allows borrowing, else 0. Example: `4`"""


class Quota(Wish):
    """A team's part of a pool."""

    guaranteed: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """What the team always gets, in what the pool offers. Unit: GPUs, or shares of them. Left out:
    `sizes` says it. Example: `16`"""
    borrow: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """How many more the team may use while others leave them idle. Unit: GPUs, or shares of them.
    Left out: no limit where the preset allows borrowing, else 0. Example: `8`"""
    sizes: dict[str, SizeQuota] = {}
    """A quota for each size of a pool with several, by MIG profile; `gpu` is a whole one. Example:
    `{1g.10gb: {guaranteed: 12}}`"""


class PerRequest(Wish):
    """What one request of a team's member has at most: a job, a pod, a share, a remote claim."""

    gpus: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The most that all pods of one request have together. Unit: GPUs, or shares of them. Left out:
    no limit. Example: `4`"""
    time: Annotated[str, Field(pattern=IDLE)] | None = None
    """The longest time that one request runs; a request that says no time has this one. Unit: s, m
    or h. Left out: no limit. Example: `8h`"""


class TeamPerUser(Wish):
    """What one member of a team has, all requests together."""

    gpus: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The most that all requests of one member have together; further ones wait. Unit: GPUs, or
    shares of them. Left out: no limit. Example: `8`"""
    hours: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """The most that one member uses in a week from Monday on, UTC; then further requests wait until
    Monday, and what runs goes on. A share counts as its part. Unit: GPU-hours. Left out: no limit.
    Example: `40`"""


class Team(Wish):
    """Who shares a quota."""

    namespaces: list[Name] = []
    """The team's namespaces, which no other team has. Left out: one with the team's name. Example:
    `[audio, speech]`"""
    members: list[Member] = []
    """Users, and groups as `group:NAME`, as the API server knows them. Example: `[alice,
    "group:students"]`"""
    gpus: dict[PoolName, Quota]
    """The team's quota of each pool that it may use, in the order in which its work tries them.
    Example: `{pool_train: {guaranteed: 16}}`"""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """The team's part of what is idle, where the preset divides that by weights. Unit: parts.
    Example: `2`"""
    priority: Priority = 0
    """The priority of work that names no class; larger comes first. Unit: points. Example: `100`"""
    per_request: PerRequest = PerRequest()
    """The most that one job, pod, share or remote claim may be. Example: `{gpus: 4, time: 8h}`"""
    per_user: TeamPerUser = TeamPerUser()
    """The most that one member has; what is above it waits. Example: `{gpus: 8, hours: 40}`"""
    per_container: PerContainer = PerContainer()
    """What each container has of its node where its manifest does not say it. Example: `{memory:
    16Gi, disk: 50Gi}`"""
    per_pod: PerPod = PerPod()
    """The most of its node that one pod has. Example: `{memory: 64Gi, cpus: 16}`"""
    idle_timeout: Annotated[str, Field(pattern=IDLE)] | None = None
    """After how long jobs, pods, Deployments, shares and remote claims end whose GPUs do nothing.
    Unit: s, m or h. Left out: none ends by it. Example: `2h`"""


class QueueChange(Wish):
    """Values that replace those of a preset's queue."""

    order: Order | None = None
    """Whether smaller work may pass larger work that waits (`BestEffortFIFO`) or not
    (`StrictFIFO`). Left out: the preset's. Example: `StrictFIFO`"""
    borrowing: bool | None = None
    """Whether a team without a `borrow` of its own may use what others leave idle. Left out: the
    preset's. Example: `false`"""
    reclaim: Reclaim | None = None
    """Which borrowed GPUs a team may reclaim up to its guarantee. Left out: the preset's. Example:
    `LowerPriority`"""
    preemption: Preemption | None = None
    """Which work of the same team is stopped for more urgent work. Left out: the preset's. Example:
    `Never`"""
    fair_sharing: bool | None = None
    """Whether borrowed GPUs are divided by the teams' weights. Left out: the preset's. Example:
    `true`"""


class PlacementChange(Wish):
    """Values that replace those of a preset's placement."""

    pods: Pods | None = None
    """Whether pods fill nodes one after the other, or spread over them. Left out: the preset's.
    Example: `spread`"""
    gang: bool | None = None
    """Whether the pods of a workload start together or not at all. Left out: the preset's. Example:
    `true`"""
    topology: TopologyUse | None = None
    """Whether a workload has to stay below one switch. Left out: the preset's. Example:
    `preferred`"""
    extender: bool | None = None
    """Whether Bedplate's extender of kube-scheduler places shares of GPUs. Left out: the preset's.
    Example: `true`"""


class PresetChoice(Wish):
    """A preset by its name, with single values changed."""

    name: PresetName
    """The preset: what the cluster is for. Example: `research`"""
    queue: QueueChange = QueueChange()
    """Changes of how work waits. Example: `{borrowing: false}`"""
    placement: PlacementChange = PlacementChange()
    """Changes of where pods go. Example: `{pods: spread}`"""
    priorities: dict[ClassName, Priority] = {}
    """Priority classes in addition to the preset's, by name; larger comes first. Unit: points.
    Example: `{urgent: 1000}`"""
