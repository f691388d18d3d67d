"""What drives a GPU: branches, packages and where they lie, CUDA, GPUDirect RDMA."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - Pydantic needs it when it runs
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bedplate.catalogue.facts import Branch, ComputeCapability, Flavour, Market, Value, Version


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

    The bill reads the index alone, to see what is offered. A mirror also takes packages from it,
    and then `further` components too, where what the driver depends on lies. The index is signed,
    so that its address may be without TLS; only dnf's may be left unsigned (`signed_index`), and
    then each package is signed. dnf's repositories have neither suites nor components.
    """

    archive: str
    os: str
    url: Annotated[str, Field(pattern=r"^https?://\S+/$")]
    format: Literal["deb", "rpm"] = "deb"
    suites: list[str] = []
    components: list[str] = []
    further: list[str] = []
    key: Annotated[str, Field(pattern=r"^https?://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]
    signed_index: bool = True

    @model_validator(mode="after")
    def _fits_its_format(self) -> Self:
        if self.format == "deb" and not (self.suites and self.components and self.signed_index):
            raise ValueError("an archive of apt's has suites, components and a signed index")
        if self.format == "rpm" and (self.suites or self.components or self.further):
            raise ValueError("a repository of dnf's has neither suites nor components")
        return self


class Snapshot(Value):
    """Where a distribution keeps what its archive offered on a day; `{time}` is that day's."""

    archive: str
    url: Annotated[str, Field(pattern=r"^https://\S+/\{time\}/$")]


class CudaToolkit(Value):
    """A CUDA toolkit and the first driver with all its features."""

    version: Version
    driver_from: Version


class CudaTarget(Value):
    """The first CUDA that compiles for a compute capability, where its architecture's does not."""

    compute_capability: ComputeCapability
    cuda_from: Version


class CudaMajor(Value):
    """Minor-version compatibility: the first driver that runs any toolkit of a major version."""

    major: str
    driver_from: Version


class ForwardCompatibility(Value):
    """The driver branches on which the compatibility package of a CUDA version runs."""

    cuda: Version
    branches: Annotated[list[Branch], Field(min_length=1)]


class RdmaPath(Value):
    """A way from network cards to a GPU's memory, and what it asks of driver, kernel and board.

    `host-memory` is RDMA without GPUDirect: what a GPU sends is copied to the host's memory first.
    `markets` are the boards that the way serves; GeForce has no GPUDirect. A way that is
    `only_with` some markets is for hosts that have a board of one of them.
    """

    path: str
    stack: Literal["inbox", "doca"]
    method: Literal["dma-buf", "peermem", "host-memory"]
    markets: Annotated[list[Market], Field(min_length=1)] = [
        "data-centre",
        "workstation",
        "embedded",
    ]
    only_with: list[Market] = []
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    architectures: Annotated[list[str], Field(min_length=1)]
    kernel_from: Version | None
    cuda_from: Version | None
