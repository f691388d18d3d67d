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
    leaf: Annotated[str, Field(pattern=LABEL)] | None = None
    nvlink_domain: Annotated[str, Field(pattern=LABEL)] | None = None


class Rdma(Wish):
    """The RDMA stack, whether nodes offer its devices to pods, and who owns it."""

    stack: Literal["inbox", "doca"]
    pods: bool = True
    operator: Named | None = None


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
