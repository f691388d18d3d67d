"""Values and objects of schedulers whose charts nobody has run here: KAI, HAMi and Koordinator.

Rendered from the lock and compared with the fields that the makers publish; that they do what they
say is unproved. Pure functions. Fields as read on 2026-11-25: KAI-Scheduler's chart and its
definitions `queues.scheduling.run.ai` (v2) and `topologies.kai.scheduler`, HAMi's chart 2.10.0,
Koordinator's manual of elastic quotas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bedplate.schedulers.topology import HOST, LABELS, SHARING_LABEL, places
from bedplate.schedulers.volcano_objects import ABOUT, preset_of, quotas
from bedplate.site.membership import NODES
from bedplate.stackrefs import MANAGED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bedplate.lock import Lock
    from bedplate.lock.model import Team

GPU: Final = "nvidia.com/gpu"
UNLIMITED: Final = -1
#: KAI's own priority of a queue that names none.
KAI_PRIORITY: Final = 100
ROOT: Final = "bedplate"
HAMI: Final = "hami"


@dataclass(frozen=True)
class Rendered:
    """What is given to a chart, and what is made once its definitions are there.

    Attributes:
        namespace: where the chart is installed.
        values: the chart's values that differ from its own.
        objects: in the order in which they are made.
    """

    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)
    objects: tuple[dict[str, Any], ...] = ()


def kai(lock: Lock) -> Rendered:
    """Return KAI's values, a queue for each team below one of all, and the topology.

    KAI only counts fractions of a GPU: that is switched off.
    """
    preset = preset_of(lock)
    actions = ["allocate"]
    if preset.placement.pods == "binpack":
        actions.append("consolidation")
    if preset.queue.reclaim != "Never":
        actions.append("reclaim")
    if preset.queue.preemption != "Never":
        actions.append("preempt")
    values = {
        "global": {"gpuSharing": False},
        "scheduler": {
            "placementStrategy": preset.placement.pods,
            "actions": [*actions, "stalegangeviction"],
        },
        "admission": {"gpuPodRuntimeClassName": "nvidia"},
        "defaultQueue": {"createDefaultQueue": False},
    }
    known = places(lock, {})
    levels = [*(LABELS[level] for level in known.levels), HOST]
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": _metadata(ROOT, "Levels of the network, from the widest to the host."),
        "spec": {"levels": [{"nodeLabel": label} for label in levels]},
    }
    teams = _teams(lock)
    queues = [_kai_queue(ROOT, "All teams.", None, _kai_resources(None, 1.0))] if teams else []
    queues += [
        _kai_queue(
            name,
            f"Queue of team {name}.",
            KAI_PRIORITY + team.priority,
            _kai_resources(team, team.weight),
        )
        for name, team in sorted(teams.items())
    ]
    return Rendered("kai-scheduler", values, (topology, *queues))


def _kai_queue(
    name: str, about: str, priority: int | None, resources: dict[str, Any]
) -> dict[str, Any]:
    below = {"parentQueue": ROOT, "priority": priority} if priority is not None else {}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": _metadata(name, about),
        "spec": {"displayName": name, **below, "resources": resources},
    }


def _kai_resources(team: Team | None, weight: float) -> dict[str, Any]:
    free = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    if team is None:
        return {"cpu": free, "memory": free, "gpu": free}
    guaranteed, most = quotas(team)
    gpu = {
        "quota": guaranteed.get(GPU, 0),
        # A team without a quota of GPUs has none of them.
        "limit": most.get(GPU, UNLIMITED if GPU in guaranteed else 0),
        "overQuotaWeight": weight,
    }
    return {"cpu": free, "memory": free, "gpu": gpu}


def hami(lock: Lock) -> Rendered:
    """Return HAMi's values: its plugin on nodes of the mode hami only, and the shares of each."""
    preset = preset_of(lock)
    nodes = [
        {
            "name": name,
            "operatingmode": "hami-core",
            "devicememoryscaling": 1,
            "devicesplitcount": lock.pools[host.pool].sharing.replicas or 1,
            "migstrategy": "none",
            "filterdevices": {"uuid": [], "index": []},
        }
        for name, host in sorted(lock.hosts.items())
        if host.pool is not None
        and set(NODES) & set(host.groups)
        and lock.pools[host.pool].sharing.mode == HAMI
    ]
    version = lock.cluster.kubernetes.version if lock.cluster else ""
    values = {
        "global": {"imageTag": f"v{_version(lock, HAMI)}", "labels": dict(MANAGED)},
        "scheduler": {
            "defaultSchedulerPolicy": {
                "nodeSchedulerPolicy": preset.placement.pods,
                "gpuSchedulerPolicy": preset.placement.pods,
            },
            "kubeScheduler": {
                "image": {
                    "registry": "registry.k8s.io",
                    "repository": "kube-scheduler",
                    "tag": f"v{version}",
                }
            },
            # It knows nodes with its plugin alone: pods of other pools must not go there.
            "forceOverwriteDefaultScheduler": all(
                pool.sharing.mode == HAMI for pool in lock.pools.values() if pool.gpu
            ),
        },
        "devicePlugin": {
            # Memory and compute are never promised twice.
            "deviceMemoryScaling": 1,
            "deviceCoreScaling": 1,
            "nodeConfiguration": {"config": json.dumps({"nodeconfig": nodes}, indent=2)},
            "nvidiaNodeSelector": {SHARING_LABEL: HAMI},
            "runtimeClassName": "nvidia",
            "createRuntimeClass": False,
        },
    }
    return Rendered("kube-system", values)


