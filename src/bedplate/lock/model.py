"""The decision: exact versions for every host, as other parts read them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from bedplate.common.connection import Connection
from bedplate.lock.courses import Course, Hub, Storage  # noqa: TC001 - types of fields
from bedplate.site.presets.model import PLAIN, Preset

FORMAT = 2
#: What holds a share back: the scheduler's sum alone, software, or the hardware.
Word = Literal["counted", "limited", "isolated"]


class Part(BaseModel):
    """Base of all parts of a lock: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Sources(Part):
    """Where everything comes from.

    In mode `mirror` hosts take packages from it too, unless `packages` is `hosts`: then they have
    sources of their own. The mirror is at `url`, or it is the site's own server of `files` and its
    own `registry`. `ca` is a file with certificates, as the site names it.
    """

    mode: Literal["upstream", "mirror"]
    url: str | None = None
    files: str | None = None
    registry: str | None = None
    ca: str | None = None
    packages: Literal["mirror", "hosts"] = "mirror"
    keys: dict[str, str] = {}
    pip: str | None = None
    conda: str | None = None

    @property
    def mirrors_packages(self) -> bool:
        """Tell whether hosts take packages from the mirror alone."""
        return self.mode == "mirror" and self.packages == "mirror"


class Kept(Part):
    """What a node keeps of a resource, in MiB or thousandths: `base`, and `percent` of it."""

    base: int
    percent: int


class NodeRoom(Part):
    """What each node keeps for its system, and the most processes of a pod, by the catalogue.

    What the site's own kubelet fields say is absent.
    """

    memory: Kept | None = None
    cpu: Kept | None = None
    processes: int | None = None


class Kubernetes(Part):
    """The cluster and its upstream configuration fields.

    `untainted` are the control planes that take pods. `controller_requests` is a limit of requests
    a second of each controller; None is kubeadm's own, as of `etcd_data_dir`. `mtu` is that of the
    hosts' network.
    """

    version: str
    endpoint: str
    pod_subnet: str
    service_subnet: str
    kubelet: dict[str, Any]
    kube_proxy: dict[str, Any]
    ignore_preflight: list[str]
    controller_requests: int | None = None
    room: NodeRoom = NodeRoom()
    untainted: list[str] = []
    mtu: int | None = None
    etcd_data_dir: str | None = None
    endpoint_by: Literal["external", "keepalived", "haproxy"] = "external"


class Tagged(Part):
    """A component whose image tag is not its bare version."""

    version: str
    image_tag: str


class Versioned(Part):
    """A component that is known by its version."""

    version: str


class Named(Part):
    """A component that was chosen among others."""

    name: str
    version: str


class Sourced(Part):
    """A component with where it comes from."""

    version: str
    source: Literal["archive", "distro"]


class Runtime(Part):
    """A container runtime; `packages` are the vendor's, with the exact version of each."""

    version: str
    source: Literal["archive", "distro", "vendor-repo"]
    packages: dict[str, str] = {}


class FromDistro(Part):
    """A component that is taken as the distribution has it."""

    source: Literal["distro"]


class Image(Part):
    """A component that is an image."""

    version: str
    image: str


class Addon(Part):
    """A scheduler, operator or driver that the cluster gets."""

    name: str
    kind: Literal["scheduler", "operator", "dra"]
    version: str


class Quota(Part):
    """A team's part of a pool: what it always gets, and how much more where others leave it.

    Without a limit to `borrow` it may use all that others leave.
    """

    guaranteed: int
    borrow: int | None = None


class PerRequest(Part):
    """What one request of a team has at most: GPUs or shares as the queue counts, and seconds."""

    gpus: int | None = None
    time_s: int | None = None


class TeamPerUser(Part):
    """What one member of a team has: GPUs or shares at once, as the queue counts.

    `hours` are GPU-hours in a week.
    """

    gpus: int | None = None
    hours: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.gpus is not None or self.hours is not None


class Team(Part):
    """Who shares a quota; `gpus` is by pool and by the resource that the pool offers.

    `per_container` is what containers have by default, and `per_pod` the most that a pod has, as
    Kubernetes names it.
    """

    namespaces: list[str]
    members: list[str] = []
    gpus: dict[str, dict[str, Quota]]
    weight: float = 1.0
    priority: int = 0
    per_request: PerRequest = PerRequest()
    per_user: TeamPerUser = TeamPerUser()
    per_container: dict[str, str] = {}
    per_pod: dict[str, str] = {}
    idle_timeout_s: int | None = None


