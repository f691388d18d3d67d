"""Operating systems, tools of hosts and hypervisors, and what Bedplate can install."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.catalogue.facts import Value


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


class HypervisorSetting(Value):
    """A setting of another hypervisor that may be written out; `N` counts devices."""

    platform: Literal["vsphere", "proxmox"]
    setting: str
    meaning: str


class HostPackages(Value):
    """Packages that roles install in whatever version a host's sources have, by what needs them.

    `module` is what a driver's module is built with, `hypervisor` what guests run on, and `nfs`
    what mounts folders of NFS servers.
    """

    os: str
    part: Literal[
        "containerd",
        "cri-o",
        "docker",
        "podman",
        "module",
        "rdma",
        "keepalived",
        "haproxy",
        "slurm",
        "hypervisor",
        "nfs",
    ]
    packages: Annotated[list[str], Field(min_length=1)]


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


class Installable(Value):
    """What this version's roles and stacks can carry out; what is missing is planned only.

    `values` was run for real, `stand_in` with packages that have the vendor's names, versions and
    dependencies and nothing else of theirs, and `unproved` was written and never run as a whole.
    """

    dimension: str
    values: list[str] = []
    stand_in: list[str] = []
    unproved: list[str] = []
