"""What a lock says about one pool, against the facts: a generator of details for each rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.properties import checker_sharing
from tests.properties.kept import wishes_kept
from tests.properties.known_bad import met
from tests.properties.plain import RESOURCE, at_least, between, numbers, same_minor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.properties.view import View

#: Markets whose GPUs have GPUDirect RDMA, where a way says nothing else.
GPUDIRECT = ["data-centre", "workstation", "embedded"]


def gpu_branch(view: View) -> Iterator[str]:
    """The branch is one that drives the architecture of every GPU, up to its legacy branch."""
    for row in view.architectures if view.driver else []:
        branch, last = int(view.driver["branch"]), row.get("last_branch")
        if branch < int(row["first_branch"]) or (last is not None and branch > int(last)):
            yield f"{branch} for {row['architecture']}"


def gpu_flavour(view: View) -> Iterator[str]:
    """The module's flavour is one that every board runs; the open one from its first driver on."""
    for model, _ in view.gpus if view.driver else []:
        flavour = view.driver["flavour"]
        first = model.get("open_from")
        if flavour not in model["flavours"]:
            yield f"{flavour} for {model['model']}"
        elif flavour == "open" and (first is None or not at_least(view.driver["version"], first)):
            yield f"open {view.driver['version']} for {model['model']}, listed from {first}"


def gpu_qualified(view: View) -> Iterator[str]:
    """The driver is qualified for every board."""
    for model, _ in view.gpus if view.driver else []:
        if not at_least(view.driver["version"], model.get("driver_from")):
            yield f"{view.driver['version']} for {model['model']}"


def driver_packaged(view: View) -> Iterator[str]:
    """There is a driver where there are GPUs, it is packaged, and its branch is its own."""
    if view.driver is None:
        if view.gpus:
            yield "GPUs without a driver"
    elif view.fact is None or view.fact["branch"] != view.driver["branch"]:
        yield f"{view.driver['version']} {view.driver['flavour']} is not packaged"
    elif view.driver["flavour"] not in view.branch["flavours"]:
        yield f"{view.driver['flavour']} is not published for {view.driver['branch']}"


def fabric_packaged(view: View) -> Iterator[str]:
    """A host whose GPUs a fabric joins gets all that it needs, at the driver's very version."""
    joined = [
        f"{model['model']} ({model['fabric']})"
        for model, count in view.gpus
        if model.get("fabric") and count >= model["fabric_from"]
    ]
    fabric, packages = view.pool.get("nvidia_fabric"), (view.fact or {}).get("fabric")
    if joined and not packages:
        yield f"no fabric packages for {', '.join(joined)}"
    needed = view.facts.one("fabrics", fabric=fabric["kind"]) if fabric else None
    for package in needed["packages"] if needed else ():
        # Some sources append the driver's branch to the name.
        named = re.compile(rf"{re.escape(package)}(-\d{{3}})?")
        if not any(named.fullmatch(name) for name in packages or ()):
            yield f"{fabric['kind']} without {package}"
    if bool(joined) != (fabric is not None):
        yield f"fabric for {joined}: {fabric}"
    if fabric and not any(f"({fabric['kind']})" in model for model in joined):
        yield f"fabric {fabric['kind']} for {joined}"
    if fabric and (fabric["version"], fabric["packages"]) != (view.driver["version"], packages):
        yield f"fabric {fabric['version']} with driver {view.driver['version']}"


def secure_boot(view: View) -> Iterator[str]:
    """Under Secure Boot the modules are signed, by their maker or with the owner's key."""
    host = view.wishes["bedplate_host"]
    signed = (view.fact or {}).get("signed") or host["module_signing"] == "mok"
    if view.driver and host["secure_boot"] and not signed:
        yield f"{view.driver['version']} is not signed"


def kernel_headers(view: View) -> Iterator[str]:
    """A module that is built needs headers; a precompiled one needs its very kernel."""
    if view.driver is None:
        return
    if view.driver["source"] == "precompiled":
        if view.kernel not in (view.fact or {}).get("kernels", []):
            yield f"no precompiled module for {view.kernel}"
    else:
        rows = [row for row in view.facts["kernels"] if row["kernel"] == view.kernel]
        mine = [row for row in rows if row["os"] == view.pool["os"] and row["headers"]]
        if rows and not mine:  # a kernel that no fact has is unknown, which is not wrong
            yield f"no headers for {view.kernel}"


