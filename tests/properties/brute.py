"""The best decision by trying all of them: the checker says which go, an own order which is best.

Only for small catalogues. Pools are tried one by one under each shared decision, because nothing
that is decided for one pool is asked about another.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from tests.properties import checker_cluster
from tests.properties.checker import other_violations, pool_violations
from tests.properties.checker_cluster import wished_addons
from tests.properties.plain import RUNTIMES, SHARED_COMPONENTS, begins, named, numbers
from tests.properties.view import View, replicas_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.properties.plain import Facts, Row

POLICIES = {
    "lts": ["lts", "production", "new-feature"],
    "production": ["production", "lts", "new-feature"],
    "new-feature": ["new-feature", "production", "lts"],
}
SOURCES = ["distro", "vendor-repo", "precompiled", "runfile"]

type Ranked = tuple[Any, dict[str, Any]]


def best(facts: Facts, hosts: Mapping[str, Row]) -> dict[str, Any] | None:
    """Return the best lock's decisions, as far as a lock has them; None if there is none."""
    pools: dict[str, dict[str, Row]] = {}
    for name, host in hosts.items():
        if host["pool"] is not None:
            pools.setdefault(host["pool"], {})[name] = host
    for _, cluster in sorted(_clusters(facts, hosts), key=lambda pair: pair[0], reverse=True):
        if list(checker_cluster.shared(facts, hosts, cluster)):
            continue
        if other_violations(facts, hosts, cluster):
            continue
        found = {name: _best_pool(facts, name, its, cluster) for name, its in sorted(pools.items())}
        if all(found.values()):
            return {"cluster": cluster, "pools": found}
    return None


def _newest(version: str) -> tuple[int, ...]:
    return (*numbers(version), *[0] * (5 - len(numbers(version))))


def _clusters(facts: Facts, hosts: Mapping[str, Row]) -> Iterator[Ranked]:
    """Yield every shared decision ranked: by mirror, Kubernetes, runtime, the rest by name.

    Add-ons that tests of the project have run come before newer ones.
    """
    wishes = next(iter(hosts.values()))["wishes"]
    runtime = wishes["bedplate_container_runtime"]["name"]
    mirrored = wishes["bedplate_sources"]["mode"] == "mirror"
    parts = {"cni": facts.some("components", component=wishes["bedplate_kubernetes"]["cni"])}
    parts |= {name: facts.some("components", component=name) for name in SHARED_COMPONENTS}
    if any(host["wishes"]["bedplate_sharing"]["mode"] == "dra" for host in hosts.values()):
        parts["nvidia_dra_driver"] = facts.some("components", component="nvidia_dra_driver")
    names = {row["addon"] for row in facts["addons"]}
    addons = sorted({str(named(wish, names)[0]) for wish in wished_addons(hosts)})
    parts |= {f"~{name}": facts.some("addons", addon=name) for name in addons}
    for release, engine, *chosen in product(
        facts["kubernetes"], facts.some("container-runtimes", runtime=runtime), *parts.values()
    ):
        by_name = dict(zip(parts, chosen, strict=True))
        rank = (
            not mirrored or engine["source"] != "vendor-repo",
            _newest(release["version"]),
            _newest(engine["version"]),
            [_newest(by_name[name]["version"]) for name in sorted(by_name) if name[0] != "~"],
            -sum(by_name[f"~{name}"]["sure"] != "tested" for name in addons),
            [_newest(by_name[f"~{name}"]["version"]) for name in addons],
        )
        cluster: dict[str, Any] = {
            name: {"version": by_name[name]["version"]} for name in SHARED_COMPONENTS
        }
        cluster["kubernetes"] = {"version": release["version"]}
        told = {key: engine[key] for key in ("version", "source")}
        cluster[RUNTIMES[runtime]] = told | {"packages": engine.get("packages", {})}
        cni = by_name["cni"]
        cluster["cni"] = {"name": cni["component"], "version": cni["version"]}
        if "nvidia_dra_driver" in by_name:
            cluster["nvidia_dra_driver"] = {"version": by_name["nvidia_dra_driver"]["version"]}
        cluster["addons"] = [
            {"name": name, "version": by_name[f"~{name}"]["version"]} for name in addons
        ]
        yield rank, cluster


def _best_pool(
    facts: Facts, name: str, hosts: Mapping[str, Row], cluster: Row
) -> dict[str, Any] | None:
    ranked = sorted(_pools(facts, hosts), key=lambda pair: pair[0], reverse=True)
    for _, pool in ranked:
        if not pool_violations(facts, name, hosts, pool, cluster):
            return pool
    return None


