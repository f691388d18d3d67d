"""The user's wishes, typed. Everything has a default except what only the user can know."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
)

from bedplate.presets.model import (  # noqa: TC001 - types of fields
    ClassName,
    Order,
    Pods,
    Preemption,
    PresetName,
    Priority,
    Reclaim,
    TopologyUse,
)
from bedplate.site.courses import IDLE, Course, Hub, Storage
from bedplate.site.marks import VALUE, Taint
from bedplate.site.patterns import (
    BY_MEMORY,
    BY_PART,
    Member,
    Memory,
    Name,
    Named,
    OwnFile,
    PoolName,
    Wish,
    address,
)
from bedplate.site.teams import PerContainer

NAME = r"^[a-z0-9][a-z0-9.-]*$"
VERSION = r"^[0-9]+(\.[0-9]+)*([-+~.][0-9A-Za-z.+~-]+)?$"
PCI = r"^[0-9a-f]{4}:[0-9a-f]{4}$"
# Named hosts, IPv4, or IPv6 in brackets; a port is part of it.
ENDPOINT = r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$"
KERNEL = r"^[0-9]+\.[0-9]+[0-9A-Za-z.+_~-]*$"
PCI_ADDRESS = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"
PROFILE = r"^[1-7]g\.[0-9]+gb([+-][a-z.]+)?$"
#: As the manager names them, in small letters and with underscores for blanks.
VGPU = r"^(grid|nvidia)_[a-z0-9_-]+-[0-9]+(-[0-9]+)?[abcq](me|nome|meall|gfx)?$"
#: A guest's name is a host's, a file's and a libvirt domain's.
GUEST = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: As long as the kernel lets a network interface's name be.
BRIDGE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$"
MAC = r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$"
HOST = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"
#: An OpenPGP key's whole fingerprint.
KEY = r"^[0-9A-F]{40}$"
#: An address without a password: the lock has it. A query would be a token.
PLACE = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"
#: A registry's host, and below which name it keeps what hosts pull: names as a registry takes them.
REGISTRY = HOST[:-1] + r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
#: What apt, dnf and containerd take in their files without quotes.
USER, PASSWORD = r"^[!$-9;-\[\]-~]+$", r"^[!$-\[\]-~]+$"
#: Folders whose names do not begin with a dot.
FOLDER = r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
CIDR = r"^[0-9A-Fa-f.:]+/[0-9]{1,3}$"
#: The value of a node's label.
LABEL = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"


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


class Kubernetes(Wish):
    """The cluster; `kubelet` and `kube_proxy` are configuration fields as upstream spells them.

    `control_plane_taint` keeps pods away from control planes. Left out, only those control planes
    take pods that are in a GPU pool, or all of them where pods had no node otherwise.

    `endpoint_by` is who brings the endpoint: the user (`external`), or a virtual address that
    `keepalived` moves between the control planes, with `haproxy` in front of their API servers.

    `mtu` is that of the hosts' network: pods have 50 bytes less, which flannel's VXLAN takes. Left
    out, flannel asks each host's interface.

    `etcd_data_dir` is where control planes keep etcd's data; left out, kubeadm's /var/lib/etcd. A
    cluster keeps that of its first day.

    `controller_requests` is how many requests a second each controller of kube-controller-manager
    may send, half as many more at once. Left out, the catalogue's number for a chosen add-on that
    needs more than kubeadm allows, else kubeadm's. A cluster keeps that of its first day.
    """

    version: Annotated[str, Field(pattern=r"^1\.[0-9]+(\.[0-9]+)?$")] | None = None
    endpoint: Annotated[str, Field(pattern=ENDPOINT)]
    endpoint_by: Literal["external", "keepalived", "haproxy"] = "external"
    control_plane_taint: bool | None = None
    cni: Literal["flannel", "cilium"] = "flannel"
    pod_subnet: Annotated[str, Field(pattern=CIDR)] = "10.244.0.0/16"
    service_subnet: Annotated[str, Field(pattern=CIDR)] = "10.96.0.0/12"
    mtu: Annotated[int, Field(ge=1280, le=65535)] | None = None
    etcd_data_dir: Annotated[str, Field(pattern=FOLDER)] | None = None
    kubelet: dict[str, Any] = {}
    kube_proxy: dict[str, Any] = {}
    controller_requests: Annotated[int, Field(ge=1, le=10_000)] | None = None
    ignore_preflight: list[str] = []


class MemoryShare(Wish):
    """The size of a share by its memory."""

    memory: Memory


def _form_of_share(value: object) -> str:
    return BY_MEMORY if isinstance(value, dict | MemoryShare) else BY_PART


Part = Annotated[float, Field(ge=0.001, le=1)]
Share = Annotated[
    Annotated[Part, Tag(BY_PART)] | Annotated[MemoryShare, Tag(BY_MEMORY)],
    Discriminator(_form_of_share),
]
Profile = Annotated[str, Field(pattern=PROFILE)]
Mode = Literal["none", "time-slicing", "mps", "mig", "hami", "dra"]


class CardSharing(Wish):
    """How pods share some GPUs of each host, which `cards` numbers as nvidia-smi does."""

    mode: Mode = "none"
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    share: Part | None = None
    profile: Profile | None = None
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    cards: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(min_length=1)]


class Sharing(Wish):
    """How pods share a GPU.

    `replicas` is the number of shares of a card; instead of it, `share` is the part of a card that
    one user gets. `seats` is how many users the whole pool must have room for at once. `profile`
    is the MIG profile that every card is cut into; `profiles` are several, with their numbers.
    `isolation` is the least that must hold a share's memory back: what a mode gives is a fact of
    the catalogue. Of mode `dra`, where claims name the size, `share` is that of those that don't.

    Where cards differ, a list takes its place: each entry is for some `cards` (`parts` here).
    """

    mode: Mode = "none"
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    share: Share | None = None
    seats: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    profile: Profile | None = None
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    isolation: Literal["limited", "isolated"] | None = None
    parts: Annotated[list[CardSharing], Field(min_length=1)] = []


class Topology(Wish):
    """Where a host stands: its rack, its leaf switch, and the NVLink domain of several hosts."""

    rack: Annotated[str, Field(pattern=LABEL)] | None = None
    leaf: Annotated[str, Field(pattern=LABEL)] | None = None
    nvlink_domain: Annotated[str, Field(pattern=LABEL)] | None = None


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


class Rdma(Wish):
    """The RDMA stack, whether nodes offer its devices to pods, and who owns it."""

    stack: Literal["inbox", "doca"]
    pods: bool = True
    operator: Named | None = None


class Sources(Wish):
    """Where everything comes from. The lock has the address, so that it names no password.

    `keys` has the fingerprint of the key that signs a repository, by the repository's host, where
    that is not its vendor's: a mirror that signs again with a key of its own, or what serves one
    under the vendors' names (`bedplate mirror resolve --upstream` and `packages`). `pip` and
    `conda` are a package index and a root of channels, which images are built from and notebooks
    install from.
    `packages` says where hosts of mode `mirror` take packages from: the mirror alone, or sources of
    their own. In place of `url`, `files` is a file server of the site's own and `registry` its
    registry, with the name below which images lie. `ca` is a file of the site's with the
    certificates of the authorities that hosts trust for both, or for `url`.
    """

    mode: Literal["upstream", "mirror"] = "upstream"
    url: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    files: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    registry: Annotated[str, Field(pattern=REGISTRY)] | None = None
    ca: OwnFile | None = None
    pip: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    conda: Annotated[str, Field(pattern=PLACE), AfterValidator(address)] | None = None
    packages: Literal["mirror", "hosts"] = "mirror"
    keys: dict[Annotated[str, Field(pattern=HOST)], Annotated[str, Field(pattern=KEY)]] | None = (
        None
    )


class Login(Wish):
    """Who logs in to `files` and `registry` of the sources.

    It belongs into a vault. It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    user: Annotated[str, Field(pattern=USER)]
    password: Annotated[str, Field(pattern=PASSWORD)]


