"""From `facts/*.yml` to typed tables, checked against each other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import cluster_facts as cluster
from bedplate.catalogue import driver_facts as driver
from bedplate.catalogue import facts as kinds
from bedplate.catalogue import hardware_facts as hardware
from bedplate.catalogue import kubernetes_facts as settings
from bedplate.catalogue import published_facts as published
from bedplate.catalogue import sharing_facts as sharing
from bedplate.catalogue import system_facts as system
from bedplate.catalogue.check import check, fact_problem
from bedplate.catalogue.compiled import kept
from bedplate.catalogue.rows import Kind, rows_of
from bedplate.common.errors import CatalogueError
from bedplate.common.nearest import models_like, nearest, same_digits, write_one

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from bedplate.catalogue.facts import Fact
    from bedplate.common.errors import Problem


#: Kinds of fact by file.
KINDS: dict[str, Kind] = {
    "accelerators": Kind("accelerator", hardware.Accelerator, ("accelerator",)),
    "addons": Kind("addon", cluster.Addon, ("addon", "version")),
    "architectures": Kind("architecture", hardware.Architecture, ("architecture",)),
    "artifacts": Kind("artifact", published.Artifact, ("artifact",)),
    "components": Kind("component", cluster.Component, ("component", "version")),
    "configuration-fields": Kind(
        "fields", settings.ConfigurationFields, ("document", "kubernetes_from")
    ),
    "configuration-rules": Kind(
        "configuration-rule", settings.ConfigurationRule, ("document", "rule")
    ),
    "container-runtimes": Kind("runtime", cluster.ContainerRuntime, ("runtime", "version", "os")),
    "cuda-majors": Kind("cuda-major", driver.CudaMajor, ("major",)),
    "cuda-targets": Kind("cuda-target", driver.CudaTarget, ("compute_capability",)),
    "cuda-toolkits": Kind("cuda", driver.CudaToolkit, ("version",)),
    "distribution-archives": Kind("archive", driver.DistributionArchive, ("archive",)),
    "driver-branches": Kind("branch", driver.DriverBranch, ("branch",)),
    "driver-packages": Kind(
        "driver", driver.DriverPackages, ("os", "source", "version", "flavour")
    ),
    "fabric-switches": Kind("switch", hardware.FabricSwitch, ("switch",)),
    "fabrics": Kind("fabric", hardware.Fabric, ("fabric",)),
    "feature-gates": Kind("gates", settings.FeatureGates, ("kubernetes",)),
    "forward-compatibility": Kind("forward", driver.ForwardCompatibility, ("cuda",)),
    "framework-limits": Kind("framework-limit", published.FrameworkLimit, ("limit",)),
    "framework-packages": Kind("package", published.FrameworkPackage, ("framework",)),
    "frameworks": Kind("framework", published.FrameworkBuild, ("framework", "version", "variant")),
    "gpu-models": Kind("gpu", hardware.GpuModel, ("model",)),
    "host-packages": Kind("host-packages", system.HostPackages, ("os", "part")),
    "hpc-tools": Kind("tool", system.HpcTool, ("tool",)),
    "hypervisor-settings": Kind("setting", system.HypervisorSetting, ("platform", "setting")),
    "images": Kind("image", published.Image, ("image",)),
    "installable": Kind("installable", system.Installable, ("dimension",)),
    "kernels": Kind("kernel", system.Kernel, ("os", "kernel")),
    "known-bad": Kind("bad", kinds.KnownBad, ("bad",)),
    "kubernetes": Kind("kubernetes", cluster.KubernetesRelease, ("version",)),
    "kubernetes-ends": Kind("kubernetes-end", cluster.KubernetesEnd, ("minor",)),
    "memory-reserves": Kind("reserve", sharing.MemoryReserve, ("reserve",)),
    "mig-conditions": Kind("mig-condition", sharing.MigCondition, ("model",)),
    "mig-geometries": Kind("mig", sharing.MigGeometry, ("geometry",)),
    "mps-effects": Kind("mps-effect", sharing.MpsEffect, ("effect",)),
    "mps-limits": Kind("mps", sharing.MpsLimit, ("limit",)),
    "node-limits": Kind("node-limit", settings.NodeLimit, ("limit",)),
    "node-reserves": Kind("node-reserve", settings.NodeReserve, ("resource",)),
    "own-pods": Kind("own-pods", settings.OwnPods, ("part",)),
    "node-needs": Kind("need", settings.NodeNeed, ("need",)),
    "rdma-paths": Kind("rdma", driver.RdmaPath, ("path",)),
    "registries": Kind("registry", published.Registry, ("registry",)),
    "repositories": Kind("repository", driver.Repository, ("os", "source")),
    "runtime-repositories": Kind("runtime-repository", cluster.RuntimeRepository, ("vendor", "os")),
    "sharing-modes": Kind("sharing", sharing.SharingMode, ("sharing",)),
    "snapshots": Kind("snapshot", driver.Snapshot, ("archive",)),
    "subnet-limits": Kind("subnet", settings.SubnetLimit, ("limit",)),
    "systems": Kind("system", system.System, ("os",)),
    "unmeasured-modes": Kind("unmeasured", sharing.UnmeasuredMode, ("mode",)),
}


@dataclass(frozen=True)
class Catalogue:
    """All facts, by kind and name; `added` and `overridden` are the ids of those of a site."""

    accelerators: dict[str, Fact[hardware.Accelerator]]
    addons: dict[str, Fact[cluster.Addon]]
    architectures: dict[str, Fact[hardware.Architecture]]
    artifacts: dict[str, Fact[published.Artifact]]
    components: dict[str, Fact[cluster.Component]]
    configuration_fields: dict[str, Fact[settings.ConfigurationFields]]
    configuration_rules: dict[str, Fact[settings.ConfigurationRule]]
    container_runtimes: dict[str, Fact[cluster.ContainerRuntime]]
    cuda_majors: dict[str, Fact[driver.CudaMajor]]
    cuda_targets: dict[str, Fact[driver.CudaTarget]]
    cuda_toolkits: dict[str, Fact[driver.CudaToolkit]]
    distribution_archives: dict[str, Fact[driver.DistributionArchive]]
    driver_branches: dict[str, Fact[driver.DriverBranch]]
    driver_packages: dict[str, Fact[driver.DriverPackages]]
    fabric_switches: dict[str, Fact[hardware.FabricSwitch]]
    fabrics: dict[str, Fact[hardware.Fabric]]
    feature_gates: dict[str, Fact[settings.FeatureGates]]
    forward_compatibility: dict[str, Fact[driver.ForwardCompatibility]]
    framework_limits: dict[str, Fact[published.FrameworkLimit]]
    framework_packages: dict[str, Fact[published.FrameworkPackage]]
    frameworks: dict[str, Fact[published.FrameworkBuild]]
    gpu_models: dict[str, Fact[hardware.GpuModel]]
    host_packages: dict[str, Fact[system.HostPackages]]
    hpc_tools: dict[str, Fact[system.HpcTool]]
    hypervisor_settings: dict[str, Fact[system.HypervisorSetting]]
    images: dict[str, Fact[published.Image]]
    installable: dict[str, Fact[system.Installable]]
    kernels: dict[str, Fact[system.Kernel]]
    known_bad: dict[str, Fact[kinds.KnownBad]]
    kubernetes: dict[str, Fact[cluster.KubernetesRelease]]
    kubernetes_ends: dict[str, Fact[cluster.KubernetesEnd]]
    memory_reserves: dict[str, Fact[sharing.MemoryReserve]]
    mig_conditions: dict[str, Fact[sharing.MigCondition]]
    mig_geometries: dict[str, Fact[sharing.MigGeometry]]
    mps_effects: dict[str, Fact[sharing.MpsEffect]]
    mps_limits: dict[str, Fact[sharing.MpsLimit]]
    node_limits: dict[str, Fact[settings.NodeLimit]]
    node_reserves: dict[str, Fact[settings.NodeReserve]]
    own_pods: dict[str, Fact[settings.OwnPods]]
    node_needs: dict[str, Fact[settings.NodeNeed]]
    rdma_paths: dict[str, Fact[driver.RdmaPath]]
    registries: dict[str, Fact[published.Registry]]
    repositories: dict[str, Fact[driver.Repository]]
    runtime_repositories: dict[str, Fact[cluster.RuntimeRepository]]
    sharing_modes: dict[str, Fact[sharing.SharingMode]]
    snapshots: dict[str, Fact[driver.Snapshot]]
    subnet_limits: dict[str, Fact[settings.SubnetLimit]]
    systems: dict[str, Fact[system.System]]
    unmeasured_modes: dict[str, Fact[sharing.UnmeasuredMode]]
    digest: str
    added: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()

    def tables(self) -> dict[str, dict[str, Fact[Any]]]:
        """Return every table by the name of its file."""
        return {file: getattr(self, file.replace("-", "_")) for file in KINDS}

    def gpus_like(self, word: str) -> list[str]:
        """Return the GPU models that *word* means, as people or `nvidia-smi` write it."""
        products = {name: fact.value.name for name, fact in self.gpu_models.items()}
        if found := models_like(word, products, products):
            return found
        plain = "-".join(word.lower().split())
        called = self.gpu_models.items()
        return sorted(name for name, fact in called if plain in fact.value.aliases)

    def instead_of_gpu(self, word: str) -> tuple[str, str]:
        """Return what is allowed in place of an unknown GPU, and a fix: never other hardware."""
        if close := self.gpus_like(word):
            return ", ".join(close), write_one(word, close)
        if others := models_like(word, self.accelerators):
            vendor = self.accelerators[others[0]].value.vendor
            fix = f"write bedplate_accelerator: {{vendor: {vendor}, model: {others[0]}, count: …}}"
            return "a model of NVIDIA's", fix
        fix = "look for it with `bedplate gpus`: what that does not list is not supported"
        return "a model of the catalogue", fix

    def instead_of_system(self, word: str) -> tuple[str, str]:
        """Return what is allowed in place of an unknown system, and a fix: no other release."""
        names, plain = sorted(self.systems), word.lower()
        alike = nearest(plain, same_digits(plain, names))
        point = [name for name in names if plain.startswith(f"{name}.")]
        series = [name for name in names if name.startswith((f"{plain}-", f"{plain}."))]
        close = [alike] if alike else point or series
        fix = f"write {' or '.join(close)}" if close else "use one of these systems"
        return ", ".join(names), fix

    def fact(self, identifier: str) -> Fact[Any]:
        """Return a fact by its id. Raises KeyError if there is none."""
        prefix, _, name = identifier.partition("/")
        for file, kind in KINDS.items():
            if kind.prefix == prefix:
                found: Fact[Any] = self.tables()[file][name]
                return found
        raise KeyError(identifier)


@cache
def load_catalogue() -> Catalogue:
    """Return the catalogue that comes with Bedplate."""
    folder = files("bedplate.catalogue") / "facts"
    if isinstance(folder, Path):
        return kept(folder, lambda: read_catalogue(folder))
    return read_catalogue(folder)


def read_catalogue(folder: Traversable) -> Catalogue:
    """Read and check a folder of facts. Raises CatalogueError with everything that is wrong."""
    problems: list[Problem] = []
    tables: dict[str, list[Fact[Any]]] = {}
    content = hashlib.sha256()
    for file in KINDS:
        data = (folder / f"{file}.yml").read_bytes()
        content.update(f"{file} {len(data)}\n".encode() + data)
        tables[file], wrong = _table(file, data)
        problems += wrong
    problems += check(tables)
    if problems:
        raise CatalogueError(problems)
    return assembled(tables, f"sha256:{content.hexdigest()}")


def assembled(tables: Mapping[str, list[Fact[Any]]], digest: str) -> Catalogue:
    """Return the catalogue of some tables, by file; nothing is checked."""
    named: dict[str, Any] = {
        file.replace("-", "_"): {kind.name_of(fact.value): fact for fact in tables[file]}
        for file, kind in KINDS.items()
    }
    return Catalogue(**named, digest=digest)


def _table(file: str, data: bytes) -> tuple[list[Fact[Any]], list[Problem]]:
    table: list[Fact[Any]] = []
    problems: list[Problem] = []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for row in rows_of(KINDS[file], yaml.load(data, loader)):  # noqa: S506
        if row.fact is not None:
            table.append(row.fact)
        for _, path, what in row.wrong:
            got = ": ".join(filter(None, (".".join(map(str, path)), what)))
            problems.append(fact_problem("fact is malformed", file, row.key, got))
    return table, problems
