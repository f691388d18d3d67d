"""The user's wishes, typed. Everything has a default except what only the user can know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

NAME = r"^[a-z0-9][a-z0-9.-]*$"
VERSION = r"^[0-9]+(\.[0-9]+)*([-+~.][0-9A-Za-z.+~-]+)?$"
PCI = r"^[0-9a-f]{4}:[0-9a-f]{4}$"
# Named hosts, IPv4, or IPv6 in brackets; a port is part of it.
ENDPOINT = r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$"
CIDR = r"^[0-9A-Fa-f.:]+/[0-9]{1,3}$"


class Wish(BaseModel):
    """Base of all wishes: immutable, nothing unknown, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Gpu(Wish):
    """The GPUs of each host of a pool: by the model's name, or by PCI identifier."""

    model: Annotated[str, Field(pattern=NAME)] | None = None
    pci: Annotated[str, Field(pattern=PCI)] | None = None
    subsystem: Annotated[str, Field(pattern=PCI)] | None = None
    count: Annotated[int, Field(ge=1, le=64)]


class Driver(Wish):
    """Which driver: a policy, or a branch; the module's flavour; where packages come from."""

    policy: Literal["lts", "production", "new-feature"] = "lts"
    branch: Annotated[str, Field(pattern=r"^[0-9]{3}$")] | None = None
    flavour: Literal["open", "proprietary"] | None = None
    source: Literal["distro", "vendor-repo", "runfile", "precompiled"] = "distro"


class Host(Wish):
    """What the hosts are."""

    os: Annotated[str, Field(pattern=NAME)]
    kind: Literal["bare-metal", "passthrough", "hypervisor"] = "bare-metal"
    kernel: str | None = None


class Kubernetes(Wish):
    """The cluster; `kubelet` and `kube_proxy` are configuration fields as upstream spells them."""

    version: Annotated[str, Field(pattern=r"^1\.[0-9]+(\.[0-9]+)?$")]
    endpoint: Annotated[str, Field(pattern=ENDPOINT)]
    cni: Literal["flannel", "cilium"] = "flannel"
    pod_subnet: Annotated[str, Field(pattern=CIDR)] = "10.244.0.0/16"
    service_subnet: Annotated[str, Field(pattern=CIDR)] = "10.96.0.0/12"
    kubelet: dict[str, Any] = {}
    kube_proxy: dict[str, Any] = {}
    ignore_preflight: list[str] = []


class Sharing(Wish):
    """How pods share a GPU."""

    mode: Literal["none", "time-slicing", "mps", "mig", "hami"] = "none"
    replicas: Annotated[int, Field(ge=1)] | None = None
    profile: str | None = None


class Rdma(Wish):
    """The RDMA stack and who owns it."""

    stack: str
    operator: str | None = None


class Sources(Wish):
    """Where everything comes from."""

    mode: Literal["upstream", "mirror"] = "upstream"
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")] | None = None


Component = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Exact = Annotated[str, Field(pattern=VERSION)]


def _as_list(value: object) -> object:
    """One kind of GPU may be written without the list around it."""
    return [value] if isinstance(value, dict) else value


class Wishes(Wish):
    """The effective wishes of one host: every `bedplate_` variable."""

    bedplate_host: Host
    bedplate_kubernetes: Kubernetes
    bedplate_gpu: Annotated[list[Gpu], BeforeValidator(_as_list)] = []
    bedplate_driver: Driver = Driver()
    bedplate_cuda: list[Exact] = []
    bedplate_sharing: Sharing = Sharing()
    bedplate_rdma: Rdma | None = None
    bedplate_schedulers: list[str] = []
    bedplate_frameworks: list[str] = []
    bedplate_sources: Sources = Sources()
    bedplate_pins: dict[Component, Exact] = {}


#: Wishes about what all hosts share: they must be the same everywhere.
SHARED = ("bedplate_kubernetes", "bedplate_sources", "bedplate_schedulers")
KEYS = tuple(Wishes.model_fields)
