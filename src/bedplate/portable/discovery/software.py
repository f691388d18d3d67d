"""System, driver, container runtime and kubelet of a host, and whose they are."""

import base64
import binascii
import hashlib
import re
from typing import Any, Dict, List, Optional, Sequence

from .. import node_conflicts, nvidia, os_release
from ..host import KUBELET_CONFIG, Host
from .packages import UNKNOWN, Package, runfile

RELEASE = "/proc/sys/kernel/osrelease"
RUNFILE, PRECOMPILED, NONE = "runfile", "precompiled", "none"
#: Packages that carry a driver's kernel module; these say whose the driver is.
_DRIVER = re.compile(
    r"^(nvidia-(open-|tesla-|legacy-)?(\d+-)?(kernel-|driver|dkms|open)|nvidia-kmod|kmod-nvidia"
    r"|linux-(modules|objects|signatures)-nvidia|cuda-drivers|nvidia-open)"
)
_PRECOMPILED = re.compile(
    r"^(linux-(modules|objects)-nvidia-|kmod-nvidia(-open)?-\d+\.\d+\.\d+-\d+)"
)
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+(?:[-+.~][0-9A-Za-z.+~-]+)?)")
RUNTIMES = {
    "containerd": (["containerd", "--version"], r"^(containerd|containerd\.io)$"),
    "cri-o": (["crio", "--version"], r"^cri-o"),
    "docker": (["dockerd", "--version"], r"^(docker-ce|docker\.io|moby-engine)$"),
}
UNITS = {"containerd": "containerd", "cri-o": "crio", "docker": "docker"}
#: Who joins a host to a cluster leaves kubelet's credentials here.
JOINED_BY = {
    "kubeadm": KUBELET_CONFIG,
    "k3s": "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "rke2": "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "another tool": "/var/lib/kubelet/kubeconfig",
}


def system(host: Host) -> Dict[str, Any]:
    """Operating system, kernel, and what kind of machine it is."""
    kernel = (host.read(RELEASE) or "").strip()
    memory = re.search(r"^MemTotal:\s+(\d+) kB", host.read("/proc/meminfo") or "", re.MULTILINE)
    processors = host.read("/proc/cpuinfo") or ""
    virtual = host.run(["systemd-detect-virt", "--vm"]).out.strip()
    container = host.run(["systemd-detect-virt", "--container"]).out.strip()
    if not virtual:  # no systemd: the processor says that it is a virtual one
        guest = re.search(r"^flags\s*:.*\bhypervisor\b", processors, re.MULTILINE)
        virtual = "vm" if guest else NONE
    return {
        "os": os_release.name(host),
        "name": os_release.keys(host).get("PRETTY_NAME"),
        "kernel": kernel or None,
        "headers": bool(kernel) and host.exists(f"/lib/modules/{kernel}/build"),
        "machine": host.run(["uname", "-m"]).out.strip() or None,
        # Only the second version has this file at its root.
        "cgroup": 2 if host.exists("/sys/fs/cgroup/cgroup.controllers") else 1,
        "virtual": None if virtual == NONE else virtual,
        "container": None if container in ("", NONE) else container,
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "cpus": len(re.findall(r"^processor\s*:", processors, re.MULTILINE)) or None,
    }


def _on_disk(host: Host) -> Optional[Dict[str, str]]:
    """The module that the next start loads: an installed driver need not be the loaded one."""
    version = host.run(["modinfo", "--field", "version", "nvidia"])
    if version.code != 0 or not version.out.strip():
        return None
    licence = host.run(["modinfo", "--field", "license", "nvidia"]).out
    return {
        "version": version.out.strip(),
        "flavour": "open" if "MIT" in licence else "proprietary",
    }


