"""What already runs on a host against the lock: adopted, changed by us, or somebody else's."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import yaml

from bedplate.common import reading
from bedplate.common.reading_yaml import parsed
from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bedplate.lock.model import Driver, Lock, Pool

OWNED_BY = {
    "runfile": "NVIDIA's runfile",
    "vendor-repo": "NVIDIA's repository",
    "distro": "the distribution",
    "precompiled": "precompiled packages",
    "other": "another repository",
    "none": "no package: a driver container, or a build by hand",
    "unknown": "a package whose repository the host does not know",
}


@dataclass(frozen=True)
class Finding:
    """One thing that runs on a host, and what becomes of it.

    `adopted`: as the lock has it. `change`: site.yml or the stack that is named changes it.
    `foreign`: somebody else looks after it, and has to let go first. `runs`: nothing to compare
    with, the lock has none, or it stays.
    """

    component: str
    state: Literal["adopted", "change", "foreign", "runs"]
    text: str

    def __str__(self) -> str:
        return f"{self.component} {self.text}"


@dataclass(frozen=True)
class Cluster:
    """The site's own cluster: the digest of its authority, its endpoints, its control planes."""

    authority: str | None
    endpoints: frozenset[str]
    control_planes: frozenset[str]


def cluster_of(site: Path, lock: Lock | None, endpoint: str | None) -> Cluster:
    """Return what tells the site's cluster from others."""
    authority = None
    try:
        config = parsed(reading.content(site / ".bedplate" / "kubeconfig").decode())
        data = config["clusters"][0]["cluster"]["certificate-authority-data"]
        content = base64.b64decode(data, validate=True).strip()
        authority = hashlib.sha256(content).hexdigest()
    except (OSError, ValueError, KeyError, IndexError, TypeError, binascii.Error, yaml.YAMLError):
        pass  # no cluster yet, or one that is used through a kubeconfig of another form
    endpoints = {endpoint} if endpoint else set()
    addresses: set[str] = set()
    if lock:
        endpoints |= {lock.cluster.kubernetes.endpoint} if lock.cluster else set()
        # A control plane's kubelet talks to its own API.
        planes = (host for host in lock.hosts.values() if "control_plane" in host.groups)
        addresses = {host.address for host in planes}
    return Cluster(authority, frozenset(endpoints), frozenset(addresses))


def findings(
    name: str, facts: Mapping[str, Any], lock: Lock | None, cluster: Cluster
) -> list[Finding]:
    """Return what runs on a host, component by component."""
    host = lock.hosts.get(name) if lock else None
    pool = lock.pools.get(host.pool) if lock and host and host.pool else None
    locked = lock if host else None
    return [
        *_driver(facts, locked, pool),
        *_fabric(facts, pool),
        *_runtimes(facts, locked),
        *_toolkit(facts, locked, pool),
        *_others(facts),
        *_kubelet(facts, locked, cluster),
        *_kernel(facts, pool),
    ]


def _needs(facts: Mapping[str, Any], *others: str) -> str:
    drain = ("drain",) if facts["kubernetes"]["membership"] else ()
    needs = [*drain, *others]
    return f"; needs: {', '.join(needs)}" if needs else ""