class Proxy(Wish):
    """How hosts go out where they can't directly; `direct` names what is reached without it.

    An address with a password belongs into a vault. It is no part of the decision, nor of the lock.
    """

    secret: ClassVar[bool] = True

    url: Annotated[str, Field(pattern=r"^https?://[^\s/\"'\\]+/?$"), AfterValidator(address)]
    direct: list[Annotated[str, Field(pattern=r"^[0-9A-Za-z.:/*_-]+$")]] = []


Component = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Exact = Annotated[str, Field(pattern=VERSION)]


class TeamImage(Wish):
    """An image of the site's own, and the pool whose driver and GPUs it has to go with.

    A team's jobs run it by its name, and courses of that pool as one of their `frameworks`.

    `cuda`, `built_for`, `ptx` and `requires` are what the image says of itself, as `bedplate mirror
    inspect` reads it.
    """

    image: Annotated[str, Field(pattern=r"^[^\s@/]+(/[^\s@]+)+@sha256:[0-9a-f]{64}$")]
    pool: PoolName
    cuda: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] | None = None
    built_for: list[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]] = []
    ptx: bool = False
    requires: str | None = None


def _as_list(value: object) -> object:
    """One kind of GPU may be written without the list around it."""
    return [value] if isinstance(value, dict) else value


