"""Fields of objects and values that makers publish, as far as we write them: nothing else passes.

Read on 2026-11-25, each at its maker's repository:
KAI-Scheduler deployments/kai-scheduler (values.yaml, crds/scheduling.run.ai_queues.yaml,
crds/kai.scheduler_topologies.yaml), HAMi charts/hami/values.yaml of 2.10.0, Koordinator's
docs/user-manuals/multi-hierarchy-elastic-quota-management.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Nothing unknown."""

    model_config = ConfigDict(extra="forbid")


class Amount(Part):
    """KAI: a quota, -1 without a limit."""

    quota: float
    limit: float
    overQuotaWeight: float  # noqa: N815 - theirs


class Amounts(Part):
    """KAI: of a queue."""

    cpu: Amount
    memory: Amount
    gpu: Amount


class KaiQueueSpec(Part):
    """KAI: a queue."""

    displayName: str  # noqa: N815 - theirs
    parentQueue: str | None = None  # noqa: N815 - theirs
    priority: int | None = None
    resources: Amounts


class Level(Part):
    """KAI: a level."""

    nodeLabel: Annotated[str, Field(min_length=1, max_length=316)]  # noqa: N815 - theirs


class KaiTopologySpec(Part):
    """KAI: a topology."""

    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]


Quantity = Annotated[str, Field(pattern=r"^[0-9]+$")]


class ElasticQuotaSpec(Part):
    """Koordinator: a quota."""

    min: dict[str, Quantity]
    max: dict[str, Quantity]


SPECS: dict[tuple[str, str], type[Part]] = {
    ("scheduling.run.ai/v2", "Queue"): KaiQueueSpec,
    ("kai.scheduler/v1alpha1", "Topology"): KaiTopologySpec,
    ("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota"): ElasticQuotaSpec,
}

KaiAction = Literal["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
Placement = Literal["binpack", "spread"]


class KaiScheduler(Part):
    """KAI: values of its scheduler."""

    placementStrategy: Placement  # noqa: N815 - theirs
    actions: list[KaiAction]


class KaiValues(BaseModel):
    """KAI: values of its chart."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    of_all: Annotated[dict[Literal["gpuSharing"], bool], Field(alias="global")]
    scheduler: KaiScheduler
    admission: dict[Literal["gpuPodRuntimeClassName"], str]
    defaultQueue: dict[Literal["createDefaultQueue"], bool]  # noqa: N815 - theirs


class HamiNode(Part):
    """HAMi: a node of its plugin's configuration."""

    name: str
    operatingmode: Literal["hami-core", "mig"]
    devicememoryscaling: float
    devicesplitcount: Annotated[int, Field(gt=0)]
    migstrategy: Literal["none", "single", "mixed"]
    filterdevices: dict[Literal["uuid", "index"], list[Any]]


class HamiPlugin(Part):
    """HAMi: values of its plugin."""

    deviceMemoryScaling: float  # noqa: N815 - theirs
    deviceCoreScaling: float  # noqa: N815 - theirs
    nodeConfiguration: dict[Literal["config"], str]  # noqa: N815 - theirs
    nvidiaNodeSelector: dict[str, str]  # noqa: N815 - theirs
    runtimeClassName: str  # noqa: N815 - theirs
    createRuntimeClass: bool  # noqa: N815 - theirs


class HamiScheduler(Part):
    """HAMi: values of its scheduler."""

    defaultSchedulerPolicy: dict[  # noqa: N815 - theirs
        Literal["nodeSchedulerPolicy", "gpuSchedulerPolicy"], Placement
    ]
    kubeScheduler: dict[  # noqa: N815 - theirs
        Literal["image"], dict[Literal["registry", "repository", "tag"], str]
    ]
    forceOverwriteDefaultScheduler: bool  # noqa: N815 - theirs


class HamiGlobal(Part):
    """HAMi: values of all parts."""

    imageTag: str  # noqa: N815 - theirs
    labels: dict[str, str]


class HamiValues(BaseModel):
    """HAMi: values of its chart."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    of_all: Annotated[HamiGlobal, Field(alias="global")]
    scheduler: HamiScheduler
    devicePlugin: HamiPlugin  # noqa: N815 - theirs


class NoValues(Part):
    """Koordinator: none."""


VALUES: dict[str, type[BaseModel]] = {
    "kai-scheduler": KaiValues,
    "hami": HamiValues,
    "koordinator": NoValues,
}