def _owner(packages: Sequence[Package], by_runfile: bool) -> str:
    """Who looks after the driver: runfile, precompiled, an owner of packages, unknown or none."""
    if by_runfile:
        return RUNFILE
    drivers = [package for package in packages if _DRIVER.match(package.name)]
    if any(_PRECOMPILED.match(package.name) for package in drivers):
        return PRECOMPILED
    owners = sorted({package.owner for package in drivers})
    if not owners:
        return NONE
    # Packages of two owners are nobody's: the one that is not the distribution's says more.
    foreign = [owner for owner in owners if owner not in ("distro", UNKNOWN)]
    return foreign[0] if foreign else owners[0]


def driver(host: Host, packages: Sequence[Package]) -> Dict[str, Any]:
    """NVIDIA's driver: what is loaded, what lies on disk, whose it is."""
    loaded, by_runfile = nvidia.loaded_module(host), runfile(host)
    return {
        "loaded": loaded._asdict() if loaded else None,
        "on_disk": _on_disk(host),
        "owner": _owner(packages, by_runfile is not None),
        "repositories": sorted(
            {p.repository for p in packages if p.repository and _DRIVER.match(p.name)}
        ),
        "runfile": by_runfile,
        "nouveau": host.exists("/sys/module/nouveau"),
    }


def _version(host: Host, argv: List[str]) -> Optional[str]:
    answer = host.run(argv)
    found = _VERSION.search(answer.out) if answer.code == 0 else None
    return found.group(1) if found else None


def _whose(packages: Sequence[Package], pattern: str) -> str:
    """The owner of a program's package; ``none`` where it came as a file."""
    owners = [package.owner for package in packages if re.match(pattern, package.name)]
    return owners[0] if owners else NONE


def container_runtime(host: Host, packages: Sequence[Package]) -> Dict[str, Any]:
    """Container runtimes by name, and NVIDIA's toolkit; only those that are there."""
    found: Dict[str, Any] = {}
    for name, (argv, pattern) in RUNTIMES.items():
        version = _version(host, argv)
        if version is not None:
            active = host.run(["systemctl", "is-active", UNITS[name]]).out.strip() == "active"
            owner = _whose(packages, pattern)
            found[name] = {"version": version, "active": active, "owner": owner}
    toolkit = _version(host, ["nvidia-ctk", "--version"])
    owner = _whose(packages, "^nvidia-container-toolkit$")
    return {
        "runtimes": found,
        "toolkit": {"version": toolkit, "owner": owner} if toolkit else None,
    }


def _authority(host: Host, text: str) -> Optional[str]:
    """The digest of the cluster's certificate authority: what tells one cluster from another."""
    data = re.search(r"^\s*certificate-authority-data:\s*(\S+)", text, re.MULTILINE)
    if data:
        try:
            content = base64.b64decode(data.group(1), validate=True)
        except (binascii.Error, ValueError):
            return None
    else:
        path = re.search(r"^\s*certificate-authority:\s*(\S+)", text, re.MULTILINE)
        content = ((host.read(path.group(1)) or "") if path else "").encode()
    return hashlib.sha256(content.strip()).hexdigest() if content.strip() else None


def kubernetes(host: Host, packages: Sequence[Package]) -> Dict[str, Any]:
    """The kubelet, and the cluster that this host is in: by its server and its authority.

    Of kubelet's credentials only these two are read out; the keys stay on the host.
    """
    version = _version(host, ["kubelet", "--version"])
    membership = None
    for tool, path in JOINED_BY.items():
        if host.exists(path):
            text = host.read(path) or ""
            server = re.search(r"^\s*server:\s*(\S+)", text, re.MULTILINE)
            membership = {
                "by": tool,
                "server": server.group(1).strip("\"'") if server else None,
                "authority": _authority(host, text),
            }
            break
    active = host.run(["systemctl", "is-active", "kubelet"]).out.strip() == "active"
    owner = _whose(packages, "^kubelet$")
    return {
        "kubelet": {"version": version, "active": active, "owner": owner} if version else None,
        "membership": membership,
        "control_plane": host.exists("/etc/kubernetes/manifests/kube-apiserver.yaml"),
        "others": node_conflicts.others(host),
        "cni": node_conflicts.configurations(host),
        "cni_first": node_conflicts.first(host),
        "links": node_conflicts.links(host),
    }
