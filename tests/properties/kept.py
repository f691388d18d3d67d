"""Whether a pool's lock keeps its wishes, and says nothing that the facts do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.properties import checker_sharing
from tests.properties.plain import Violation, begins, named
from tests.properties.view import View, replicas_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.properties.plain import Facts, Row


def wishes_kept(view: View) -> Iterator[str]:
    """What was wished exactly is exactly there."""
    wished, host = view.wishes["bedplate_driver"], view.wishes["bedplate_host"]
    for key in ("os", "kind", "secure_boot"):
        if view.pool.get(key, False) != host[key]:
            yield f"{key} {host[key]}"
    if view.pool.get("kernel") not in {None, view.kernel}:
        yield f"kernel {view.kernel}"
    if view.driver:
        for key in ("branch", "flavour", "source"):
            if wished[key] is not None and view.driver[key] != wished[key]:
                yield f"{key} {wished[key]}"
    toolkits = view.pool.get("cuda_toolkit", [])
    for wish in view.wishes["bedplate_cuda"]:
        if not any(begins(version, wish) for version in toolkits):
            yield f"CUDA {wish}"
    for version in toolkits:
        if not any(begins(version, wish) for wish in view.wishes["bedplate_cuda"]):
            yield f"nobody wished CUDA {version}"
    yield from _frameworks_kept(view)
    rdma = view.wishes["bedplate_rdma"]
    if (view.pool.get("rdma") or {}).get("stack") != (rdma or {}).get("stack"):
        yield f"rdma {rdma}"
    yield from _pins_kept(view)


def _frameworks_kept(view: View) -> Iterator[str]:
    names = {row["framework"] for row in view.facts["frameworks"]}
    wished = [named(wish, names) for wish in view.wishes["bedplate_frameworks"]]
    chosen = [(f["name"], f["version"]) for f in view.pool.get("frameworks", [])]
    for name, version in wished:
        if not any(n == name and (version is None or begins(v, version)) for n, v in chosen):
            yield f"framework {name} {version or ''}"
    if {name for name, _ in chosen} - {name for name, _ in wished}:
        yield f"nobody wished all of {chosen}"


def _pins_kept(view: View) -> Iterator[str]:
    for component, version in view.wishes["bedplate_pins"].items():
        got: Any = None
        match component:
            case "nvidia_driver":
                got = (view.driver or {}).get("version")
            case "nvidia_fabric":  # the driver's very version, whether a fabric is there or not
                got = (view.pool.get(component) or view.driver or {}).get("version")
            case "cuda_toolkit":
                got = version if version in view.pool.get(component, []) else None
            case _:
                names = {f["name"].replace("-", "_"): f for f in view.pool.get("frameworks", [])}
                if component not in names:
                    continue  # the cluster's, or not there at all: `checker_cluster` looks at it
                got = names[component]["version"]
        if got != version and (got is not None or view.driver):
            yield f"pin {component} {version}, got {got}"


def written(facts: Facts, name: str, hosts: Mapping[str, Row], pool: Row) -> Iterator[Violation]:
    """Yield what a pool's lock says that the facts do not: packages, boards, counts, builds."""
    wishes = next(iter(hosts.values()))["wishes"]
    view = View(facts, name, hosts, wishes, pool, {})

    def wrong(what: str, got: object, right: object) -> Iterator[Violation]:
        if got != right:
            yield Violation("written", name, f"{what}: {got} is not {right}")

    boards = [(g["model"], g["pci"], g["count"]) for g in pool.get("gpu", [])]
    if view.kind != "hypervisor":
        right = [(model["model"], model["pci"], count) for model, count in view.gpus]
        yield from wrong("boards", sorted(boards), sorted(right))
    if view.driver and view.fact:
        yield from wrong("packages", view.driver["packages"], view.fact["packages"])
    for chosen, row in zip(pool.get("frameworks", []), view.builds, strict=True):
        for key in ("cuda", "cudnn", "nccl"):
            yield from wrong(f"{chosen['name']} {key}", chosen.get(key), row.get(key))
    sharing = pool["sharing"]
    yield from wrong("mode", sharing["mode"], view.sharing["mode"])
    yield from wrong("replicas", sharing.get("replicas"), replicas_of(view.sharing))
    profile = None if view.sharing["parts"] else view.sharing["profile"]
    yield from wrong("profile", sharing.get("profile"), profile)
    yield from wrong("layout", sharing.get("layout", []), checker_sharing.layout(view))
    share = view.sharing["share"]
    memory = share["memory"] if isinstance(share, dict) else None
    yield from wrong("share_memory", sharing.get("share_memory"), memory)
    for key, word in checker_sharing.words(view).items():
        yield from wrong(f"word for {key}", sharing.get(key), word)
    if view.gpus:
        by = {"hami": "schedulers", "dra": "dra"}.get(view.sharing["mode"], "cluster")
        yield from wrong("by", pool["expects"]["by"], "slurm" if view.slurm else by)
        expects = pool["expects"]
        offers = {expects["resource"]: expects["count"], **expects["also"]}
        yield from wrong("expects", offers, checker_sharing.offered(view))
    yield from _accelerator(view, wrong)


def _accelerator(
    view: View, wrong: Callable[[str, object, object], Iterator[Violation]]
) -> Iterator[Violation]:
    """Another maker's board: its driver, plugin and resource are those of its fact."""
    wished, got = view.wishes["bedplate_accelerator"], view.pool.get("accelerator")
    if wished is None:
        yield from wrong("accelerator", got, None)
        return
    row = view.facts.one("accelerators", accelerator=wished["model"], vendor=wished["vendor"]) or {}
    plugin = {"version": row.get("device_plugin_version"), "image": row.get("device_plugin")}
    right = {**wished, "driver": row.get("driver"), "device_plugin": plugin}
    right["runtime"] = row.get("runtime")
    yield from wrong("accelerator", got, right)
    expects = {"resource": row.get("resource"), "count": wished["count"], "also": {}}
    if view.kind != "hypervisor":
        by = "slurm" if view.slurm else "cluster"
        yield from wrong("expects", view.pool["expects"], {**expects, "by": by})