class TeamImage(Part):
    """An image of a team's own by digest, which goes with driver and GPUs of a pool."""

    image: str
    pool: str


class Cluster(Part):
    """What all hosts share. Exactly one of `containerd`, `cri_o` and `docker` is there.

    `nvidia_dra_driver` is there where a pool's sharing mode is `dra`: it owns the GPUs of that
    pool's nodes, and no device plugin runs on them.

    `rdma_device_plugin` is there where nodes of a pool offer RDMA devices to pods.

    `preset` has the values of the chosen one with the site's changes; it is there where schedulers
    are. `images` are teams' own, by name. `courses` are by name; each is also one of `teams`, whose
    quota is that of the class.
    `not_yet` is as a pool's.
    """

    kubernetes: Kubernetes
    etcd: Tagged
    coredns: Tagged
    pause: Versioned
    cni: Named
    cni_plugins: Versioned
    containerd: Runtime | None = None
    cri_o: Runtime | None = None
    docker: Runtime | None = None
    runc: FromDistro
    cri_tools: Versioned
    nvidia_container_toolkit: Sourced
    nvidia_device_plugin: Image
    nvidia_dra_driver: Versioned | None = None
    rdma_device_plugin: Image | None = None
    addons: list[Addon] = []
    preset: Preset | None = None
    teams: dict[str, Team] = {}
    courses: dict[str, Course] = {}
    images: dict[str, TeamImage] = {}
    hub: Hub | None = None
    storage: Storage | None = None
    not_yet: list[str] = []

    @property
    def usage(self) -> bool:
        """Whether use is recorded: with a hub, and where a team's work is ended or let in by it."""
        asked = [one.idle_timeout_s or one.per_user.limited for one in self.teams.values()]
        return self.hub is not None or any(asked)


class Containers(Part):
    """How GPU hosts of a site without Kubernetes run containers, with the toolkit.

    Either `docker` is there, or `podman`, by which jobs of Slurm do.
    """

    docker: Runtime | None = None
    podman: Runtime | None = None
    nvidia_container_toolkit: Sourced
    not_yet: list[str] = []


class Guest(Part):
    """A virtual machine of a hypervisor; its name is that of a host of a pool."""

    devices: list[str] = []
    vgpu: list[str] = []
    cpus: int
    memory_gib: int
    disk: str
    network: str
    mac: str | None = None


class Passthrough(Part):
    """What a hypervisor gives to its guests, and the IOMMU groups of it."""

    devices: list[str]
    iommu_groups: list[list[str]]


class Vgpu(Part):
    """A hypervisor's cards that are shared by vGPU, and the manager's version."""

    manager: str
    cards: list[str]


class Topology(Part):
    """Where a host stands, as far as the site says it."""

    rack: str | None = None
    leaf: str | None = None
    nvlink_domain: str | None = None


class Taint(Part):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Host(Part):
    """How a host is reached and where it belongs; `guests` are what runs on a hypervisor.

    What is reached directly, with the user's own keys and SSH configuration, says no more of it
    than address, port and user. A password is never there. `node_ip`, `labels` and `taints` are
    those that the site gives a node, and `kubelet` the fields of its own configuration that say
    what of it is for pods.
    """

    address: str
    port: int
    user: str
    jump: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    config: str | None = None
    options: tuple[str, ...] = ()
    pool: str | None
    groups: list[str]
    guests: dict[str, Guest] = {}
    topology: Topology | None = None
    node_ip: str | None = None
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    kubelet: dict[str, Any] = {}

    def connection(self, name: str) -> Connection:
        """Return how the host of this name is reached."""
        return Connection(
            name=name,
            address=self.address,
            port=self.port,
            user=self.user,
            jump=self.jump,
            keys=self.keys,
            config=self.config,
            options=self.options,
        )


class Gpu(Part):
    """The GPUs of one model in each host."""

    model: str
    pci: list[str]
    count: int


class Driver(Part):
    """The driver, with the exact version of each package."""

    version: str
    branch: str
    flavour: Literal["open", "proprietary"]
    source: Literal["distro", "vendor-repo", "runfile", "precompiled"]
    packages: dict[str, str]


class Fabric(Part):
    """Fabric Manager and its companions: the driver's version to the last digit.

    `kind` is what joins the boards: it decides which service runs on the host.
    """

    kind: Literal["nvswitch", "nvlink-5", "imex"]
    version: str
    packages: dict[str, str]