def _as_choice(value: object) -> object:
    """A preset without changes may be written by its name alone."""
    return {"name": value} if isinstance(value, str) else value


def _of_parts(value: object) -> object:
    """Where cards differ, the pool is divided if any card is: a list is read as its parts."""
    if not isinstance(value, list):
        return value
    divided = any(isinstance(one, dict) and one.get("mode") == "mig" for one in value)
    return {"mode": "mig" if divided else "none", "parts": value}


class Wishes(Wish):
    """The effective wishes of one host: every `bedplate_` variable.

    Of the roles' variables those are here that no host would take otherwise: what a pool or a host
    changes of kubelet's configuration.
    """

    bedplate_host: Host
    bedplate_kubernetes: Kubernetes | None = None
    bedplate_container_runtime: ContainerRuntime = ContainerRuntime()
    bedplate_gpu: Annotated[list[Gpu], BeforeValidator(_as_list)] = []
    bedplate_driver: Driver = Driver()
    bedplate_accelerator: Accelerator | None = None
    bedplate_cuda: list[Exact] = []
    bedplate_forward_compatibility: bool = False
    bedplate_passthrough: Passthrough | None = None
    bedplate_vgpu: Vgpu | None = None
    bedplate_guests: dict[Annotated[str, Field(pattern=GUEST)], Guest] = {}
    bedplate_sharing: Annotated[Sharing, BeforeValidator(_of_parts)] = Sharing()
    bedplate_rdma: Rdma | None = None
    bedplate_hpc_tools: bool = True
    bedplate_schedulers: list[Named] = []
    bedplate_preset: Annotated[PresetChoice | None, BeforeValidator(_as_choice)] = None
    bedplate_teams: dict[Name, Team] = {}
    bedplate_courses: list[Course] = []
    bedplate_hub: Hub | None = None
    bedplate_storage: Storage | None = None
    bedplate_images: dict[Name, TeamImage] = {}
    bedplate_topology: Topology | None = None
    bedplate_node_ip: str | None = None
    bedplate_labels: dict[str, Annotated[str, Field(pattern=VALUE)]] = {}
    bedplate_taints: list[Taint] = []
    bedplate_operators: list[Named] = []
    bedplate_frameworks: list[Named] = []
    bedplate_sources: Sources = Sources()
    bedplate_sources_login: Login | None = None
    bedplate_proxy: Proxy | None = None
    bedplate_pins: dict[Component, Exact] = {}
    kubernetes_node_kubelet: dict[str, Any] = {}


#: Wishes about what all hosts share: they must be the same everywhere.
SHARED = (
    "bedplate_kubernetes",
    "bedplate_container_runtime",
    "bedplate_sources",
    "bedplate_schedulers",
    "bedplate_preset",
    "bedplate_teams",
    "bedplate_courses",
    "bedplate_hub",
    "bedplate_storage",
    "bedplate_images",
    "bedplate_operators",
)
#: How a host is reached or reaches out: no part of the decision.
ACCESS = ("bedplate_proxy", "bedplate_sources_login")
#: Wishes of single hosts: those of one pool may differ in them.
OF_ONE_HOST = (
    "bedplate_guests",
    "bedplate_topology",
    "bedplate_node_ip",
    "bedplate_labels",
    "kubernetes_node_kubelet",
)
KEYS = tuple(Wishes.model_fields)