def _runs(view: View, cuda: str, own_floor: str | None) -> bool:
    """Tell whether the driver runs a CUDA version: its own floor, its major's, or forwards."""
    version = view.driver["version"]
    major = view.facts.one("cuda-majors", major=str(numbers(cuda)[0]))
    if own_floor is not None and at_least(version, own_floor):
        return True
    if major is not None and at_least(version, major["driver_from"]):
        return True
    if not view.wishes["bedplate_forward_compatibility"]:
        return False
    if any(model["market"] != "data-centre" for model, _ in view.gpus):
        return False
    return any(
        view.driver["branch"] in row["branches"]
        for row in view.facts["forward-compatibility"]
        if same_minor(cuda, row["cuda"])
    )


def cuda_driver(view: View) -> Iterator[str]:
    """Every toolkit on the host is known and runs on the driver."""
    for version in view.pool.get("cuda_toolkit", []):
        row = view.facts.one("cuda-toolkits", version=version)
        if row is None:
            yield f"{version} is unknown"
        elif view.driver and not _runs(view, version, row["driver_from"]):
            yield f"{version} on {view.driver['version']}"


def cuda_gpu(view: View) -> Iterator[str]:
    """Every toolkit compiles for every GPU."""
    for version in view.pool.get("cuda_toolkit", []):
        for row in view.architectures:
            if not between(version, row["cuda_from"], row.get("cuda_upto")):
                yield f"{version} for {row['architecture']}"


def framework_driver(view: View) -> Iterator[str]:
    """The driver runs the CUDA that every framework brings."""
    for row in view.builds:
        if row["cuda"] is None:
            continue
        if view.driver is None or not _runs(view, row["cuda"], None):
            yield f"{row['framework']} {row['version']} with CUDA {row['cuda']}"


def framework_gpu(view: View) -> Iterator[str]:
    """Every framework has code for every GPU: its own, a lower minor's, or PTX of an older one.

    Builds for CPUs need none.
    """
    for row in view.builds:
        if row["cuda"] is None:
            continue
        listed = [numbers(text) for text in row["compute_capabilities"]]
        for model, _ in view.gpus:
            mine = numbers(model["compute_capability"])
            same_major = any(one[0] == mine[0] and one[1] <= mine[1] for one in listed)
            if not same_major and not (row.get("ptx") and listed and mine > max(listed)):
                yield f"{row['framework']} {row['version']} for {model['model']}"


def mps_clients(view: View) -> Iterator[str]:
    """MPS serves no more clients than CUDA, the architecture and the device plugin allow."""
    replicas = view.pool["sharing"].get("replicas")
    if view.sharing["mode"] != "mps" or not replicas or not view.driver:
        return
    rows = [row for row in view.facts["mps-limits"] if row.get("by") != "device-plugin"]
    cuda = view.branch["cuda"]
    fit = [row for row in rows if between(cuda, row.get("cuda_from"), row.get("cuda_upto"))]
    limits = [row["clients"] for row in fit]
    limits += [row["mps_clients"] for row in view.architectures if row.get("mps_clients")]
    for row in view.facts["mps-limits"] if not view.outside else []:
        span = (row.get("capability_from"), row.get("capability_upto"))
        boards = [model["compute_capability"] for model, _ in view.gpus]
        if row.get("by") == "device-plugin" and any(between(one, *span) for one in boards):
            limits.append(row["clients"])
    if not fit or replicas > min(limits):
        yield f"{replicas} clients, limits {limits}"


def share_divides(view: View) -> Iterator[str]:
    """There is room for every seat: a share never spans two cards."""
    seats = view.sharing["seats"]
    room = len(view.hosts) * sum(shares * cards for shares, cards in view.shares)
    if seats is not None and seats > room:
        yield f"{seats} seats, room for {room}"


def sharing_scheduler(view: View) -> Iterator[str]:
    """HAMi shares only what HAMi schedules."""
    if view.sharing["mode"] == "hami" and "hami" not in {a["name"] for a in view.addons}:
        yield "mode hami without the add-on hami"


def resource_owner(view: View) -> Iterator[str]:
    """The GPUs of a node are offered by exactly one; no other resource by more than one."""
    if not view.gpus or view.slurm:
        return
    mode = view.sharing["mode"]
    own = {"hami": [], "dra": ["nvidia_dra_driver"]}
    owners = {RESOURCE: own.get(mode, ["nvidia_device_plugin"])}
    for addon in view.addons:
        row = view.facts.one("addons", addon=addon["name"], version=addon["version"]) or {}
        # An owner in its own mode alone schedules the pods that ask for the resource everywhere.
        if row.get("owns_in_mode") in {None, mode} or mode == "dra":
            for resource in row.get("owns", []):
                owners.setdefault(resource, []).append(addon["name"])
    for resource, names in owners.items():
        if len(names) != 1:
            yield f"{resource} is offered by {names}"


