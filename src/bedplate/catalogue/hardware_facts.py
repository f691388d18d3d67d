"""What hardware is: GPU boards, their architectures, other makers' accelerators, switches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.catalogue.facts import Branch, ComputeCapability, Flavour, Market, Pci, Value, Version


class GpuModel(Value):
    """A GPU board.

    `subsystems` narrows `pci` where one device id is several boards. `flavours` is what the board
    itself can run, whatever the branch; `open_from` is the first driver whose open module lists
    it, `driver_from` the first driver qualified for it. `fabric` is what joins the GPUs of a host
    of at least `fabric_from` of them. `host_cpu` is the CPU that the board is one with, in the
    words of `uname -m`; a card, which goes into any machine, has none. `aliases` are machines that
    have this GPU alone, as people call them.
    """

    model: str
    name: str
    aliases: list[str] = []
    architecture: str
    compute_capability: ComputeCapability
    pci: Annotated[list[Pci], Field(min_length=1)]
    subsystems: list[Pci] = []
    market: Market
    memory_gib: int | None = None
    flavours: Annotated[list[Flavour], Field(min_length=1)]
    open_from: Version | None = None
    driver_from: Version | None = None
    fabric: Literal["nvswitch", "nvlink-5", "imex"] | None = None
    fabric_from: int | None = None
    host_cpu: Literal["aarch64"] | None = None


class Fabric(Value):
    """What joins the GPUs of a host, and the packages that it cannot do without.

    `packages` are names without the driver's branch. Those of `own_versions` do not carry the
    driver's version.
    """

    fabric: Literal["nvswitch", "nvlink-5", "imex"]
    packages: Annotated[list[str], Field(min_length=1)]
    own_versions: list[str] = []


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