class Layout(Part):
    """What some GPUs of each host are cut into: instances by MIG profile; none is a whole GPU."""

    cards: list[int]
    profiles: dict[str, int] = {}


class Sharing(Part):
    """How pods share a GPU, and what holds back a share's memory and compute.

    `profile` is the one MIG profile of all GPUs. Where they differ, or one has several profiles,
    `layout` has each GPU once, by its number on the host. `share_memory` is the size of a share
    that claims of mode `dra` name where they name none of their own.
    """

    mode: Literal["none", "time-slicing", "mps", "mig", "hami", "dra"]
    replicas: int | None = None
    profile: str | None = None
    layout: list[Layout] = []
    share_memory: str | None = None
    memory: Word | None = None
    compute: Word | None = None


class Framework(Part):
    """A build of a framework, and the CUDA, cuDNN and NCCL that it brings: none for CPUs."""

    name: str
    version: str
    variant: str
    cuda: str | None
    cudnn: str | None = None
    nccl: str | None = None

    @property
    def identity(self) -> str:
        """Return framework, version and variant: the build's name in catalogue and images."""
        return f"{self.name}-{self.version}-{self.variant}"


class Rdma(Part):
    """The RDMA stack, how GPUs reach the network cards, and what pods get of them.

    Method `host-memory` is without GPUDirect.
    `pods` has the resource that each node offers to pods, with how many pods may have it at once;
    all of them share the node's devices. Where it is empty, RDMA serves programs on hosts alone.
    """

    stack: Literal["inbox", "doca"]
    method: Literal["dma-buf", "peermem", "host-memory"]
    pods: dict[str, int] = {}


class HpcTools(Part):
    """What hosts are tried and measured with: packages by tool, and why others are left out."""

    packages: dict[str, str] = {}
    left: dict[str, str] = {}


class Accelerator(Part):
    """The accelerators of another maker in each host."""

    vendor: str
    model: str
    count: int
    driver: str
    device_plugin: Image
    runtime: str | None = None


class Expects(Part):
    """What a node of the pool offers once the named stack is up; `by` slurm is no node at all.

    `also` are the further resources of a node whose GPUs are not all alike. `by` dra are devices in
    the node's ResourceSlices; pods ask for them by claims, or for whole ones by the resource.
    """

    resource: str
    count: int
    also: dict[str, int] = {}
    by: Literal["cluster", "schedulers", "slurm", "dra"]


class Pool(Part):
    """What the hosts of a pool have in common. What does not apply is absent.

    `not_yet` says what of this decision no role or stack of this version carries out: such a lock
    is for planning, and `site.yml` refuses it.
    """

    os: str
    kind: Literal["bare-metal", "passthrough", "hypervisor"]
    kernel: str | None = None
    secure_boot: bool = False
    memory_mib: int | None = None
    cpus: int | None = None
    disk_mib: int | None = None
    gpu: list[Gpu] = []
    accelerator: Accelerator | None = None
    nvidia_driver: Driver | None = None
    nvidia_fabric: Fabric | None = None
    passthrough: Passthrough | None = None
    vgpu: Vgpu | None = None
    cuda_toolkit: list[str] = []
    sharing: Sharing
    rdma: Rdma | None = None
    hpc_tools: HpcTools | None = None
    frameworks: list[Framework] = []
    expects: Expects | None = None
    not_yet: list[str] = []


class Lock(Part):
    """All decisions about a site. One without nodes of Kubernetes has no cluster.

    `containers` is there where its GPU hosts run containers by Docker alone. `not_yet` is as a
    pool's, for the hosts of such a site that are in no pool.
    """

    format: Literal[2]
    catalogue: str
    site_digest: str
    sources: Sources
    cluster: Cluster | None = None
    containers: Containers | None = None
    hosts: dict[str, Host]
    pools: dict[str, Pool]
    not_yet: list[str] = []

    @property
    def addons(self) -> set[str]:
        """Return the names of the cluster's add-ons."""
        return {one.name for one in self.cluster.addons} if self.cluster else set()

    @property
    def teams(self) -> dict[str, Team]:
        """Return the teams by name."""
        return self.cluster.teams if self.cluster else {}

    @property
    def courses(self) -> dict[str, Course]:
        """Return the courses by name."""
        return self.cluster.courses if self.cluster else {}

    @property
    def preset(self) -> Preset:
        """Return the decided values, or those of a site that chose no preset."""
        return (self.cluster and self.cluster.preset) or PLAIN
