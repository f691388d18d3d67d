"""What a lock says about all hosts together, against the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.properties.plain import (
    RUNTIMES,
    SHARED_COMPONENTS,
    Violation,
    at_least,
    begins,
    between,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.properties.plain import Facts, Row

POOLED = "gpu_pools"
#: What is looked at here; the rules of a pool are in `checker_pools`.
RULES = (
    "addon-excludes",
    "addon-kubernetes",
    "addon-needs",
    "cgroup-v1",
    "component-kubernetes",
    "iommu-groups",
    "node-needs",
    "runtime-cdi",
    "runtime-kubernetes",
    "runtime-packaged",
    "slurm-models",
    "slurm-or-kubernetes",
)


def _violation(rule: str, detail: str) -> Violation:
    return Violation(rule, "cluster", detail)


def in_kubernetes(hosts: Mapping[str, Row]) -> dict[str, Row]:
    """Return the hosts that join the cluster: the control plane and the pools that no Slurm has."""
    return {
        name: host
        for name, host in hosts.items()
        if "slurm" not in host["groups"] and {"control_plane", POOLED} & set(host["groups"])
    }


def shared(facts: Facts, hosts: Mapping[str, Row], cluster: Row) -> Iterator[Violation]:
    """Yield every rule that the shared decisions break."""
    if not hosts:
        return
    wishes = next(iter(hosts.values()))["wishes"]
    kubernetes = cluster["kubernetes"]["version"]
    release = facts.one("kubernetes", version=kubernetes)
    if release is None:
        yield _violation("kubernetes-known", kubernetes)
    wished = wishes["bedplate_kubernetes"]["version"]
    if wished is not None and not begins(kubernetes, wished):
        yield _violation("wishes", f"kubernetes {wished}, got {kubernetes}")
    yield from _runtime(facts, hosts, cluster, kubernetes)
    yield from _components(facts, wishes, cluster, kubernetes)
    yield from _addons(facts, hosts, cluster, kubernetes)
    yield from _hosts(facts, hosts, release or {})
    yield from _pins(hosts, cluster)


def _runtime(
    facts: Facts, hosts: Mapping[str, Row], cluster: Row, kubernetes: str
) -> Iterator[Violation]:
    wishes = next(iter(hosts.values()))["wishes"]
    wished = wishes["bedplate_container_runtime"]
    there = {name: cluster[key] for name, key in RUNTIMES.items() if cluster.get(key)}
    if set(there) != {wished["name"]}:
        yield _violation("wishes", f"runtime {wished['name']}, got {sorted(there)}")
        return
    chosen = {"packages": {}, **there[wished["name"]]}
    if wished["source"] not in {None, chosen["source"]}:
        yield _violation("wishes", f"runtime from {wished['source']}")
    systems = {host["wishes"]["bedplate_host"]["os"] for host in in_kubernetes(hosts).values()}
    rows = [
        row
        for row in facts.some("container-runtimes", runtime=wished["name"])
        if {"packages": {}, **row}.items() >= chosen.items()
        and (row.get("os") is None or systems <= {row["os"]})
    ]
    if not rows:
        yield _violation("runtime-packaged", f"{wished['name']} {chosen} on {sorted(systems)}")
        return
    if not any(between(kubernetes, r["kubernetes_from"], r["kubernetes_upto"]) for r in rows):
        yield _violation("runtime-kubernetes", f"{chosen['version']} with {kubernetes}")
    kinds = {
        host["wishes"]["bedplate_host"]["kind"]
        for host in in_kubernetes(hosts).values()
        if host["wishes"]["bedplate_gpu"]
    }
    pooled = kinds - {"hypervisor"}
    if pooled and not any(row["cdi"] for row in rows):
        yield _violation("runtime-cdi", f"{wished['name']} {chosen['version']}")


def _components(facts: Facts, wishes: Row, cluster: Row, kubernetes: str) -> Iterator[Violation]:
    cni = cluster["cni"]
    if cni["name"] != wishes["bedplate_kubernetes"]["cni"]:
        yield _violation("wishes", f"cni {wishes['bedplate_kubernetes']['cni']}")
    chosen = {cni["name"]: cni["version"]}
    chosen |= {name: cluster[name]["version"] for name in SHARED_COMPONENTS}
    for name, version in chosen.items():
        row = facts.one("components", component=name, version=version)
        if row is None:
            yield _violation("component-known", f"{name} {version}")
        elif not between(kubernetes, row.get("kubernetes_from"), row.get("kubernetes_upto")):
            yield _violation("component-kubernetes", f"{name} {version} with {kubernetes}")


def wished_addons(hosts: Mapping[str, Row]) -> list[str]:
    """Return every add-on that any host wishes for, as it is written."""
    found: dict[str, None] = {}
    for host in hosts.values():
        wishes = host["wishes"]
        rdma = wishes["bedplate_rdma"] or {}
        for wish in (
            *wishes["bedplate_schedulers"],
            *wishes["bedplate_operators"],
            *filter(None, [rdma.get("operator")]),
        ):
            found[wish] = None
    return list(found)


def _addons(
    facts: Facts, hosts: Mapping[str, Row], cluster: Row, kubernetes: str
) -> Iterator[Violation]:
    chosen = {addon["name"]: addon["version"] for addon in cluster.get("addons", [])}
    names = {row["addon"] for row in facts["addons"]}
    wished = [named(wish, names) for wish in wished_addons(hosts)]
    for name, version in wished:
        if name not in chosen or (version is not None and not begins(chosen[name], version)):
            yield _violation("wishes", f"add-on {name} {version}, got {chosen}")
    if len(chosen) != len(cluster.get("addons", [])):
        yield _violation("wishes", "an add-on twice")
    for name, version in chosen.items():
        if name not in {its for its, _ in wished}:
            yield _violation("wishes", f"nobody wished {name}")
        row = facts.one("addons", addon=name, version=version)
        if row is None:
            yield _violation("addon-known", f"{name} {version}")
            continue
        if not between(kubernetes, row["kubernetes_from"], row["kubernetes_upto"]):
            yield _violation("addon-kubernetes", f"{name} {version} with {kubernetes}")
        for other in set(row.get("needs", [])) - set(chosen):
            yield _violation("addon-needs", f"{name} needs {other}")
        for other in set(row.get("excludes", [])) & set(chosen):
            yield _violation("addon-excludes", f"{name} excludes {other}")


def _unmet(facts: Facts, wishes: Row, system: Row, kubernetes: str) -> Iterator[str]:
    """Yield what the kernel and the control groups of a node are too old for."""
    kernel = wishes["bedplate_host"]["kernel"] or system["kernel"]
    for need in facts["node-needs"]:
        asked: Any = wishes["bedplate_kubernetes"]
        for step in need.get("setting", []):
            asked = asked.get(step) if isinstance(asked, dict) else None
        wanted = asked == need["value"] if need.get("setting") else True
        ignored = {need.get("check"), "all"} & set(
            wishes["bedplate_kubernetes"]["ignore_preflight"]
        )
        if need.get("warns") or not wanted or ignored:
            continue
        if not between(kubernetes, need.get("kubernetes_from"), need.get("kubernetes_upto")):
            continue
        if not at_least(kernel, need.get("kernel_from")):
            yield f"{need['need']} with kernel {kernel}"
        if system["cgroup"] < (need.get("cgroup") or 1):
            yield f"{need['need']} with cgroup v1"


def _hosts(facts: Facts, hosts: Mapping[str, Row], release: Row) -> Iterator[Violation]:
    for name, host in hosts.items():
        wishes = host["wishes"]
        system = facts.one("systems", os=wishes["bedplate_host"]["os"])
        if system is None:
            yield Violation("system-known", name, wishes["bedplate_host"]["os"])
            continue
        if "slurm" in host["groups"] and "control_plane" in host["groups"]:
            yield Violation("slurm-or-kubernetes", name, "in both")
        models = {(gpu.get("model"), gpu.get("pci")) for gpu in wishes["bedplate_gpu"]}
        if "slurm" in host["groups"] and len(models) > 1:
            yield Violation("slurm-models", name, str(sorted(map(str, models))))
        mode = wishes["bedplate_sharing"]["mode"]
        if "slurm" in host["groups"] and mode in {"mps", "hami", "dra"}:
            yield Violation("slurm-or-kubernetes", name, f"{mode} is Kubernetes' way to share")
        field = (release.get("cgroup_v1") or {}).get("allowed_by")
        allowed = wishes["bedplate_kubernetes"]["kubelet"].get(field) is False
        if system["cgroup"] == 1 and name in in_kubernetes(hosts) and field and not allowed:
            yield Violation("cgroup-v1", name, f"{field} is not false")
        if name in in_kubernetes(hosts):
            for need in _unmet(facts, wishes, system, str(release.get("version"))):
                yield Violation("node-needs", name, need)
        if given := wishes["bedplate_passthrough"]:
            for group in given["iommu_groups"]:
                if set(group) & set(given["devices"]) and set(group) - set(given["devices"]):
                    yield Violation("iommu-groups", name, f"{group} is given in part")
            for device in set(given["devices"]) - set().union(*given["iommu_groups"]):
                yield Violation("iommu-groups", name, f"{device} is in no group")


def _pins(hosts: Mapping[str, Row], cluster: Row) -> Iterator[Violation]:
    decided = {"kubernetes": cluster["kubernetes"]["version"]}
    decided |= {cluster["cni"]["name"]: cluster["cni"]["version"]}
    decided |= {key: cluster[key]["version"] for key in RUNTIMES.values() if cluster.get(key)}
    decided |= {name: cluster[name]["version"] for name in SHARED_COMPONENTS}
    decided |= {a["name"].replace("-", "_"): a["version"] for a in cluster.get("addons", [])}
    if cluster.get("nvidia_dra_driver"):
        decided["nvidia_dra_driver"] = cluster["nvidia_dra_driver"]["version"]
    known = {*decided, "flannel", "cilium", *RUNTIMES.values()}
    for host in hosts.values():
        for component, version in host["wishes"]["bedplate_pins"].items():
            if component in known and decided.get(component) != version:
                yield _violation("wishes", f"pin {component} {version}, got {decided}")


def written(facts: Facts, hosts: Mapping[str, Row], lock: Row) -> Iterator[Violation]:
    """Yield what the lock says of the cluster that neither wishes nor facts say."""
    cluster = lock["cluster"]
    wishes = next(iter(hosts.values()))["wishes"]
    kept = ("endpoint", "pod_subnet", "service_subnet", "kubelet", "kube_proxy", "ignore_preflight")
    for key in kept:
        if cluster["kubernetes"][key] != wishes["bedplate_kubernetes"][key]:
            yield _violation("written", f"kubernetes {key}")
    addons = [facts.one("addons", addon=a["name"], version=a["version"]) for a in cluster["addons"]]
    needed = max((row.get("controller_requests") or 0 for row in addons if row), default=0)
    wished = wishes["bedplate_kubernetes"]["controller_requests"] or needed or None
    if cluster["kubernetes"]["controller_requests"] != wished:
        yield _violation("written", f"requests of controllers, not {wished}")
    row = facts.one("kubernetes", version=cluster["kubernetes"]["version"]) or {}
    for key in ("etcd", "coredns", "pause"):
        if cluster[key] != row.get(key):
            yield _violation("written", f"{key} {cluster[key]}")
    plugin = cluster["nvidia_device_plugin"]
    row = facts.one("components", component="nvidia_device_plugin", version=plugin["version"]) or {}
    if plugin["image"] != row.get("image"):
        yield _violation("written", f"device plugin {plugin}")
    for name, host in lock["hosts"].items():
        if (host["pool"], host["groups"]) != (hosts[name]["pool"], hosts[name]["groups"]):
            yield Violation("written", name, "other pool or groups")
