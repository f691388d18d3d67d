"""The decision: exact versions for every host, as other parts read them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FORMAT = 1


class Part(BaseModel):
    """Base of all parts of a lock: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Sources(Part):
    """Where everything comes from."""

    mode: Literal["upstream", "mirror"]
    url: str | None = None


class Kubernetes(Part):
    """The cluster and its upstream configuration fields."""

    version: str
    endpoint: str
    pod_subnet: str
    service_subnet: str
    kubelet: dict[str, Any]
    kube_proxy: dict[str, Any]
    ignore_preflight: list[str]


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


class FromDistro(Part):
    """A component that is taken as the distribution has it."""

    source: Literal["distro"]


class Image(Part):
    """A component that is an image."""

    version: str
    image: str


class Cluster(Part):
    """What all hosts share."""

    kubernetes: Kubernetes
    etcd: Tagged
    coredns: Tagged
    pause: Versioned
    cni: Named
    cni_plugins: Versioned
    containerd: Sourced
    runc: FromDistro
    cri_tools: Versioned
    nvidia_container_toolkit: Sourced
    nvidia_device_plugin: Image


class Host(Part):
    """How a host is reached and where it belongs."""

    address: str
    port: int
    user: str
    pool: str | None
    groups: list[str]


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
    source: Literal["distro"]
    packages: dict[str, str]


class Sharing(Part):
    """How pods share a GPU."""

    mode: Literal["none"]


class Expects(Part):
    """What a node of the pool offers once the named stack is up."""

    resource: str
    count: int
    by: str


class Pool(Part):
    """What the hosts of a pool have in common."""

    os: str
    kind: str
    gpu: list[Gpu]
    nvidia_driver: Driver
    sharing: Sharing
    frameworks: list[str]
    expects: Expects


class Lock(Part):
    """All decisions about a site."""

    format: Literal[1]
    catalogue: str
    site_digest: str
    sources: Sources
    cluster: Cluster
    hosts: dict[str, Host]
    pools: dict[str, Pool]
