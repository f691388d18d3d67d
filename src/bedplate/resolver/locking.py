"""From what the solver decided to the lock's parts, with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.lock import model as locked
from bedplate.portable import node_reserve
from bedplate.portable.quantities import mebibytes
from bedplate.resolver import hpc_tools, rdma_pods, sharing
from bedplate.resolver import preferences as prefer
from bedplate.resolver.node_pods import COUNTED
from bedplate.resolver.outcome import Reason
from bedplate.resolver.wishes import DRA_DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.cluster_facts import ContainerRuntime
    from bedplate.catalogue.driver_facts import DriverPackages
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.hardware_facts import Accelerator
    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.wishes import Subject
    from bedplate.site import SiteHost

RUNTIMES = ("containerd", "cri_o", "docker", "podman")
#: Parts of a pool that are there only where they are decided.
PARTS = (
    "kernel",
    "secure_boot",
    "accelerator",
    "vgpu",
    "nvidia_fabric",
    "cuda_toolkit",
    "rdma",
    "frameworks",
)


def cluster(
    subject: Subject,
    values: Mapping[str, str],
    candidates: Candidates,
    untainted: Iterable[str] = (),
) -> locked.Cluster:
    """Return the lock's shared part from the ids that were decided."""
    facts = candidates.facts
    wished = subject.host.wishes.bedplate_kubernetes
    if wished is None:
        raise AssertionError("a cluster without bedplate_kubernetes: reading the site refuses it")
    release = facts[values["kubernetes"]].value
    runtime = facts[values["runtime"]].value
    cni = facts[values["cni"]].value
    parts = {key: facts[values[key]].value for key in ("cni_plugins", "cri_tools")}
    toolkit = facts[values["nvidia_container_toolkit"]].value
    plugin = facts[values["nvidia_device_plugin"]].value
    field = runtime.runtime.replace("-", "_")
    addons = [
        facts[value].value for key, value in sorted(values.items()) if key.startswith("addon(")
    ]
    settings = wished.model_dump(mode="json", exclude={"cni", "control_plane_taint"})
    if wished.controller_requests is None:
        needed = [addon.controller_requests for addon in addons if addon.controller_requests]
        settings["controller_requests"] = max(needed, default=None)
    settings["room"] = node_room(wished.kubelet, candidates.catalogue)
    return locked.Cluster.model_validate(
        {
            "kubernetes": settings | {"version": release.version, "untainted": sorted(untainted)},
            "etcd": release.etcd.model_dump(),
            "coredns": release.coredns.model_dump(),
            "pause": release.pause.model_dump(),
            "cni": {"name": cni.component, "version": cni.version},
            **{key: {"version": part.version} for key, part in parts.items()},
            field: _runtime(runtime),
            "runc": {"source": "distro"},
            "nvidia_container_toolkit": {"version": toolkit.version, "source": "archive"},
            "nvidia_device_plugin": {"version": plugin.version, "image": plugin.image or ""},
            **_dra_driver(values, facts),
            "addons": [
                {"name": addon.addon, "kind": addon.kind, "version": addon.version}
                for addon in addons
            ],
        }
    )


def containers(values: Mapping[str, str], candidates: Candidates) -> locked.Containers:
    """Return how hosts without Kubernetes run containers, from the ids that were decided."""
    runtime = candidates.facts[values["runtime"]].value
    toolkit = candidates.facts[values["nvidia_container_toolkit"]].value
    return locked.Containers.model_validate(
        {
            runtime.runtime: _runtime(runtime),
            "nvidia_container_toolkit": {"version": toolkit.version, "source": "archive"},
        }
    )


def runtime_of(part: locked.Cluster | locked.Containers) -> locked.Runtime:
    """Return the container runtime of a cluster, or of hosts without one."""
    found: Iterator[locked.Runtime | None] = (getattr(part, name, None) for name in RUNTIMES)
    return next(one for one in found if one is not None)


def _runtime(fact: ContainerRuntime) -> locked.Runtime:
    return locked.Runtime(version=fact.version, source=fact.source, packages=fact.packages)


