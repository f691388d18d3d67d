"""What a fact is, and what each kind of fact says.

Ranges are inclusive. `…_from` and `…_upto` are versions; an `…_upto` of `1.36` includes 1.36.3.
"""

from __future__ import annotations

from datetime import date  # noqa: TC003 - Pydantic needs it when it runs
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sure = Literal["vendor", "tested", "secondary", "unproved"]
Flavour = Literal["open", "proprietary"]
Branch = Annotated[str, Field(pattern=r"^[0-9]{3}$")]
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*([-+~.][0-9A-Za-z.+~-]+)?$")]
Pci = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
ComputeCapability = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]


class Value(BaseModel):
    """Base of what facts say: immutable and nothing unknown."""

    # Validators are built when the first fact is read, which is not often: see `compiled`.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Source(Value):
    """Where a fact was read, and when: an address, or a file of this project's own proof."""

    url: Annotated[str, Field(pattern=r"^(https?://|tests/|docs/)\S+$")]
    read: date


class GpuModel(Value):
    """A GPU board.

    `subsystems` narrows `pci` where one device id is several boards. `flavours` is what the board
    itself can run, whatever the branch; `open_from` is the first driver whose open module lists
    it, `driver_from` the first driver qualified for it. `fabric` is what joins the GPUs of a host
    of at least `fabric_from` of them. `host_cpu` is the CPU that the board is one with, in the
    words of `uname -m`; a card, which goes into any machine, has none.
    """

    model: str
    name: str
    architecture: str
    compute_capability: ComputeCapability
    pci: Annotated[list[Pci], Field(min_length=1)]
    subsystems: list[Pci] = []
    market: Literal["data-centre", "workstation", "geforce", "embedded"]
    memory_gib: int | None = None
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    open_from: Version | None = None
    driver_from: Version | None = None
    fabric: Literal["nvswitch", "nvlink-5", "imex"] | None = None
    fabric_from: int | None = None
    host_cpu: Literal["aarch64"] | None = None


class Architecture(Value):
    """What drives an architecture: branches, module flavours, CUDA, and how MPS limits it.

    `last_branch` is the legacy branch: newer ones do not know the chip, whatever their id lists
    say. `cuda_upto` is the last CUDA toolkit that compiles for it. `mps_clients` caps what the
    CUDA version allows.
    """

    architecture: str
    compute_capabilities: list[ComputeCapability]
    first_branch: Branch
    last_branch: Branch | None
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    cuda_from: Version
    cuda_upto: Version | None
    mps_clients: int | None = None


class DriverBranch(Value):
    """A driver branch, how long its maker looks after it, and the CUDA that it brings.

    `flavours` are the kernel modules that are published for it; `default_flavour` is what its
    maker recommends for boards that can run both.
    """

    branch: Branch
    type: Literal["lts", "production", "new-feature"]
    end_of_life: date | None
    cuda: Version
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    default_flavour: Flavour


class DriverPackages(Value):
    """The packages that bring one driver to one system, with their exact versions.

    `fabric` are the packages of Fabric Manager and its companions at the same version; null where
    the source has none. `signed` modules load under Secure Boot without a key of the owner's.
    `kernels` are the kernel releases that a precompiled module is for.
    """

    os: str
    source: Literal["distro", "vendor-repo", "runfile", "precompiled"]
    flavour: Flavour
    branch: Branch
    version: Version
    packages: dict[str, str]
    fabric: dict[str, str] | None = None
    signed: bool = False
    kernels: list[str] = []


class Repository(Value):
    """Where a source's packages for a system lie, and the key that their index is trusted by.

    `key` is the key file's name below `url`, `origin` what the index says of itself. `streams` are
    those of dnf's module `module` by flavour; `{branch}` is the driver's.
    """

    os: str
    source: Literal["vendor-repo"]
    format: Literal["deb", "rpm"]
    url: Annotated[str, Field(pattern=r"^https://\S+/$")]
    key: str
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]
    origin: str
    module: str | None = None
    streams: dict[Flavour, str] = {}


