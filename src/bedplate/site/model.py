"""The user's wishes, typed. Everything has a default except what only the user can know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bedplate.site.courses import Course, Hub, Storage
from bedplate.site.hosts import (
    GUEST,
    Accelerator,
    ContainerRuntime,
    Driver,
    Gpu,
    Guest,
    Host,
    Passthrough,
    Vgpu,
)
from bedplate.site.kubernetes import Kubernetes
from bedplate.site.marks import VALUE, Taint
from bedplate.site.patterns import Name, Named, Wish
from bedplate.site.sharing import Sharing
from bedplate.site.sources import Login, Proxy, Sources, TeamImage
from bedplate.site.teams import PresetChoice, Team

VERSION = r"^[0-9]+(\.[0-9]+)*([-+~.][0-9A-Za-z.+~-]+)?$"
#: The value of a node's label.
LABEL = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"


class Topology(Wish):
    """Where a host stands: its rack, its leaf switch, and the NVLink domain of several hosts."""

    rack: Annotated[str, Field(pattern=LABEL)] | None = None
    """The rack. Left out: not known. Example: `r12`"""
    leaf: Annotated[str, Field(pattern=LABEL)] | None = None
    """The leaf switch. Left out: not known. Example: `leaf-3`"""
    nvlink_domain: Annotated[str, Field(pattern=LABEL)] | None = None
    """The NVLink domain that several hosts form. Left out: the host is in none. Example:
    `nvl72-1`"""


class Rdma(Wish):
    """The RDMA stack, whether nodes offer its devices to pods, and who owns it."""

    stack: Literal["inbox", "doca"]
    """The distribution's packages (`inbox`), or NVIDIA's DOCA-OFED (`doca`). Example: `inbox`"""
    pods: bool = True
    """Whether nodes offer their RDMA devices to pods. Example: `false`"""
    operator: Named | None = None
    """An operator in the cluster that manages the RDMA stack. Left out: the role `rdma` manages it.
    Example: `network-operator`"""


Component = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Exact = Annotated[str, Field(pattern=VERSION)]


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


class Wishes(Wish, title="Settings of a host"):
    """The effective settings of one host: every `bedplate_` variable.

    Of the roles' variables those are here that no host would take otherwise: what a pool or a host
    changes of kubelet's configuration.
    """

    bedplate_host: Host
    """What the hosts are; the one setting that every host needs. Example: `{os: debian-12}`"""
    bedplate_kubernetes: Kubernetes | None = None
    """The cluster. Left out: no Kubernetes, as for Slurm, hypervisors and hosts with Docker.
    Example: `{endpoint: "k8s.example:6443"}`"""
    bedplate_container_runtime: ContainerRuntime = ContainerRuntime()
    """What runs containers on all hosts. Example: `{name: cri-o}`"""
    bedplate_gpu: Annotated[list[Gpu], BeforeValidator(_as_list)] = []
    """The GPUs of each host of a pool; of several models, a list. Example: `{model: h100-sxm5-80gb,
    count: 8}`"""
    bedplate_driver: Driver = Driver()
    """Which NVIDIA driver a pool's hosts get. Example: `{branch: "580"}`"""
    bedplate_accelerator: Accelerator | None = None
    """Accelerators of another maker in each host of a pool. They are planned and cannot be
    installed by this version. Left out: there are none. Example: `{vendor: amd, model: mi300x,
    count: 8}`"""
    bedplate_cuda: list[Exact] = []
    """CUDA toolkits that are installed on a pool's hosts; containers bring their own. Example:
    `["12.6"]`"""
    bedplate_forward_compatibility: bool = False
    """Whether CUDA's forward compatibility packages may serve toolkits and frameworks that are
    newer than the driver. Example: `true`"""
    bedplate_passthrough: Passthrough | None = None
    """What a hypervisor gives to its guests. Left out: nothing. Example: `{devices:
    ["0000:17:00.0"], iommu_groups: [["0000:17:00.0"]]}`"""
    bedplate_vgpu: Vgpu | None = None
    """GPUs of a hypervisor that guests share by vGPU. Left out: none. Example: `{manager:
    580.65.05, cards: ["0000:41:00.0"]}`"""
    bedplate_guests: dict[Annotated[str, Field(pattern=GUEST)], Guest] = {}
    """A hypervisor's guests by name, which is that of a host in a pool of kind passthrough.
    Example: `{vm1: {devices: ["0000:17:00.0"], cpus: 16, memory_gib: 64, disk: /srv/vm1.qcow2,
    network: br0}}`"""
    bedplate_sharing: Annotated[Sharing, BeforeValidator(_of_parts)] = Sharing()
    """How pods share a pool's GPUs. Where GPUs of a host differ, a list with `cards` in each entry.
    Example: `{mode: time-slicing, replicas: 10}`"""
    bedplate_rdma: Rdma | None = None
    """The RDMA stack of a pool's hosts. Left out: none is installed. Example: `{stack: inbox}`"""
    bedplate_hpc_tools: bool = True
    """Whether GPU hosts get tools that try and measure them, as perftest and Open MPI. Example:
    `false`"""
    bedplate_schedulers: list[Named] = []
    """Queues and schedulers in the cluster, in addition to the preset's; with a version or without.
    Example: `[kueue, volcano]`"""
    bedplate_preset: Annotated[PresetChoice | None, BeforeValidator(_as_choice)] = None
    """What the cluster is for: values for queues and placement. The name alone, or with changes.
    Left out: no queue, unless `bedplate_schedulers` names one. Example: `research`"""
    bedplate_teams: dict[Name, Team] = {}
    """Teams by name, each with its members and its quota. Example: `{vision: {members: [alice],
    gpus: {pool_train: {guaranteed: 16}}}}`"""
    bedplate_courses: list[Course] = []
    """Courses, each with its students and what each of them gets. Example: `[{name: intro,
    students: 36, share: 0.1, pool: pool_class}]`"""
    bedplate_hub: Hub | None = None
    """The JupyterHub of the courses: how users sign in, and where. Left out: the hub's own sign-in,
    by plain HTTP. Example: `{url: "https://hub.example"}`"""
    bedplate_storage: Storage | None = None
    """Homes of users, and datasets. Left out: none. Example: `{homes: {path: /srv/homes}}`"""
    bedplate_images: dict[Name, TeamImage] = {}
    """Images of your own by name, for jobs of teams and for courses. Example: `{mycourse: {image:
    "r.example/x@sha256:0000000000000000000000000000000000000000000000000000000000000000", pool:
    pool_class}}`"""
    bedplate_topology: Topology | None = None
    """Where a host stands, for work that should stay below one switch. Left out: not known.
    Example: `{rack: r12, leaf: leaf-3}`"""
    bedplate_node_ip: str | None = None
    """The address by which a node speaks to the others, on hosts with several networks. Left out:
    `ansible_host` where the host has that address, else that of the default route. Example:
    `10.0.0.12`"""
    bedplate_labels: dict[str, Annotated[str, Field(pattern=VALUE)]] = {}
    """Labels of the nodes. Example: `{example.com/room: b12}`"""
    bedplate_taints: list[Taint] = []
    """Taints of the nodes of a pool. Example: `[{key: nvidia.com/gpu, value: present, effect:
    NoSchedule}]`"""
    bedplate_operators: list[Named] = []
    """Operators in the cluster, with a version or without. They are planned; most cannot be
    installed by this version. Example: `[gpu-operator]`"""
    bedplate_frameworks: list[Named] = []
    """Frameworks whose builds must run on the pool's driver and GPUs, with a version or without.
    Example: `[pytorch-2.11, jax]`"""
    bedplate_sources: Sources = Sources()
    """Where everything comes from. Example: `{mode: mirror, url: "http://mirror.example:5080"}`"""
    bedplate_sources_login: Login | None = None
    """Who logs in to `files` and `registry` of the sources; it belongs in a vault and is in no
    lock. Left out: no login. Example: `{user: puller, password: aPasswordInAVault}`"""
    bedplate_proxy: Proxy | None = None
    """The proxy by which hosts reach the internet. Left out: hosts reach it directly. Example:
    `{url: "http://proxy.example:3128"}`"""
    bedplate_pins: dict[Component, Exact] = {}
    """Exact versions of components by name, kept or refused. Example: `{nvidia_driver:
    580.126.20}`"""
    kubernetes_node_kubelet: dict[str, Any] = {}
    """Fields of kubelet's configuration for a pool or a host, over those of
    `bedplate_kubernetes.kubelet`. Example: `{maxPods: 250}`"""


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
PREFIX = "bedplate_"
#: What is left of settings where the prefix is left out.
BARE = frozenset(key.removeprefix(PREFIX) for key in KEYS if key.startswith(PREFIX))
#: What the model of a pool's GPUs is written below where their setting is left out.
OF_GPUS = ("gpu", "model")
#: Those of them that variables of other roles are called too.
COMMON = ("guests", "hub", "images", "proxy", "sources", "storage", "taints", "teams", "topology")