def _pools(facts: Facts, hosts: Mapping[str, Row]) -> Iterator[Ranked]:
    """Yield every decision about a pool with its rank."""
    wishes = next(iter(hosts.values()))["wishes"]
    host, wished = wishes["bedplate_host"], wishes["bedplate_driver"]
    plain = {
        "os": host["os"],
        "kind": host["kind"],
        "kernel": host["kernel"],
        "secure_boot": host["secure_boot"],
        "sharing": {
            "mode": wishes["bedplate_sharing"]["mode"],
            "replicas": replicas_of(wishes["bedplate_sharing"]),
        },
    }
    if host["kind"] == "hypervisor" or not wishes["bedplate_gpu"]:
        yield (), plain
        return
    names = {row["framework"] for row in facts["frameworks"]}
    frameworks = [named(wish, names) for wish in wishes["bedplate_frameworks"]]
    cuda = [
        [row for row in facts["cuda-toolkits"] if begins(row["version"], wish)]
        for wish in wishes["bedplate_cuda"]
    ]
    builds = [
        [
            row
            for row in facts.some("frameworks", framework=name)
            if version is None or begins(row["version"], version)
        ]
        for name, version in frameworks
    ]
    stack = (wishes["bedplate_rdma"] or {}).get("stack")
    paths: list[Any] = facts.some("rdma-paths", stack=stack) if stack else [None]
    for driver, toolkits, chosen, path in product(
        facts.some("driver-packages", os=host["os"]), product(*cuda), product(*builds), paths
    ):
        pool = dict(plain)
        keys = ("version", "branch", "flavour", "source", "packages")
        pool["nvidia_driver"] = {key: driver[key] for key in keys}
        pool["cuda_toolkit"] = sorted({row["version"] for row in toolkits})
        pool["frameworks"] = [
            {"name": row["framework"], "version": row["version"], "variant": row["variant"]}
            for row in chosen
        ]
        if path is not None:
            pool["rdma"] = {"stack": path["stack"], "method": path["method"]}
        for model, count in _gpus(facts, wishes, hosts):
            if model.get("fabric") and count >= model["fabric_from"]:
                rest = {"version": driver["version"], "packages": driver["fabric"]}
                pool["nvidia_fabric"] = {"kind": model["fabric"], **rest}
        rank = (
            *_not_by_default(driver, wishes),
            *_driver_rank(facts, driver, wished["policy"]),
            [_newest(row["version"]) for row in toolkits],
            [_build_rank(facts, r) for r in sorted(chosen, key=lambda r: str(r["framework"]))],
            path is None or path["method"] == "dma-buf",
        )
        yield rank, pool


def _gpus(facts: Facts, wishes: Row, hosts: Mapping[str, Row]) -> list[tuple[Row, int]]:
    return View(facts, "", hosts, wishes, {}, {}).gpus


def _not_by_default(driver: Row, wishes: Row) -> tuple[bool, bool]:
    """Rank last what is taken only where it is named: an installer, packages nobody has seen."""
    wished = wishes["bedplate_driver"]
    pins = {"nvidia_driver", "nvidia_fabric"} & set(wishes["bedplate_pins"])
    if pins or (wished["branch"] and wished["source"]):
        return True, True
    return driver["source"] != "runfile", driver["sure"] != "unproved"


def _driver_rank(facts: Facts, driver: Row, policy: str) -> tuple[Any, ...]:
    """Rank a driver: supported, by policy, newest, of the maker's flavour, by source."""
    branch = facts.one("driver-branches", branch=driver["branch"])
    assert branch is not None
    end = branch.get("end_of_life")
    return (
        end is not None and end >= max(facts.read["driver-branches"]),
        -POLICIES[policy].index(branch["type"]),
        _newest(driver["version"]),
        driver["flavour"] == branch["default_flavour"],
        -SOURCES.index(driver["source"]),
    )


def _build_rank(facts: Facts, build: Row) -> tuple[Any, ...]:
    """Rank a build: the newest version, the default one, the newest CUDA, the variant by name."""
    names = sorted({row["variant"] for row in facts["frameworks"]}, reverse=True)
    return (
        _newest(build["version"]),
        build["default"],
        _newest(build["cuda"] or "0"),
        names.index(build["variant"]),
    )
