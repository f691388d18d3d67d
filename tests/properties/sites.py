"""Sites of every kind for Hypothesis: about half of them can be solved.

Values come from the catalogue, so that a new fact is tried without a change here; a few are names
that nobody knows. Each wish is left out more often than not: sites that wish for everything at
once are all refused, and would prove little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.properties.building import ENDPOINT, Plain, Pool

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue

MODES = ("time-slicing", "mps", "mps", "mig", "hami", "dra", "none")
SOURCES = ("distro", "vendor-repo", "vendor-repo", "runfile", "precompiled")
SHARES = (0.05, 0.08, 0.1, 0.125, 0.2, 0.25, 0.3, 1 / 3, 0.5, 1)
REPLICAS = (1, 2, 4, 12, 16, 47, 48, 49, 60, 61, 100)


class Drawn:
    """Draws for one site; percentages say how often a wish is there."""

    def __init__(self, draw: st.DrawFn, catalogue: Catalogue) -> None:
        """Remember what to draw from."""
        self._draw = draw
        self.catalogue = catalogue

    def often(self, percent: int) -> bool:
        """Tell whether a wish is there. What Hypothesis shrinks to is that it is not."""
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def of[T](self, items: list[T] | tuple[T, ...]) -> T:
        """Return one of some items."""
        return self._draw(st.sampled_from(items))

    def version(self, versions: list[str]) -> str:
        """Return a version, its first two parts, or one that nobody knows."""
        known = self.of(versions)
        if self.often(4):
            return "99.9"
        return ".".join(known.split(".")[:2]) if self.often(60) else known

    def some(self, items: list[str], most: int) -> list[str]:
        """Return up to some items, each once."""
        return self._draw(st.lists(st.sampled_from(items), max_size=most, unique=True))


@st.composite
def sites(draw: st.DrawFn, catalogue: Catalogue, *, most_pools: int = 3) -> Plain:
    """Sites with up to some pools, right and wrong."""
    drawn = Drawn(draw, catalogue)
    shared = _shared(drawn)
    pools = {}
    slurm = drawn.often(6)
    for number in range(draw(st.sampled_from([1, 1, 2, most_pools]))):
        hosts = draw(st.integers(1, 3))
        wishes = _pool(drawn, hosts)
        parent = "slurm" if slurm and drawn.often(50) else "gpu_pools"
        if wishes["host"]["kind"] == "hypervisor":
            parent = "hypervisors"
        pools[f"pool_{number}"] = Pool(wishes, hosts, parent)
    sharing = [pool.wishes.get("sharing", {}) for pool in pools.values()]
    if any(isinstance(one, dict) and one.get("mode") == "hami" for one in sharing):
        hami = drawn.of([["hami"], ["hami"], []])
        shared["schedulers"] = sorted({*shared.get("schedulers", []), *hami})
    host = {"os": drawn.of(sorted(catalogue.systems))} if drawn.often(10) else _usual(drawn)
    return Plain(shared, pools, drawn.of([1, 3]), {"host": host})


def _usual(drawn: Drawn) -> dict[str, Any]:
    packaged = sorted(fact.value.os for fact in drawn.catalogue.driver_packages.values())
    return {"os": drawn.of(packaged)}


def _shared(drawn: Drawn) -> dict[str, Any]:
    catalogue = drawn.catalogue
    kubernetes: dict[str, Any] = {"endpoint": ENDPOINT}
    if drawn.often(35):
        kubernetes["version"] = drawn.version(sorted(catalogue.kubernetes)).replace("99.9", "1.99")
    if drawn.often(10):
        kubernetes["cni"] = "cilium"
    if drawn.often(50):
        fields = {
            f.value.cgroup_v1.allowed_by for f in catalogue.kubernetes.values() if f.value.cgroup_v1
        }
        kubernetes["kubelet"] = dict.fromkeys(sorted(fields), False)
    checks = {fact.value.check for fact in catalogue.node_needs.values()} - {None}
    if drawn.often(60):
        kubernetes["ignore_preflight"] = sorted(map(str, checks))
    if drawn.often(5):
        kubernetes["kube_proxy"] = {"mode": drawn.of(["iptables", "nftables"])}
    shared: dict[str, Any] = {"kubernetes": kubernetes}
    if drawn.often(12):
        shared["container_runtime"] = {"name": drawn.of(["containerd", "cri-o", "docker"])}
    if drawn.often(6):
        shared["container_runtime"] = {"source": drawn.of(["archive", "distro", "vendor-repo"])}
    if drawn.often(30):
        shared["sources"] = {"mode": "mirror", "url": "http://mirror.example:5080"}
    kinds = {fact.value.addon: fact.value.kind for fact in catalogue.addons.values()}
    versions = {fact.value.addon: fact.value.version for fact in catalogue.addons.values()}
    for key, of_kind in (("schedulers", {"scheduler"}), ("operators", {"operator", "dra"})):
        names = sorted(name for name, kind in kinds.items() if kind in of_kind)
        if names and drawn.often(10):
            wished = drawn.some(names, 2 if drawn.often(30) else 1)
            shared[key] = [f"{n}-{versions[n]}" if drawn.often(20) else n for n in wished]
        elif drawn.often(1):
            shared[key] = ["none-such"]
    if drawn.often(8):
        shared["pins"] = _shared_pin(drawn)
    return shared


def _shared_pin(drawn: Drawn) -> dict[str, str]:
    known: dict[str, list[str]] = {"kubernetes": sorted(drawn.catalogue.kubernetes)}
    for part in drawn.catalogue.components.values():
        known.setdefault(part.value.component, []).append(part.value.version)
    for runtime in drawn.catalogue.container_runtimes.values():
        name = runtime.value.runtime.replace("-", "_")
        known.setdefault(name, []).append(runtime.value.version)
    component = drawn.of(sorted(known))
    return {component: drawn.of(known[component]) if drawn.often(90) else "99.9.9"}


def _pool(drawn: Drawn, hosts: int) -> dict[str, Any]:
    catalogue = drawn.catalogue
    kind = "bare-metal"
    if drawn.often(12):
        kind = drawn.of(["passthrough", "passthrough", "hypervisor"])
    host: dict[str, Any] = _usual(drawn) | {"kind": kind}
    if drawn.often(5):
        host["os"] = drawn.of([*sorted(catalogue.systems), "none-such"])
    kernels = [
        fact.value.kernel for fact in catalogue.kernels.values() if fact.value.os == host["os"]
    ]
    if kernels and drawn.often(8):
        host["kernel"] = drawn.of(kernels) if drawn.often(95) else "2.6.32-1"
    if drawn.often(6):
        host |= {"secure_boot": True} | drawn.of([{}, {"module_signing": "mok"}])
    wishes: dict[str, Any] = {"host": host}
    if kind == "hypervisor":
        given = ["0000:17:00.0", "0000:65:00.0"]
        second = [given[1]]
        ways = [[second], [second], [second], [[*second, "0000:65:00.1"]], []]
        groups = [[given[0]], *drawn.of(ways), ["0000:00:1f.0"]]
        wishes["passthrough"] = {"devices": given, "iommu_groups": groups}
    if drawn.often(3):
        return wishes | {"accelerator": _accelerator(drawn)}
    wishes["gpu"] = _boards(drawn)
    wishes["driver"] = _driver(drawn, host["os"])
    if kind != "hypervisor" or drawn.often(10):
        _workload(drawn, wishes, hosts)
    if drawn.often(8):
        wishes["pins"] = _pool_pin(drawn, wishes)
    return wishes


def _boards(drawn: Drawn) -> list[dict[str, Any]]:
    models = sorted(drawn.catalogue.gpu_models)
    boards = []
    for name in dict.fromkeys([drawn.of(models)] + ([drawn.of(models)] if drawn.often(6) else [])):
        value = drawn.catalogue.gpu_models[name].value
        board: dict[str, Any] = {"count": drawn.of([1, 2, 4, 8, 8, 16])}
        if drawn.often(8):
            board["pci"] = drawn.of(value.pci)
            if value.subsystems and drawn.often(90):
                board["subsystem"] = drawn.of(value.subsystems)
        else:
            board["model"] = name if drawn.often(98) else "none-such"
        boards.append(board)
    return boards


def _accelerator(drawn: Drawn) -> dict[str, Any]:
    known = [(f.value.vendor, f.value.accelerator) for f in drawn.catalogue.accelerators.values()]
    known = [pair for pair in known if pair[0] in {"amd", "ascend", "intel", "kunlun"}]
    vendor, model = drawn.of([*known, ("amd", "none-such")])
    return {"vendor": vendor, "model": model, "count": drawn.of([1, 8])}


def _driver(drawn: Drawn, os: str) -> dict[str, Any]:
    driver: dict[str, Any] = {}
    if drawn.often(30):
        driver["policy"] = drawn.of(["lts", "production", "new-feature"])
    if drawn.often(15):
        facts = drawn.catalogue.driver_packages.values()
        packaged = sorted({fact.value.branch for fact in facts if fact.value.os == os})
        driver["branch"] = drawn.of([*packaged, *packaged, "999"])
    if drawn.often(10):
        driver["flavour"] = drawn.of(["open", "proprietary"])
    if drawn.often(10):
        driver["source"] = drawn.of(SOURCES)
    return driver


def _workload(drawn: Drawn, wishes: dict[str, Any], hosts: int) -> None:
    catalogue = drawn.catalogue
    if catalogue.cuda_toolkits and drawn.often(25):
        known = sorted(catalogue.cuda_toolkits)
        wishes["cuda"] = [drawn.version(known)]
        if drawn.often(20):
            # One release of a minor version at a time: they share a folder on the host.
            other = drawn.version(known)
            if other.split(".")[:2] != wishes["cuda"][0].split(".")[:2]:
                wishes["cuda"] = sorted({*wishes["cuda"], other})
    if catalogue.frameworks and drawn.often(25):
        builds = sorted((f.value.framework, f.value.version) for f in catalogue.frameworks.values())
        name, version = drawn.of(builds)
        wished = f"{name}-{drawn.version([version])}" if drawn.often(60) else name
        wishes["frameworks"] = [wished]
        other, _ = drawn.of(builds)
        if other != name and drawn.often(30):
            wishes["frameworks"].append(other)
    if drawn.often(10):
        wishes["forward_compatibility"] = True
    if drawn.often(30):
        wishes["sharing"] = _sharing(drawn)
    elif drawn.often(8):
        wishes |= _cut(drawn, hosts)
    elif drawn.often(12):
        wishes |= _apart(drawn)
    if drawn.often(10):
        wishes["rdma"] = {"stack": drawn.of(["inbox", "doca"])}


def _sharing(drawn: Drawn) -> dict[str, Any]:
    sharing: dict[str, Any] = {"mode": drawn.of(MODES)}
    if sharing["mode"] == "mig":
        profiles = sorted({f.value.profile for f in drawn.catalogue.mig_geometries.values()})
        sharing["profile"] = drawn.of([*profiles, "7g.999gb"])
    elif sharing["mode"] == "dra":
        if drawn.often(40):
            sharing["share"] = {"memory": drawn.of(["512Mi", "8Gi", "16Gi", "900Gi"])}
    elif sharing["mode"] != "none":
        key, values = drawn.of([("replicas", REPLICAS), ("share", SHARES)])
        sharing[key] = drawn.of(values)
    if drawn.often(15):
        sharing["isolation"] = drawn.of(["limited", "limited", "isolated"])
    if drawn.often(15):
        sharing["seats"] = drawn.of([1, 4, 48, 50, 400])
    if drawn.often(3):
        sharing |= drawn.of([{"replicas": 2}, {"share": 0.5}, {"profile": "1g.10gb"}])
    return sharing


def _cut(drawn: Drawn, hosts: int) -> dict[str, Any]:
    """Two boards that are cut into unequal numbers of one profile, seats at the edge of both."""
    instances: dict[str, dict[str, int]] = {}
    for fact in drawn.catalogue.mig_geometries.values():
        for model in fact.value.models:
            instances.setdefault(fact.value.profile, {})[model] = fact.value.instances
    profile = drawn.of(sorted(p for p, of in instances.items() if len(set(of.values())) > 1))
    first = drawn.of(sorted(instances[profile]))
    others = {m for m, n in instances[profile].items() if n != instances[profile][first]}
    counts = {model: drawn.of([1, 2, 4]) for model in (first, drawn.of(sorted(others)))}
    room = hosts * sum(instances[profile][model] * count for model, count in counts.items())
    seats = room + drawn.of([0, 0, 1])
    boards = [{"model": model, "count": count} for model, count in counts.items()]
    return {"gpu": boards, "sharing": {"mode": "mig", "profile": profile, "seats": seats}}


def _apart(drawn: Drawn) -> dict[str, Any]:
    """One board whose GPUs have several profiles each, or differ from each other."""
    profiles: dict[str, list[str]] = {}
    for fact in drawn.catalogue.mig_geometries.values():
        for model in fact.value.models:
            profiles.setdefault(model, []).append(fact.value.profile)
    model, count = drawn.of(sorted(profiles)), drawn.of([1, 2, 4])
    boards = [{"model": model, "count": count}]

    def instances() -> dict[str, int]:
        names = drawn.some(sorted(profiles[model]), 3) or [profiles[model][0]]
        return {name: drawn.of([1, 1, 1, 2, 4, 7]) for name in names}

    if drawn.often(40):
        return {"gpu": boards, "sharing": {"mode": "mig", "profiles": instances()}}
    entries: list[dict[str, Any]] = []
    for card in range(count + drawn.often(3) - drawn.often(3)):
        entry: dict[str, Any] = {"mode": drawn.of(["mig", "mig", "none"]), "cards": [card]}
        if entry["mode"] == "mig":
            alone = {"profile": drawn.of(sorted(profiles[model]))}
            entry |= alone if drawn.often(40) else {"profiles": instances()}
        if drawn.often(3):
            entry |= {"mode": "mps", "replicas": 4}
        entries.append(entry)
    return {"gpu": boards, "sharing": entries or {"mode": "none"}}


def _pool_pin(drawn: Drawn, wishes: dict[str, Any]) -> dict[str, str]:
    catalogue = drawn.catalogue
    known = {
        "nvidia_driver": sorted({f.value.version for f in catalogue.driver_packages.values()}),
        "cuda_toolkit": sorted(catalogue.cuda_toolkits),
    }
    known["nvidia_fabric"] = known["nvidia_driver"]
    for build in catalogue.frameworks.values():
        if any(wish.startswith(build.value.framework) for wish in wishes.get("frameworks", [])):
            name = build.value.framework.replace("-", "_")
            known.setdefault(name, []).append(build.value.version)
    pinned = drawn.of(sorted(key for key, versions in known.items() if versions))
    return {pinned: drawn.of(known[pinned]) if drawn.often(95) else "9.9.9"}