class DistributionArchive(Value):
    """Where a distribution publishes its packages, and the key that it signs its index with.

    Only the index is read, to see what is offered: hosts install from their own sources. It is
    signed, so that its address may be without TLS.
    """

    archive: str
    os: str
    url: Annotated[str, Field(pattern=r"^https?://\S+/$")]
    suites: Annotated[list[str], Field(min_length=1)]
    components: Annotated[list[str], Field(min_length=1)]
    key: Annotated[str, Field(pattern=r"^https?://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class RuntimeRepository(Value):
    """Where a container runtime's packages for a system lie, and the key that they are trusted by.

    `key` is the key file's whole address; `suite` and `components` are apt's. `{minor}` in the
    addresses and the origin is the runtime's, as in 1.36.
    """

    os: str
    vendor: str
    runtimes: list[Literal["containerd", "cri-o", "docker"]]
    format: Literal["deb", "rpm"]
    url: Annotated[str, Field(pattern=r"^https://\S+/$")]
    suite: str | None = None
    components: str | None = None
    key: Annotated[str, Field(pattern=r"^https://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]
    origin: str


class System(Value):
    """An operating system: its current kernel, its cgroup version, whether it can be a guest."""

    os: str
    name: str
    kernel: str
    cgroup: Literal[1, 2]
    guest: bool


class Kernel(Value):
    """A kernel release of a system with the package of its headers; null where there is none."""

    kernel: str
    os: str
    headers: str | None


class CudaToolkit(Value):
    """A CUDA toolkit and the first driver with all its features."""

    version: Version
    driver_from: Version


class CudaMajor(Value):
    """Minor-version compatibility: the first driver that runs any toolkit of a major version."""

    major: str
    driver_from: Version


class ForwardCompatibility(Value):
    """The driver branches on which the compatibility package of a CUDA version runs."""

    cuda: Version
    branches: Annotated[list[Branch], Field(min_length=1)]


class Tagged(Value):
    """A version and the tag of its image."""

    version: Version
    image_tag: str


class Versioned(Value):
    """A version."""

    version: Version


class CgroupV1(Value):
    """The kubelet field that has to be false for cgroup v1."""

    allowed_by: str


class KubernetesRelease(Value):
    """A Kubernetes release with what kubeadm of that release pulls.

    `mutating_policies` is the version in which its API server has MutatingAdmissionPolicy without a
    feature gate, null where it has not or nobody looked.
    """

    version: Version
    etcd: Tagged
    coredns: Tagged
    pause: Versioned
    cgroup_v1: CgroupV1 | None = None
    mutating_policies: str | None = None


class ContainerRuntime(Value):
    """A container runtime, the Kubernetes releases that it serves, and whether it speaks CDI.

    `os` is the system that its packages are for; null for release archives. `packages` are the
    vendor's, with their exact versions.
    """

    runtime: Literal["containerd", "cri-o", "docker"]
    version: Version
    source: Literal["archive", "distro", "vendor-repo"]
    os: str | None = None
    packages: dict[str, str] = {}
    kubernetes_from: Version | None
    kubernetes_upto: Version | None
    cdi: bool


class Component(Value):
    """A part of a cluster, with the Kubernetes releases and drivers that it goes with.

    `driver_from` is what its maker supports; `driver_seen` an older one that it has run with here.
    """

    component: Literal[
        "flannel",
        "cilium",
        "cni_plugins",
        "cri_tools",
        "runc",
        "nvidia_container_toolkit",
        "nvidia_device_plugin",
        "nvidia_dra_driver",
    ]
    version: Version
    kubernetes_from: Version | None = None
    kubernetes_upto: Version | None = None
    driver_from: Version | None = None
    driver_seen: Version | None = None
    image: str | None = None


Chart = Annotated[str, Field(pattern=r"^(oci|https)://[^/\s]+/\S*[^/\s]$")]


class Addon(Value):
    """A scheduler, operator or driver that goes into the cluster when it is wished for.

    `owns` are the extended resources that its own device plugin registers: on every node, or with
    `owns_in_mode` only on nodes of pools with that sharing mode. `excludes` are the add-ons that
    cannot be beside it, `needs` those that must. `chart` ends with the chart's name: an OCI
    artefact, whose tag is the version where it names none, or a chart of a repository.
    """

    addon: str
    kind: Literal["scheduler", "operator", "dra"]
    version: Version
    kubernetes_from: Version
    kubernetes_upto: Version | None
    driver_from: Version | None = None
    owns: list[str] = []
    owns_in_mode: Literal["hami"] | None = None
    needs: list[str] = []
    excludes: list[str] = []
    chart: Chart | None = None


class FrameworkBuild(Value):
    """A published build of a framework: what it was compiled with and for.

    `ptx` says that the newest listed architecture is there as PTX too, so that newer chips
    compile it. `default` builds are what an unqualified installation gets.
    """

    framework: str
    version: Version
    variant: str
    cuda: Version
    cudnn: str | None
    nccl: str | None
    compute_capabilities: Annotated[list[ComputeCapability], Field(min_length=1)]
    ptx: bool
    default: bool
    python_from: Version | None = None
    index: str | None = None


class FrameworkPackage(Value):
    """How builds of a framework are installed; `{version}` and `{variant}` are the build's."""

    framework: str
    requirement: str
    python: Version
    base: str


class RdmaPath(Value):
    """A way of GPUDirect RDMA under a stack, and what it asks of driver, kernel and board."""

    path: str
    stack: Literal["inbox", "doca"]
    method: Literal["dma-buf", "peermem"]
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    architectures: Annotated[list[str], Field(min_length=1)]
    kernel_from: Version | None
    cuda_from: Version | None


class Condition(Value):
    """One side of a known-bad combination; exactly one of `equal`, `range` and `prefix`.

    A range has `from` and `upto`, either of which may be left out.
    """

    dimension: Literal[
        "gpu",
        "architecture",
        "os",
        "kernel",
        "source",
        "flavour",
        "branch",
        "driver",
        "fabric",
        "cuda",
        "kubernetes",
        "containerd",
        "nvidia_container_toolkit",
        "nvidia_device_plugin",
        "sharing",
        "framework",
        "addon",
        "kind",
    ]
    equal: str | None = None
    prefix: str | None = None
    name: str | None = None
    from_: Annotated[Version | None, Field(alias="from")] = None
    upto: Version | None = None


class KnownBad(Value):
    """A combination that was reported as broken: all conditions together."""

    bad: str
    all: Annotated[list[Condition], Field(min_length=1)]


class Accelerator(Value):
    """A board of another maker; its device plugin and runtime are data."""

    accelerator: str
    vendor: str
    name: str
    pci: list[Pci]
    driver: str
    device_plugin: str
    device_plugin_version: Version
    runtime: str | None
    resource: str


class FabricSwitch(Value):
    """A switch that joins the GPUs of a host; its management functions are on the PCI bus."""

    switch: str
    name: str
    pci: Annotated[list[Pci], Field(min_length=1)]


class HpcTool(Value):
    """A tool that clusters are tried, measured or watched with, and where it comes from.

    `packages` is its package by system where it is the distribution's, `by_cuda` by the driver's
    newest major release of CUDA where it is the vendor's, `address` where its maker publishes it.
    `default` tools are what a new cluster gets.
    """

    tool: str
    name: str
    purpose: str
    default: bool
    source: Literal["distro", "vendor-repo", "source"]
    packages: dict[str, str] = {}
    by_cuda: dict[str, str] = {}
    address: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None


class HypervisorSetting(Value):
    """A setting of another hypervisor that may be written out; `N` counts devices."""

    platform: Literal["vsphere", "proxmox"]
    setting: str
    meaning: str


class Installable(Value):
    """What this version's roles and stacks can carry out; what is missing is planned only.

    `values` was run for real, `stand_in` with packages that have the vendor's names, versions and
    dependencies and nothing else of theirs, and `unproved` was written and never run as a whole.
    """

    dimension: str
    values: list[str] = []
    stand_in: list[str] = []
    unproved: list[str] = []


class Package(Value):
    """A package of a signed apt repository without suites; `{version}` is the component's."""

    name: str
    version: str
    index: Annotated[str, Field(pattern=r"^https://\S+/$")]
    key: Annotated[str, Field(pattern=r"^https://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class ImageLayer(Value):
    """The layer of an image that adds one file, named by its path; `{version}` as elsewhere."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9.-]+\.[a-z]+/[a-z0-9./_-]+:\S+$")]
    adds: Annotated[str, Field(pattern=r"^/\S+$")]


class Artifact(Value):
    """Where upstream publishes a file, and what its digest is read from.

    `{version}` is the component's in the lock. Exactly one of `checksum_file`, `release` (GitHub's
    API), `package`, `chart` (an add-on's) and `layer` is there; the address of the last three
    stands in an index or a manifest. Of a manifest that `names_images`, these are installed too.
    """

    artifact: str
    component: str
    url: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    checksum_file: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    release: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    package: Package | None = None
    chart: Chart | None = None
    layer: ImageLayer | None = None
    names_images: bool = False

    @model_validator(mode="after")
    def _one_source_of_the_digest(self) -> Artifact:
        ways = [self.checksum_file, self.release, self.package, self.chart, self.layer]
        listed = any(way is not None for way in ways[2:])
        if sum(way is not None for way in ways) != 1 or (self.url is None) != listed:
            raise ValueError(
                "its digest is known by one of checksum_file and release, with url, or by one of "
                "package, chart and layer"
            )
        return self


class Image(Value):
    """An image that a cluster runs; `{version}` and `{image_tag}` are the component's in the lock.

    `hosts` are those that have it before they join. A tag that `moves` is one that its maker
    sets anew on purpose: the digest that was found first stays. A `notebook` is that of courses
    with this framework; `base` is that of courses without one. An image that is `built` is in no
    maker's registry: the site builds it and puts it into its mirror.
    """

    image: str
    component: str | None = None
    notebook: str | None = None
    built: bool = False
    reference: Annotated[str, Field(pattern=r"^[a-z0-9.-]+\.[a-z]+/[a-z0-9./_-]+:\S+$")]
    hosts: Literal["control-plane", "node", "nobody"]
    moves: bool = False


class Registry(Value):
    """A registry whose API answers under another host than its images' names begin with."""

    registry: str
    host: str


class Fact[V: Value](Value):
    """Something the world allows or forbids, with where it was read and how sure it is."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[A-Za-z0-9._+-]+$")]
    value: V
    when: str | None = None
    reason: Annotated[str, Field(min_length=1)]
    source: Source
    sure: Sure
