"""The settings of hosts: system, GPUs and driver, container runtime, and what hypervisors give."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.site.patterns import Memory, Wish

NAME = r"^[a-z0-9][a-z0-9.-]*$"
PCI = r"^[0-9a-f]{4}:[0-9a-f]{4}$"
KERNEL = r"^[0-9]+\.[0-9]+[0-9A-Za-z.+_~-]*$"
PCI_ADDRESS = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"
#: As the manager names them, in small letters and with underscores for blanks.
VGPU = r"^(grid|nvidia)_[a-z0-9_-]+-[0-9]+(-[0-9]+)?[abcq](me|nome|meall|gfx)?$"
#: A guest's name is a host's, a file's and a libvirt domain's.
GUEST = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: As long as the kernel lets a network interface's name be.
BRIDGE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
MAC = r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$"


class Gpu(Wish):
    """The GPUs of each host of a pool: by the model's name, or by PCI identifier."""

    model: Annotated[str, Field(pattern=NAME)] | None = None
    pci: Annotated[str, Field(pattern=PCI)] | None = None
    subsystem: Annotated[str, Field(pattern=PCI)] | None = None
    count: Annotated[int, Field(ge=1, le=64)]


class Driver(Wish):
    """Which driver: a policy, or a branch; the module's flavour; where packages come from.

    A policy is a preference among the branches that go: where none of its kind drives the GPUs,
    the next kind is taken and the plan says so. Everything else is kept or refused.
    """

    policy: Literal["lts", "production", "new-feature"] = "lts"
    branch: Annotated[str, Field(pattern=r"^[0-9]{3}$")] | None = None
    flavour: Literal["open", "proprietary"] | None = None
    source: Literal["distro", "vendor-repo", "runfile", "precompiled"] | None = None


class Host(Wish):
    """What the hosts are. `kernel` is a release as `uname -r` prints it.

    `memory` and `cpus` are those of each host, as Linux shows them; of hosts that differ, those of
    the smallest. By them courses are proved to fit, and shares get their part. `disk` is the size
    of the file system of /var/lib/kubelet less what images take where they lie on it too: kubelet
    counts what pods write, and not images.

    Under Secure Boot only signed modules load: the driver's own, or those of DKMS where
    `module_signing` says that the machine owner's key is enrolled.
    """

    os: Annotated[str, Field(pattern=NAME)]
    kind: Literal["bare-metal", "passthrough", "hypervisor"] = "bare-metal"
    kernel: Annotated[str, Field(pattern=KERNEL)] | None = None
    secure_boot: bool = False
    module_signing: Literal["mok"] | None = None
    memory: Memory | None = None
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    disk: Memory | None = None


class ContainerRuntime(Wish):
    """What runs containers on all hosts.

    Docker is for GPU hosts of a site without `bedplate_kubernetes`.
    """

    name: Literal["containerd", "cri-o", "docker"] = "containerd"
    source: Literal["archive", "distro", "vendor-repo"] | None = None


class Accelerator(Wish):
    """Accelerators of another maker in each host of a pool."""

    vendor: Literal["amd", "ascend", "intel", "kunlun"]
    model: Annotated[str, Field(pattern=NAME)]
    count: Annotated[int, Field(ge=1, le=64)]


class Passthrough(Wish):
    """What a hypervisor gives to its guests: PCI addresses, and the IOMMU groups they are in."""

    devices: Annotated[list[Annotated[str, Field(pattern=PCI_ADDRESS)]], Field(min_length=1)]
    iommu_groups: list[list[Annotated[str, Field(pattern=PCI_ADDRESS)]]]


class Vgpu(Wish):
    """A hypervisor's cards that are shared by vGPU, and the version of the manager that does it."""

    manager: Annotated[str, Field(pattern=r"^[0-9]{3}\.[0-9]+(\.[0-9]+)?$")]
    cards: Annotated[list[Annotated[str, Field(pattern=PCI_ADDRESS)]], Field(min_length=1)]


class Guest(Wish):
    """A virtual machine of a hypervisor: whole devices of it, or shares of cards by vGPU profile.

    Its name is that of a host of the site, in a pool of kind passthrough. `disk` is there already;
    `network` is a bridge of the hypervisor.
    """

    devices: list[Annotated[str, Field(pattern=PCI_ADDRESS)]] = []
    vgpu: list[Annotated[str, Field(pattern=VGPU)]] = []
    cpus: Annotated[int, Field(ge=1, le=4096)]
    memory_gib: Annotated[int, Field(ge=1, le=65536)]
    disk: Annotated[str, Field(pattern=r"^/\S+$")]
    network: Annotated[str, Field(pattern=BRIDGE)]
    mac: Annotated[str, Field(pattern=MAC)] | None = None
