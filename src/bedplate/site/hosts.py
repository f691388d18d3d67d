"""The settings of hosts: system, GPUs and driver, container runtime, and what hypervisors give."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.site.patterns import Memory, Wish

#: A name of the catalogue, in whatever letters: the plan lists what was meant by one.
NAME = r"^[A-Za-z0-9][A-Za-z0-9 ._/()+-]{0,99}$"
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
    """The GPU's name in the catalogue; `bedplate gpus` lists them. Left out: `pci` says which.
    Example: `h100-sxm5-80gb`"""
    pci: Annotated[str, Field(pattern=PCI)] | None = None
    """The GPU by its PCI vendor and device, for one whose name you do not know. Left out: `model`
    says which. Example: `10de:2330`"""
    subsystem: Annotated[str, Field(pattern=PCI)] | None = None
    """The PCI subsystem, where `pci` alone fits several models. Left out: no subsystem is compared.
    Example: `10de:16c1`"""
    count: Annotated[int, Field(ge=1, le=64)]
    """How many of them each host of the pool has. Unit: GPUs. Example: `8`"""


class Driver(Wish):
    """Which driver. All but `policy`, which is a preference, is kept or refused."""

    policy: Literal["lts", "production", "new-feature"] = "lts"
    """Which kind of driver branch to prefer. Where none of that kind drives the GPUs, the next kind
    is taken; the plan warns of it where this is set. Example: `production`"""
    branch: Annotated[str, Field(pattern=r"^[0-9]{3}$")] | None = None
    """The driver's branch, kept or refused. Left out: the newest compatible one that `policy`
    prefers. Example: `"580"`"""
    flavour: Literal["open", "proprietary"] | None = None
    """The kernel module's flavour. Left out: the one that the branch's maker recommends, where the
    GPUs can use it. Example: `open`"""
    source: Literal["distro", "vendor-repo", "runfile", "precompiled"] | None = None
    """Where driver packages come from. Left out: the source with the newest compatible driver;
    `runfile` only where no package has one. Example: `vendor-repo`"""


class Host(Wish):
    """What the hosts are. Kubelet counts what pods write to the disk, and not images."""

    os: Annotated[str, Field(pattern=NAME)]
    """The operating system, by name and release; the page *The supported matrix* lists those that
    are known. Example: `debian-12`"""
    kind: Literal["bare-metal", "passthrough", "hypervisor"] = "bare-metal"
    """A physical server, a guest that was given GPUs, or the hypervisor that gives them. Example:
    `passthrough`"""
    kernel: Annotated[str, Field(pattern=KERNEL)] | None = None
    """The kernel's release as `uname -r` prints it. Left out: the one that the system's own
    packages bring. Example: `6.1.0-28-amd64`"""
    secure_boot: bool = False
    """Whether hosts start with Secure Boot, where only signed kernel modules load. Example:
    `true`"""
    module_signing: Literal["mok"] | None = None
    """`mok` says that a machine owner's key is enrolled, so that modules built on the host load
    under Secure Boot. Left out: no key is enrolled. Example: `mok`"""
    memory: Memory | None = None
    """Memory of each host as Linux shows it; of hosts that differ, the smallest. Courses are proved
    by it, and shares get their part. Unit: bytes. Left out: not known, and nothing is proved of it.
    Example: `1007Gi`"""
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Logical CPUs of each host; of hosts that differ, the fewest. Unit: CPUs. Left out: not known,
    and nothing is proved of them. Example: `128`"""
    disk: Memory | None = None
    """Size of the file system of /var/lib/kubelet, less what images take if they are on it too.
    Unit: bytes. Left out: not known, and nothing is proved of it. Example: `800Gi`"""


class ContainerRuntime(Wish):
    """What runs containers on all hosts."""

    name: Literal["containerd", "cri-o", "docker", "podman"] = "containerd"
    """The runtime of all hosts. `docker` is for GPU hosts of a site without `bedplate_kubernetes`,
    and `podman` for the nodes of Slurm of such a site, whose jobs may then run containers.
    Example: `cri-o`"""
    source: Literal["archive", "distro", "vendor-repo"] | None = None
    """Where the runtime comes from: its makers' archive, the distribution, or its makers' package
    repository. Left out: the newest compatible version of any of them. Example: `archive`"""


class Accelerator(Wish):
    """Accelerators of another maker in each host of a pool."""

    vendor: Literal["amd", "ascend", "intel", "kunlun"]
    """The maker. Example: `amd`"""
    model: Annotated[str, Field(pattern=NAME)]
    """The model's name in the catalogue. Example: `mi300x`"""
    count: Annotated[int, Field(ge=1, le=64)]
    """How many of them each host of the pool has. Unit: accelerators. Example: `8`"""


class Passthrough(Wish):
    """What a hypervisor gives to its guests: PCI addresses, and the IOMMU groups they are in."""

    devices: Annotated[list[Annotated[str, Field(pattern=PCI_ADDRESS)]], Field(min_length=1)]
    """PCI addresses of the functions that guests get; a GPU is given with its audio and USB
    functions. Example: `["0000:17:00.0", "0000:65:00.0"]`"""
    iommu_groups: list[list[Annotated[str, Field(pattern=PCI_ADDRESS)]]]
    """The IOMMU groups of these functions, each a list of PCI addresses, as the playbook
    `bedplate.gpu.discover` proposes them. Example: `[["0000:17:00.0"], ["0000:65:00.0"]]`"""


class Vgpu(Wish):
    """A hypervisor's cards that are shared by vGPU, and the version of the manager that does it."""

    manager: Annotated[str, Field(pattern=r"^[0-9]{3}\.[0-9]+(\.[0-9]+)?$")]
    """The version of NVIDIA's vGPU manager on the hypervisor. Example: `580.65.05`"""
    cards: Annotated[list[Annotated[str, Field(pattern=PCI_ADDRESS)]], Field(min_length=1)]
    """PCI addresses of the GPUs that are shared. Example: `["0000:41:00.0"]`"""


class Guest(Wish):
    """A virtual machine of a hypervisor: whole devices of it, or shares of GPUs by vGPU profile."""

    devices: list[Annotated[str, Field(pattern=PCI_ADDRESS)]] = []
    """PCI addresses of the functions that this guest gets whole. Example: `["0000:17:00.0"]`"""
    vgpu: list[Annotated[str, Field(pattern=VGPU)]] = []
    """Profiles of the shares that this guest gets, one for each share. Example: `[grid_t4-16c]`"""
    cpus: Annotated[int, Field(ge=1, le=4096)]
    """Virtual CPUs of the guest. Unit: CPUs. Example: `16`"""
    memory_gib: Annotated[int, Field(ge=1, le=65536)]
    """Memory of the guest. Unit: GiB. Example: `64`"""
    disk: Annotated[str, Field(pattern=r"^/\S+$")]
    """The guest's disk image or block device on the hypervisor, which is there already. Example:
    `/srv/vm1.qcow2`"""
    network: Annotated[str, Field(pattern=BRIDGE)]
    """The hypervisor's bridge that the guest is attached to. Example: `br0`"""
    mac: Annotated[str, Field(pattern=MAC)] | None = None
    """The MAC address of the guest's network interface. Left out: the address that the guest has
    already, or a generated one. Example: `"52:54:00:12:34:56"`"""
