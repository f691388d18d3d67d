"""What a cluster is made of: Kubernetes releases, container runtimes, components, add-ons."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - Pydantic needs it when it runs
from typing import Annotated, Literal

from pydantic import Field

from bedplate.catalogue.facts import Chart, Value, Version


class RuntimeRepository(Value):
    """Where a container runtime's packages for a system lie, and the key that they are trusted by.

    `key` is the key file's whole address; `suite` and `components` are apt's. `{minor}` in the
    addresses and the origin is the runtime's, as in 1.36.
    """

    os: str
    vendor: str
    runtimes: list[Literal["containerd", "cri-o", "docker"]]
    format: Literal["deb", "rpm"]
    url: Annotated[str, Field(pattern=r"^https://\S+/$")]
    suite: str | None = None
    components: str | None = None
    key: Annotated[str, Field(pattern=r"^https://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]
    origin: str


class Tagged(Value):
    """A version and the tag of its image."""

    version: Version
    image_tag: str


class Versioned(Value):
    """A version."""

    version: Version


class CgroupV1(Value):
    """The kubelet field that has to be false for cgroup v1."""

    allowed_by: str


class KubernetesRelease(Value):
    """A Kubernetes release with what kubeadm of that release pulls.

    `mutating_policies` is the version in which its API server has MutatingAdmissionPolicy without a
    feature gate, null where it has not or nobody looked.
    """

    version: Version
    etcd: Tagged
    coredns: Tagged
    pause: Versioned
    cgroup_v1: CgroupV1 | None = None
    mutating_policies: str | None = None


class KubernetesEnd(Value):
    """The day on which upstream ends a minor release of Kubernetes."""

    minor: Annotated[str, Field(pattern=r"^1\.[0-9]+$")]
    end_of_life: date


class ContainerRuntime(Value):
    """A container runtime, the Kubernetes releases that it serves, and whether it speaks CDI.

    `os` is the system that its packages are for; null for release archives. `packages` are the
    vendor's, with their exact versions.
    """

    runtime: Literal["containerd", "cri-o", "docker", "podman"]
    version: Version
    source: Literal["archive", "distro", "vendor-repo"]
    os: str | None = None
    packages: dict[str, str] = {}
    kubernetes_from: Version | None
    kubernetes_upto: Version | None
    cdi: bool


class Component(Value):
    """A part of a cluster, with the Kubernetes releases and drivers that it goes with.

    `driver_from` is what its maker supports; `driver_seen` an older one that it has run with here.
    """

    component: Literal[
        "flannel",
        "cilium",
        "cni_plugins",
        "cri_tools",
        "runc",
        "nvidia_container_toolkit",
        "nvidia_device_plugin",
        "nvidia_dra_driver",
        "rdma_device_plugin",
    ]
    version: Version
    kubernetes_from: Version | None = None
    kubernetes_upto: Version | None = None
    driver_from: Version | None = None
    driver_seen: Version | None = None
    image: str | None = None


class Addon(Value):
    """A scheduler, operator or driver that goes into the cluster when it is wished for.

    `owns` are the extended resources that its own device plugin registers: on every node, or with
    `owns_in_mode` only on nodes of pools with that sharing mode. `excludes` are the add-ons that
    cannot be beside it, `needs` those that must. `chart` ends with the chart's name: an OCI
    artefact, whose tag is the version where it names none, or a chart of a repository.
    `controller_requests` are the requests a second that each of Kubernetes' controllers may send
    beside it, where kubeadm's own limit is too low.
    """

    addon: str
    kind: Literal["scheduler", "operator", "dra"]
    version: Version
    kubernetes_from: Version
    kubernetes_upto: Version | None
    driver_from: Version | None = None
    owns: list[str] = []
    owns_in_mode: Literal["hami"] | None = None
    needs: list[str] = []
    excludes: list[str] = []
    chart: Chart | None = None
    controller_requests: int | None = None
