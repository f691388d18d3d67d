"""The parts that a host is made of, an entry for each role: the one place where it is said.

What decides a part, which checks look at it, when a change of it may be carried out and what that
does to workloads. Site, difference, drift and their tests read it; playbooks are held equal to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What changing a component does to a host that carries workloads.
DRAINED, REBOOTED = "drained", "rebooted"


@dataclass(frozen=True)
class Part:
    """What one role brings. Checks are named by their id, or by their area for all of it.

    ``setting``: what decides the role's variables; empty where that follows from other settings.
    ``areas``: areas of evidence that the role answers for.
    ``changes``: components of the lock that it carries out, each with what changing it does.
    ``of_gpus``: those of them that only hosts with GPUs have, although the whole site decides them.
    ``freed``: those that Docker's containers must have let go.
    ``waits``: on a cluster node it leaves what disturbs workload until the upgrade has drained it.
    ``at_once``: what it does on such a node nevertheless: it disturbs nobody.
    ``waits_in_slurm``: what a node of Slurm keeps until ``slurm.yml`` may drain it.
    ``by_hand``: what no playbook can mend; the check's own text says what to do.
    ``reboots``: what only a reboot brings where the host does not wait for a drain.
    ``reboots_drained``: what only a reboot brings, on a drained node too.
    """

    role: str
    setting: str = ""
    areas: tuple[str, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    of_gpus: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    waits: bool = False
    at_once: tuple[str, ...] = ()
    waits_in_slurm: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    reboots: tuple[str, ...] = ()
    reboots_drained: tuple[str, ...] = ()


#: In the order in which site.yml brings them; reset.yml takes them away in the reverse one.
PARTS = (
    Part(
        "",  # what no role brings: the host itself, its certificates and etcd, its GPUs
        areas=(
            *("certificates", "compute", "etcd", "gpu"),
            *("health", "isolation", "secrets", "updates"),
        ),
        changes={
            "os": (DRAINED, REBOOTED),
            "kind": (DRAINED, REBOOTED),
            "accelerator": (DRAINED, REBOOTED),
        },
        by_hand=("certificates.authorities", "etcd", "gpu", "health", "updates"),
    ),
    Part("host_proxy", "bedplate_proxy", waits=True),
    Part("package_mirror", "bedplate_sources"),
    Part(
        "host_baseline",
        "bedplate_host",
        areas=("baseline", "kernel"),
        changes={"kernel": (DRAINED, REBOOTED)},
        by_hand=(
            "baseline.clock",
            "baseline.headers",
            "baseline.kernel",  # it wants a reboot
            "baseline.later_files",
            "baseline.secure_boot",
            "baseline.signing_key",
        ),
    ),
    Part(
        "nvidia_driver",
        "bedplate_driver or bedplate_pins.nvidia_driver",
        areas=("driver",),
        changes={"nvidia_driver": (DRAINED, REBOOTED)},
        freed=("nvidia_driver",),
        waits=True,
        at_once=("driver.device_nodes", "driver.held", "driver.persistence"),
        waits_in_slurm=(
            "driver.flavour",
            "driver.kept",
            "driver.library",
            "driver.loaded_version",
            "driver.options",
            "driver.packages",
        ),
        by_hand=("driver.kernel",),
        reboots=("driver.loaded_version",),
        reboots_drained=("driver.nouveau",),
    ),
    Part(
        "nvidia_fabric",
        areas=("fabric",),
        changes={"nvidia_fabric": (DRAINED,)},
        freed=("nvidia_fabric",),
        waits=True,
        at_once=("fabric.held",),
        waits_in_slurm=("fabric.foreign", "fabric.packages", "fabric.version"),
    ),
    Part("cuda_toolkit", "bedplate_cuda", areas=("cuda",), by_hand=("cuda.driver_library",)),
    Part(
        "gpu_passthrough",
        "bedplate_passthrough or bedplate_guests",
        areas=("licence", "passthrough"),
        by_hand=("licence.service", "licence.status", "passthrough.groups", "passthrough.iommu"),
        # Of hypervisors, whose guests go down with them.
        reboots=("passthrough.arguments", "passthrough.bound", "passthrough.manager"),
    ),
    Part(
        "rdma",
        "bedplate_rdma",
        areas=("rdma",),
        changes={"rdma": (DRAINED, REBOOTED)},
        waits=True,
        at_once=("rdma.gpudirect", "rdma.nccl", "rdma.pod_devices"),
        by_hand=("rdma.devices", "rdma.ports", "rdma.roce"),
    ),
    Part(
        "gpu_sharing",
        "bedplate_sharing",
        areas=("sharing",),
        changes={"sharing": (DRAINED,)},
        freed=("sharing",),
        waits=True,
        # A daemon of MPS that is not the device plugin's, and what it was told by others.
        by_hand=("sharing.mps", "sharing.mps_limits", "sharing.mps_memory"),
    ),
    Part("hpc_tools", "bedplate_hpc_tools", areas=("hpc",), by_hand=("hpc.mpi",)),
    Part(
        "container_runtime",
        "bedplate_container_runtime or bedplate_sources or bedplate_pins.containerd",
        areas=("runtime",),
        changes=dict.fromkeys(("containerd", "cri_o", "docker", "runc"), (DRAINED,)),
        freed=("docker",),
        waits=True,
        at_once=("runtime.held",),
    ),
    Part(
        "nvidia_container_toolkit",
        "bedplate_pins.nvidia_container_toolkit",
        areas=("cdi", "devices", "toolkit"),
        changes={"nvidia_container_toolkit": (DRAINED,)},
        of_gpus=("nvidia_container_toolkit",),
        waits=True,
        at_once=("cdi", "devices"),
        by_hand=("cdi.other_files",),
    ),
    Part(
        "kubernetes_node",
        "bedplate_kubernetes or bedplate_container_runtime",
        areas=("kubelet",),
        changes={"kubernetes": (DRAINED,)},
        waits=True,
    ),
    Part("control_plane_endpoint", "bedplate_kubernetes.endpoint and endpoint_by"),
    Part(
        "nvidia_device_plugin",
        "bedplate_sharing or bedplate_pins.nvidia_device_plugin",
        areas=("plugin",),
        # Another version of it ends no pod.
        changes={"nvidia_device_plugin": ()},
        of_gpus=("nvidia_device_plugin",),
        waits=True,
    ),
    Part(
        "nvidia_dra_driver",
        "bedplate_sharing",
        areas=("dra",),
        changes={"nvidia_dra_driver": (DRAINED,)},
        of_gpus=("nvidia_dra_driver",),
        waits=True,
        by_hand=("dra.devices", "dra.taints"),
    ),
    Part("rdma_device_plugin", "bedplate_rdma.pods"),
    Part(
        "slurm",
        areas=("slurm",),
        changes={"podman": ()},
        of_gpus=("podman",),
        by_hand=("slurm.node",),  # its user has drained it
    ),
    Part("gpu_verify"),
)
BY_ROLE = {part.role: part for part in PARTS}
_BY_AREA = {area: part for part in PARTS for area in part.areas}
#: Of all parts together.
EFFECTS = {name: effects for part in PARTS for name, effects in part.changes.items()}
OF_GPUS = {name for part in PARTS for name in part.of_gpus}
FREED = {name for part in PARTS for name in part.freed}


def answering(check_id: str) -> Part:
    """Return the part that brings what a check looks at, that without a role where none does."""
    area, _, name = check_id.partition(".")
    # The owner of recorded files is the role that has written them.
    return BY_ROLE.get(name, BY_ROLE[""]) if area == "owned" else _BY_AREA.get(area, BY_ROLE[""])


def among(check_id: str, names: tuple[str, ...]) -> bool:
    """Tell whether a check is one of those that a part names, by its id or by its area."""
    return check_id in names or check_id.partition(".")[0] in names