def _module(driver: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return version and flavour of the module that is loaded, or else lies on disk."""
    for place in ("loaded", "on_disk"):
        if driver[place]:
            return driver[place]["version"], driver[place]["flavour"]
    if driver["runfile"]:
        return driver["runfile"]["version"], None
    return None, None


def _owner_of(driver: Mapping[str, Any]) -> str:
    """Return whose the driver is, with the repository where that says more."""
    owner = OWNED_BY[driver["owner"]]
    if driver["owner"] in ("other", "vendor-repo") and driver["repositories"]:
        owner += f" ({', '.join(driver['repositories'])})"
    return owner


def _driver(facts: Mapping[str, Any], lock: Lock | None, pool: Pool | None) -> Iterator[Finding]:
    driver = facts["driver"]
    version, flavour = _module(driver)
    if version is None and driver["owner"] == "none" and not driver["runfile"]:
        return
    runs = " ".join(part for part in (version or "of unknown version", flavour) if part)
    whose = _owner_of(driver)
    if lock is None:
        yield Finding("driver", "runs", f"{runs}, by {whose}")
        return
    wanted = pool.nvidia_driver if pool else None
    if wanted is None:
        yield Finding("driver", "runs", f"{runs}, by {whose}: the lock wants none here, left alone")
        return
    aim = f"{wanted.version} {wanted.flavour} from {wanted.source}"
    if driver["owner"] not in (wanted.source, "unknown"):
        yield Finding(
            "driver",
            "foreign",
            f"{runs} belongs to {whose}; locked {aim}: {_let_go(driver)}{_needs(facts, 'reboot')}",
        )
        return
    steps = list(_steps(facts, driver, wanted))
    if steps:
        # Modules that nothing uses are exchanged without one.
        reboot = "reboot" if driver["nouveau"] else "reboot where the GPUs are in use"
        needs = _needs(facts, *([reboot] if driver["loaded"] or driver["nouveau"] else []))
        yield Finding("driver", "change", f"{runs} → {aim} ({', '.join(steps)}){needs}")
    else:
        yield Finding("driver", "adopted", f"{runs}, as locked")


def _let_go(driver: Mapping[str, Any]) -> str:
    if driver["runfile"]:
        return f"run {driver['runfile']['uninstaller']} on the host first"
    if driver["owner"] == "none":
        return "stop what loads it first"
    return "remove its packages first, or lock its source by bedplate_driver.source"


def _steps(facts: Mapping[str, Any], driver: Mapping[str, Any], wanted: Driver) -> Iterator[str]:
    have = {package["name"]: package["version"] for package in facts["packages"]}
    packages = [name for name, version in wanted.packages.items() if have.get(name) != version]
    if packages:
        yield f"{len(packages)} of {len(wanted.packages)} packages"
    if driver["loaded"] is None:
        yield "load the module"
    elif driver["loaded"]["version"] != wanted.version:
        yield f"loaded {driver['loaded']['version']} → {wanted.version}"
    if driver["loaded"] and driver["loaded"]["flavour"] != wanted.flavour:
        yield f"{driver['loaded']['flavour']} → {wanted.flavour}"


def _fabric(facts: Mapping[str, Any], pool: Pool | None) -> Iterator[Finding]:
    have = {
        package["name"]: package["version"]
        for package in facts["packages"]
        if package["name"].startswith("nvidia-fabricmanager") and "-dev" not in package["name"]
    }
    if not have:
        return
    runs = ", ".join(sorted(have.values()))
    wanted = pool.nvidia_fabric if pool else None
    if wanted is None:
        yield Finding("Fabric Manager", "runs", runs)
    elif all(have.get(name) == version for name, version in wanted.packages.items()
             if name.startswith("nvidia-fabricmanager")):  # fmt: skip
        yield Finding("Fabric Manager", "adopted", f"{runs}, as locked")
    else:
        needs = _needs(facts)
        yield Finding("Fabric Manager", "change", f"{runs} → {wanted.version}{needs}")


def _same(found: str, locked: str) -> bool:
    """Tell whether a program's version is the lock's: a package may add a revision to it."""
    return found.split("+")[0].split("~")[0] == locked


def _runtimes(facts: Mapping[str, Any], lock: Lock | None) -> Iterator[Finding]:
    choices = {}
    if lock and (cluster := lock.cluster):
        choices = {
            "containerd": cluster.containerd,
            "cri-o": cluster.cri_o,
            "docker": cluster.docker,
        }
    wanted = {name: choice for name, choice in choices.items() if choice}
    for name, found in sorted(facts["container_runtime"]["runtimes"].items()):
        state = "active" if found["active"] else "not active"
        runs = f"{found['version']} ({state}, {_program_of(found['owner'])})"
        if name not in wanted:
            aim = f"; locked {', '.join(wanted)}: left alone, next to it" if wanted else ""
            yield Finding(name, "runs", runs + aim)
            continue
        choice = wanted[name]
        archive = found["owner"] == "none"
        if archive != (choice.source == "archive"):
            aim = f"{choice.version} from {choice.source}" + _needs(facts)
            what = f"{runs}; locked {aim}: its package stays, and what it runs is restarted"
            if archive:
                what = f"{runs}; locked {aim}: remove the files under /usr/local first"
            yield Finding(name, "foreign", what)
        elif _same(found["version"], choice.version):
            yield Finding(name, "adopted", f"{runs}, as locked")
        else:
            yield Finding(name, "change", f"{runs} → {choice.version}{_needs(facts)}")


def _program_of(owner: str) -> str:
    return {
        "none": "installed as files",
        "distro": "the distribution's package",
        "vendor-repo": "NVIDIA's package",
        "other": "a package of another repository",
    }.get(owner, "a package of an unknown repository")


def _toolkit(facts: Mapping[str, Any], lock: Lock | None, pool: Pool | None) -> Iterator[Finding]:
    found = facts["container_runtime"]["toolkit"]
    if not found:
        return
    runs = f"{found['version']} ({_program_of(found['owner'])})"
    if lock is None or lock.cluster is None or pool is None:
        yield Finding("container toolkit", "runs", runs)
        return
    wanted = lock.cluster.nvidia_container_toolkit
    if _same(found["version"], wanted.version):
        yield Finding("container toolkit", "adopted", f"{runs}, as locked")
    else:
        yield Finding("container toolkit", "change", f"{runs} → {wanted.version}{_needs(facts)}")


def _is_ours(membership: Mapping[str, Any], cluster: Cluster) -> bool | None:
    """Tell whether a host is in the site's cluster; None where nothing says it."""
    if cluster.authority and membership["authority"]:
        return bool(cluster.authority == membership["authority"])
    if not cluster.endpoints or not membership["server"]:
        return None
    server = urlsplit(membership["server"])
    return server.netloc in cluster.endpoints or server.hostname in cluster.control_planes


def _others(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what keeps a host from being a node; hosts that were read before have none of it."""
    found = facts["kubernetes"]
    named = (found["membership"] or {}).get("by")
    for name, path in sorted(found.get("others", {}).items()):
        if name != named:
            yield Finding(
                "kubernetes", "foreign", f"{name} is installed, {path}: uninstall it first"
            )
    if not found["membership"] and not found.get("others"):  # then they are that cluster's
        for network, links in sorted(found.get("links", {}).items()):
            text = (
                f"{', '.join(links)} of {network} left by a former cluster: reboot the host, or"
                " run `ip link delete` for each, first"
            )
            yield Finding("pod network", "foreign", text)
    for path in found.get("cni", []):
        if path in found.get("cni_first", []):
            text = f"{path} would win over flannel's configuration: move it away first"
            yield Finding("pod network", "foreign", text)
        else:
            yield Finding("pod network", "runs", f"{path}, which comes after flannel's")


def _kubelet(facts: Mapping[str, Any], lock: Lock | None, cluster: Cluster) -> Iterator[Finding]:
    kubelet, membership = facts["kubernetes"]["kubelet"], facts["kubernetes"]["membership"]
    version = kubelet["version"] if kubelet else "inside another program"
    if membership:
        ours = _is_ours(membership, cluster)
        at = membership["server"] or "an unknown server"
        if membership["by"] != "kubeadm":
            how = f"{version}, node of {at} by {membership['by']}"
            yield Finding("kubelet", "foreign", f"{how}: take the host out of that cluster first")
            return
        if ours is False:
            text = f"{version} is in another cluster, {at}: drain it there and run `kubeadm reset`"
            yield Finding("kubelet", "foreign", text)
            return
        where = f"in this site's cluster, {at}" if ours else f"in a cluster, {at}"
    elif kubelet:
        where = "in no cluster"
    else:
        return
    if lock is None or lock.cluster is None or not kubelet:
        yield Finding("kubelet", "runs", f"{version}, {where}")
        return
    wanted = lock.cluster.kubernetes.version
    if version == wanted:
        yield Finding("kubelet", "adopted", f"{version}, {where}, as locked")
    elif membership and parts(version) > parts(wanted):
        kept = f"the lock has {wanted}, and Kubernetes is never downgraded: plan {version}"
        yield Finding("kubelet", "runs", f"{version}, {where}; {kept}")
    else:
        by = "upgrade, one minor version at a time" if membership else "site"
        text = f"{version} → {wanted}, {where}; by bedplate.gpu.{by}{_needs(facts)}"
        yield Finding("kubelet", "change", text)


def _kernel(facts: Mapping[str, Any], pool: Pool | None) -> Iterator[Finding]:
    found = facts["system"]["kernel"]
    if pool and pool.kernel and pool.kernel != found:
        yield Finding("kernel", "change", f"{found} → {pool.kernel}{_needs(facts, 'reboot')}")
