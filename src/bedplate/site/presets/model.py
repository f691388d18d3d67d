"""The form of a preset. Each is a file beside this one, with the preset's name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

PresetName = Literal["training", "inference", "classroom", "research", "batch-hpc"]
Order = Literal["StrictFIFO", "BestEffortFIFO"]
Reclaim = Literal["Never", "LowerPriority", "Any"]
Preemption = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
Pods = Literal["binpack", "spread"]
TopologyUse = Literal["none", "preferred", "required"]
#: Kubernetes keeps larger numbers for its own priority classes.
Priority = Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)]
ClassName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class Part(BaseModel):
    """Base of all parts: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Queue(Part):
    """How workloads wait.

    Attributes:
        order: StrictFIFO lets nobody pass who asks for less; BestEffortFIFO does.
        borrowing: a team without a limit of its own may use what others leave idle.
        reclaim: whose borrowed GPUs are given back when their team asks for them.
        preemption: which workloads of one's own team have to make room.
        fair_sharing: what is borrowed is divided by the teams' weights.
    """

    order: Order = "BestEffortFIFO"
    borrowing: bool = True
    reclaim: Reclaim = "Any"
    preemption: Preemption = "LowerPriority"
    fair_sharing: bool = False


class Placement(Part):
    """Where pods go.

    Attributes:
        pods: binpack keeps whole nodes free, spread uses as many nodes as it can.
        gang: the pods of a workload start together or not at all.
        topology: whether a workload is to stay below one switch.
        extender: fractions of GPUs are placed by Bedplate's extender of kube-scheduler.
    """

    pods: Pods = "binpack"
    gang: bool = False
    topology: TopologyUse = "none"
    extender: bool = False


class Preset(Part):
    """Values for one kind of use; `schedulers` are the add-ons that it brings."""

    name: str
    description: str = ""
    schedulers: list[str] = []
    queue: Queue = Queue()
    placement: Placement = Placement()
    priorities: dict[ClassName, Priority] = {}


#: What holds where schedulers are there and no preset was chosen.
PLAIN = Preset(name="plain", description="The values of a site that has chosen no preset.")


@cache
def load_presets() -> dict[str, Preset]:
    """Return the presets by name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.yml")):
        found[path.stem] = Preset(name=path.stem, **yaml.safe_load(path.read_text()))
    return found