def node_room(kubelet: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return what nodes keep and limit, as far as the site does not say it itself."""
    found: dict[str, Any] = {}
    if not any(kubelet.get(name) for name in node_reserve.RESERVED):
        found = {
            name: {"base": fact.value.base, "percent": fact.value.percent}
            for name, fact in catalogue.node_reserves.items()
        }
    limit = catalogue.node_limits.get("pod-processes")
    if limit is not None and kubelet.get(node_reserve.PROCESSES) is None:
        found["processes"] = limit.value.most
    return found


def _dra_driver(values: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Any]:
    if DRA_DRIVER not in values:
        return {}
    return {DRA_DRIVER: {"version": facts[values[DRA_DRIVER]].value.version}}


def pool(subject: Subject, values: Mapping[str, str], candidates: Candidates) -> locked.Pool:
    """Return a pool's part of the lock from what was decided for it."""
    facts, wishes = candidates.facts, subject.host.wishes
    gpus = [(wish.model.value, wish.number) for wish in subject.wishes if wish.model]
    content: dict[str, Any] = {
        "os": wishes.bedplate_host.os,
        "kind": wishes.bedplate_host.kind,
        "kernel": _kernel(subject, values, candidates),
        "secure_boot": wishes.bedplate_host.secure_boot,
        "cpus": wishes.bedplate_host.cpus,
        "gpu": [{"model": gpu.model, "pci": gpu.pci, "count": count} for gpu, count in gpus],
    }
    for key in ("memory", "disk"):
        if (size := getattr(wishes.bedplate_host, key)) is not None:
            content[f"{key}_mib"] = mebibytes(size)
    if (driver := driver_of(values, facts)) is not None:
        content["nvidia_driver"] = {
            "version": driver.version,
            "branch": driver.branch,
            "flavour": driver.flavour,
            "source": driver.source,
            "packages": dict(sorted(driver.packages.items())),
        }
        for gpu, count in gpus:
            if gpu.fabric_from is not None and count >= gpu.fabric_from:
                packages = dict(sorted((driver.fabric or {}).items()))
                fabric = {"kind": gpu.fabric, "version": driver.version, "packages": packages}
                content["nvidia_fabric"] = fabric
    content["sharing"] = sharing.decided(subject, values, candidates)
    content["cuda_toolkit"] = _sorted(facts, values, "cuda(", lambda value: value.version)
    content["frameworks"] = _sorted(facts, values, "framework(", _build)
    if (given := wishes.bedplate_passthrough) is not None:
        content["passthrough"] = given.model_dump(mode="json")
    if (shared := wishes.bedplate_vgpu) is not None:
        content["vgpu"] = shared.model_dump(mode="json")
    if "rdma" in values:
        path = facts[values["rdma"]].value
        content["rdma"] = {
            "stack": path.stack,
            "method": path.method,
            **rdma_pods.decided(subject, candidates.catalogue),
        }
    content["hpc_tools"] = hpc_tools.decided(wishes, driver_of(values, facts), candidates.catalogue)
    if wishes.bedplate_accelerator is not None:
        fact = candidates.catalogue.accelerators[wishes.bedplate_accelerator.model]
        content["accelerator"] = _accelerator(fact, wishes.bedplate_accelerator.count)
    content["expects"] = sharing.expected(subject, candidates)
    return locked.Pool.model_validate(content)


def driver_of(values: Mapping[str, str], facts: Mapping[str, Any]) -> DriverPackages | None:
    """Return the driver that was decided for a pool."""
    found: DriverPackages | None = facts[values["driver"]].value if "driver" in values else None
    return found


def guests(host: SiteHost) -> dict[str, locked.Guest]:
    """Return what runs on a hypervisor."""
    wished = host.wishes.bedplate_guests
    return {
        name: locked.Guest.model_validate(guest.model_dump(mode="json"))
        for name, guest in sorted(wished.items())
    }


def topology(host: SiteHost) -> locked.Topology | None:
    """Return where a host stands."""
    wished = host.wishes.bedplate_topology
    return locked.Topology(**wished.model_dump()) if wished is not None else None


def marks(host: SiteHost) -> dict[str, Any]:
    """Return the address, labels and taints of a node; other hosts have none."""
    if not host.is_node:
        return {}
    wished = host.wishes
    taints = [locked.Taint(**taint.model_dump()) for taint in wished.bedplate_taints]
    return {
        "node_ip": wished.bedplate_node_ip,
        "labels": dict(sorted(wished.bedplate_labels.items())),
        "taints": taints,
        "kubelet": {
            field: wished.kubernetes_node_kubelet[field]
            for field in COUNTED
            if field in wished.kubernetes_node_kubelet
        },
    }


def _kernel(subject: Subject, values: Mapping[str, str], candidates: Candidates) -> str | None:
    """Return the kernel that is wished, or the one that a precompiled module is for."""
    driver = driver_of(values, candidates.facts)
    if driver is not None and driver.source == "precompiled":
        return str(candidates.facts[values["kernel"]].value.kernel)
    return subject.host.wishes.bedplate_host.kernel


def _sorted(
    facts: Mapping[str, Any], values: Mapping[str, str], prefix: str, told: Any
) -> list[Any]:
    chosen = {value: None for key, value in sorted(values.items()) if key.startswith(prefix)}
    return [told(facts[value].value) for value in chosen]


def _build(build: Any) -> dict[str, Any]:
    return {
        "name": build.framework,
        "version": build.version,
        "variant": build.variant,
        "cuda": build.cuda,
        "cudnn": build.cudnn,
        "nccl": build.nccl,
    }


def _accelerator(fact: Fact[Accelerator], count: int) -> dict[str, Any]:
    board = fact.value
    plugin = {"version": board.device_plugin_version, "image": board.device_plugin}
    return {
        "vendor": board.vendor,
        "model": board.accelerator,
        "count": count,
        "driver": board.driver,
        "device_plugin": plugin,
        "runtime": board.runtime,
    }


def pool_parts(
    part: locked.Pool, catalogue: Catalogue, cluster: locked.Cluster | None
) -> list[tuple[str, str]]:
    """Name what of a pool's decision roles and stacks carry out, by the catalogue's dimensions.

    What its role knows on some systems alone is asked for together with the system; a way to share,
    with a container runtime of the cluster's that is not everybody's.
    """
    decided = [("os", part.os), ("kind", part.kind), ("sharing", part.sharing.mode)]
    boards = [catalogue.gpu_models[gpu.model].value for gpu in part.gpu]
    decided += [("cpu", board.host_cpu) for board in boards if board.host_cpu]
    if part.nvidia_driver is not None:
        decided.append(("source", part.nvidia_driver.source))
    decided += [("part", name) for name in PARTS if getattr(part, name)]
    if part.expects is not None and part.expects.by == "slurm":
        decided += [("part", "slurm"), ("slurm-on", part.os)]
        if part.sharing.mode == "time-slicing":
            decided.append(("shard-on", part.os))
    if part.sharing.mode == "mps":
        decided.append(("mps-on", part.os))
    below = cluster is not None and cluster.cri_o is not None and part.sharing.mode != "none"
    if below and part.expects is not None and part.expects.by != "slurm":
        decided.append(("below-cri_o", part.sharing.mode))
    if part.rdma is not None and part.rdma.pods:
        decided.append(("part", "rdma_pods"))
    if part.sharing.layout:
        decided.append(("part", "mig_layout"))
    if part.sharing.mode == "dra" and part.sharing.memory == "limited":
        decided.append(("part", "limited_claims"))
    if part.cuda_toolkit and part.nvidia_driver is not None:
        # The vendor's repository, offered by the driver's role or beside the distribution's driver.
        decided.append(("cuda-on", f"{part.os} {part.nvidia_driver.source}"))
    if len({gpu.model for gpu in part.gpu}) > 1:
        decided.append(("part", "mixed_gpus"))
    return decided


def cluster_parts(
    part: locked.Cluster, sources: str, systems: Iterable[str]
) -> list[tuple[str, str]]:
    """Name what of the shared decision, and of hosts without a pool, is carried out likewise."""
    decided = [("sources", sources), ("cni", part.cni.name)]
    decided += [("os", system) for system in systems]
    for name in RUNTIMES:
        if (runtime := getattr(part, name, None)) is not None:
            decided += [("runtime", name), (f"{name}-from", runtime.source)]
    decided += [("addon", addon.name) for addon in part.addons]
    return decided


def containers_parts(part: locked.Containers, sources: str) -> list[tuple[str, str]]:
    """Name what of containers without Kubernetes is carried out likewise."""
    name = "docker" if part.docker is not None else "podman"
    return [("sources", sources), (f"{name}-from", runtime_of(part).source)]


def not_built(decided: Iterable[tuple[str, str]], catalogue: Catalogue) -> list[str]:
    """Return what no role or stack of this version carries out."""
    known = {
        name: {*fact.value.values, *fact.value.stand_in, *fact.value.unproved}
        for name, fact in catalogue.installable.items()
    }
    return sorted(
        {f"{kind} {value}" for kind, value in decided if value not in known.get(kind, ())}
    )


def unconfirmed(name: str, values: Mapping[str, str], candidates: Candidates) -> list[str]:
    """Return a pool's driver where no index has confirmed its packages and nobody named them."""
    fact = candidates.facts.get(values.get("driver", ""))
    if fact is None or name in candidates.named or not prefer.defaults(fact)[1]:
        return []
    return [f"unconfirmed {fact.value.version}"]


def not_run(decided: Iterable[tuple[str, str]], catalogue: Catalogue) -> list[str]:
    """Return what is carried out by roles that nobody has seen do it for real."""
    known = catalogue.installable
    return sorted(
        {
            f"{kind} {value}"
            for kind, value in decided
            if kind in known and value in {*known[kind].value.stand_in, *known[kind].value.unproved}
        }
    )


def other_versions(part: locked.Cluster, catalogue: Catalogue) -> list[str]:
    """Return the add-ons that tests have installed in another version than the lock's."""
    fact = catalogue.installable.get("addon")
    known = fact.value.values if fact is not None else ()
    run = {
        (fact.value.addon, fact.value.version)
        for fact in catalogue.addons.values()
        if fact.sure == "tested"
    }
    chosen = {(addon.name, addon.version) for addon in part.addons if addon.name in known}
    return [f"addon {name} {version}" for name, version in sorted(chosen - run)]


def reasons(subject: str, values: Mapping[str, str], candidates: Candidates) -> Iterator[Reason]:
    """Yield why each component has its version."""
    for component, value in sorted(values.items()):
        fact = candidates.facts.get(value)
        if fact is None or component in {"os", "kind", "kernel"}:
            continue
        version = getattr(fact.value, "version", None) or getattr(fact.value, "method", value)
        value_ = fact.value
        shown = {
            "driver": "nvidia_driver",
            "runtime": getattr(value_, "runtime", ""),
            "cuda": "cuda_toolkit",
            "framework": getattr(value_, "framework", ""),
            "addon": getattr(value_, "addon", ""),
        }
        label = shown.get(component.partition("(")[0], component)
        yield Reason(subject, label, str(version), _because(subject, component, fact, candidates))


def _because(subject: str, component: str, fact: Fact[Any], candidates: Candidates) -> str:
    if component == "driver":
        driver = fact.value
        branch = candidates.catalogue.driver_branches[driver.branch].value
        policy = candidates.wished[subject].policy
        newest = f"newest of policy {policy} compatible with every setting"
        if branch.type != prefer.POLICIES[policy][0]:
            newest = f"newest that fits (none of policy {policy} does, or has confirmed packages)"
        until = f"until {branch.end_of_life}" if branch.end_of_life else "without a known end"
        return (
            f"R{driver.branch} is {branch.type}, supported {until}; {newest}, "
            f"{driver.flavour} from {driver.source}. {fact.reason}"
        )
    newest = "newest version compatible with every setting"
    if component.startswith("addon(") and fact.sure == "tested":
        newest = (
            "newest version that tests of this project have run, and compatible with every setting"
        )
    return f"{newest}. {fact.reason}"