def koordinator(lock: Lock) -> Rendered:
    """Return an elastic quota for each team; the chart's own values are left as they are."""
    return Rendered(
        "koordinator-system",
        {},
        tuple(
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": _quota_metadata(name, team),
                "spec": _quota(lock, team),
            }
            for name, team in sorted(_teams(lock).items())
        ),
    )


def _quota_metadata(name: str, team: Team) -> dict[str, Any]:
    group = "quota.scheduling.koordinator.sh"
    metadata = _metadata(name, f"Quota of team {name}.")
    guaranteed, _ = quotas(team)
    shared = {resource: str(team.weight) for resource in sorted(guaranteed)}
    return {
        **metadata,
        "namespace": "koordinator-system",
        "labels": {**metadata["labels"], f"{group}/is-parent": "false"},
        "annotations": {
            **metadata["annotations"],
            f"{group}/namespaces": json.dumps(team.namespaces),
            f"{group}/shared-weight": json.dumps(shared),
        },
    }


def _quota(lock: Lock, team: Team) -> dict[str, Any]:
    guaranteed, most = quotas(team)
    offered = _offered(lock)
    return {
        "min": {name: str(count) for name, count in guaranteed.items()},
        "max": {name: str(most.get(name, offered.get(name, 0))) for name in guaranteed},
    }


def _offered(lock: Lock) -> dict[str, int]:
    """Return how many of each resource all nodes offer together."""
    offered: dict[str, int] = {}
    for host in lock.hosts.values():
        expects = lock.pools[host.pool].expects if host.pool is not None else None
        if expects and set(NODES) & set(host.groups):
            for resource, count in {expects.resource: expects.count, **expects.also}.items():
                offered[resource] = offered.get(resource, 0) + count
    return offered


def _teams(lock: Lock) -> Mapping[str, Team]:
    return lock.cluster.teams if lock.cluster else {}


def _version(lock: Lock, addon: str) -> str:
    addons = lock.cluster.addons if lock.cluster else []
    return next((one.version for one in addons if one.name == addon), "")


def _metadata(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "labels": dict(MANAGED), "annotations": {ABOUT: about}}


#: By add-on.
RENDERED: Final[Mapping[str, Callable[[Lock], Rendered]]] = {
    "kai-scheduler": kai,
    HAMI: hami,
    "koordinator": koordinator,
}