def addon_driver(view: View) -> Iterator[str]:
    """Add-ons and components run on the driver of every node."""
    if view.driver is None or view.slurm:
        return
    for addon in view.addons:
        row = view.facts.one("addons", addon=addon["name"], version=addon["version"]) or {}
        if not at_least(view.driver["version"], row.get("driver_from")):
            yield f"{addon['name']} on {view.driver['version']}"


def component_driver(view: View) -> Iterator[str]:
    """The parts of every cluster run on the driver of every node."""
    if view.driver is None or view.slurm:
        return
    for name in ("nvidia_container_toolkit", "nvidia_device_plugin"):
        version = view.cluster[name]["version"]
        row = view.facts.one("components", component=name, version=version) or {}
        if not at_least(view.driver["version"], row.get("driver_from")):
            yield f"{name} {version} on {view.driver['version']}"


def rdma_path(view: View) -> Iterator[str]:
    """GPUDirect goes the decided way with this module, these boards, this kernel and driver."""
    decided = view.pool.get("rdma")
    if decided is None:
        return
    for row in view.facts.some("rdma-paths", stack=decided["stack"], method=decided["method"]):
        fits = (
            view.driver is not None
            and view.driver["flavour"] in row["flavours"]
            and {m["architecture"] for m, _ in view.gpus} <= set(row["architectures"])
            and {m["market"] for m, _ in view.gpus} <= set(row.get("markets") or GPUDIRECT)
            and _has_one(view, row.get("only_with") or [])
            and at_least(view.kernel, row.get("kernel_from"))
            and at_least(view.branch["cuda"], row.get("cuda_from"))
        )
        if fits:
            return
    yield f"{decided['stack']} with {decided['method']}"


def _has_one(view: View, markets: list[str]) -> bool:
    """Tell whether a board is of one of these markets, where a way is only for such hosts."""
    return not markets or any(model["market"] in markets for model, _ in view.gpus)


def guest_os(view: View) -> Iterator[str]:
    """A guest's system is one that the vendor drives in guests."""
    if view.kind == "passthrough" and not (view.system or {}).get("guest"):
        yield f"{view.pool['os']} as a guest"


def hypervisor_bare(view: View) -> Iterator[str]:
    """A hypervisor gives its GPUs away: nothing is installed that would use them."""
    parts = ("nvidia_driver", "nvidia_fabric", "cuda_toolkit", "frameworks", "expects")
    if view.kind == "hypervisor":
        yield from (part for part in parts if view.pool.get(part))
        if view.sharing["mode"] != "none":
            yield "sharing"


def known_bad(view: View) -> Iterator[str]:
    """No reported combination is complete."""
    for row in view.facts["known-bad"]:
        if all(met(condition, view) for condition in row["all"]):
            yield str(row["bad"])


RULES: dict[str, Callable[[View], Iterator[str]]] = {
    "gpu-branch": gpu_branch,
    "gpu-flavour": gpu_flavour,
    "gpu-qualified": gpu_qualified,
    "driver-packaged": driver_packaged,
    "fabric-packaged": fabric_packaged,
    "secure-boot": secure_boot,
    "kernel-headers": kernel_headers,
    "cuda-driver": cuda_driver,
    "cuda-gpu": cuda_gpu,
    "framework-driver": framework_driver,
    "framework-gpu": framework_gpu,
    "mps-clients": mps_clients,
    "mig-geometry": checker_sharing.mig_geometry,
    "sharing-parameters": checker_sharing.sharing_parameters,
    "sharing-cards": checker_sharing.sharing_cards,
    "share-memory": checker_sharing.share_memory,
    "isolation": checker_sharing.isolation,
    "claims": checker_sharing.claims,
    "share-divides": share_divides,
    "sharing-scheduler": sharing_scheduler,
    "resource-owner": resource_owner,
    "addon-driver": addon_driver,
    "component-driver": component_driver,
    "rdma-path": rdma_path,
    "guest-os": guest_os,
    "hypervisor-bare": hypervisor_bare,
    "known-bad": known_bad,
    "wishes": wishes_kept,
}
