"""What a fact is, and what each kind of fact says."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - Pydantic needs it when it runs
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Sure = Literal["vendor", "tested", "secondary", "unproved"]
Flavour = Literal["open", "proprietary"]
Branch = Annotated[str, Field(pattern=r"^[0-9]{3}$")]


class Value(BaseModel):
    """Base of what facts say: immutable and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Value):
    """Where a fact was read, and when."""

    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    read: date


class GpuModel(Value):
    """A GPU board. From `nvswitch_from` boards on, a host needs Fabric Manager."""

    model: str
    name: str
    architecture: str
    pci: Annotated[list[str], Field(min_length=1)]
    nvswitch_from: int | None


class Architecture(Value):
    """The driver branches and module flavours that drive an architecture."""

    architecture: str
    compute_capabilities: list[str]
    first_branch: Branch
    last_branch: Branch | None
    flavours: Annotated[list[Flavour], Field(min_length=1)]


class DriverBranch(Value):
    """A driver branch and how long its maker looks after it."""

    branch: Branch
    type: Literal["lts", "production", "new-feature"]
    end_of_life: date | None
    cuda: str


class DriverPackages(Value):
    """The packages that bring one driver to one system, with their exact versions."""

    os: str
    source: str
    flavour: Flavour
    branch: Branch
    version: str
    packages: Annotated[dict[str, str], Field(min_length=1)]


class System(Value):
    """An operating system."""

    os: str
    name: str


class Tagged(Value):
    """A version and the tag of its image."""

    version: str
    image_tag: str


class Versioned(Value):
    """A version."""

    version: str


class Named(Value):
    """A version of something that was chosen."""

    name: str
    version: str


class Sourced(Value):
    """A version and the form in which it comes."""

    version: str
    source: Literal["archive", "distro"]


class FromDistro(Value):
    """Whatever the distribution has."""

    source: Literal["distro"]


class PluginImage(Value):
    """A version and its image."""

    version: str
    image: str


class CgroupV1(Value):
    """The kubelet field that has to be false for cgroup v1."""

    allowed_by: str


class KubernetesRelease(Value):
    """A Kubernetes release with the components that go with it."""

    version: str
    etcd: Tagged
    coredns: Tagged
    pause: Versioned
    cni: Named
    cni_plugins: Versioned
    containerd: Sourced
    runc: FromDistro
    cri_tools: Versioned
    nvidia_container_toolkit: Sourced
    nvidia_device_plugin: PluginImage
    cgroup_v1: CgroupV1


class Artifact(Value):
    """Where upstream publishes a file; `{version}` is the component's in the lock."""

    artifact: str
    component: str
    url: str
    sha256: str | None


class Fact[V: Value](Value):
    """Something the world allows or forbids, with where it was read and how sure it is."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[A-Za-z0-9._-]+$")]
    value: V
    when: str | None = None
    reason: Annotated[str, Field(min_length=1)]
    source: Source
    sure: Sure
