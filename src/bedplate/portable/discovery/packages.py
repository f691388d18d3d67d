"""Packages of the GPU stack that are installed, and who they came from; runfiles too."""

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from .. import os_release
from ..host import Host

#: Who a package is from. ``unknown``: no index that the host has offers this version.
DISTRO, VENDOR, OTHER, UNKNOWN = "distro", "vendor-repo", "other", "unknown"
STACK = re.compile(
    r"nvidia|^(lib)?cuda|^libnv|cudnn|nccl|^nvlsm|^datacenter-gpu-manager|^dcgm"
    r"|^(containerd|docker|moby|cri-o|cri-tools|kubelet|kubeadm|kubectl|kubernetes-cni|runc|podman)"
    r"|^(k3s|rke2|slurm|doca|mlnx|mft|rdma-core|ibverbs|infiniband-diags)"
)
#: As root, apt writes its caches when they are old: kept in memory, nothing on the host changes.
APT = ["apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
DPKG = "${binary:Package}\t${Version}\t${db:Status-Status}\t${Maintainer}\n"
RPM = "%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{VENDOR}\n"
UNINSTALLER = "/usr/bin/nvidia-uninstall"
INSTALLER_LOG = "/var/log/nvidia-installer.log"
#: The repositories that dnf 4 installed from, and those that it knows.
DNF_HISTORY = "/var/lib/dnf/history.sqlite"
REPOS = "/etc/yum.repos.d"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_INSTALLER = re.compile(r"^installer version: (\d+(?:\.\d+)+)", re.MULTILINE)


class Package(NamedTuple):
    """An installed package; ``repository`` is where this very version is offered, if known."""

    name: str
    version: str
    owner: str
    repository: Optional[str]


def public(text: str) -> str:
    """A repository's address without the user and password that it may carry."""
    return _CREDENTIALS.sub("", text)


def installed(host: Host) -> List[Package]:
    """The stack's packages, sorted by name; empty on systems with neither dpkg nor rpm."""
    answer = host.run(["dpkg-query", "--show", "--showformat=" + DPKG])
    if answer.code == 0:
        rows = [line.split("\t") for line in answer.out.splitlines()]
        have = {
            row[0].split(":")[0]: (row[1], row[3])
            for row in rows
            if len(row) == 4 and row[2] == "installed" and STACK.search(row[0])
        }
        return _debian(host, have)
    answer = host.run(["rpm", "--query", "--all", "--queryformat", RPM])
    if answer.code == 0:
        rows = [line.split("\t") for line in answer.out.splitlines()]
        have = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3 and STACK.search(row[0])}
        return _redhat(host, have)
    return []


def _owner(distribution: Iterable[str], *said: Optional[str]) -> str:
    """Whose a package is by what its repository says of itself, the clearest word first."""
    words = [word.lower() for word in said if word]
    if any(word.startswith(tuple(distribution)) for word in words):
        return DISTRO
    if any("nvidia" in word for word in words):
        return VENDOR
    return OTHER if words else UNKNOWN


def parse_origins(text: str) -> Dict[str, str]:
    """``apt-cache policy``: the origin that each package file's release states."""
    found: Dict[str, str] = {}
    source = ""
    for line in text.splitlines():
        entry = re.match(r"^\s*-?\d+ (\S.*)$", line)
        release = re.match(r"^\s+release (?:.*,)?o=([^,]*)", line)
        if entry:
            source = entry.group(1).strip()
        elif release and source:
            found[source] = release.group(1)
    return found


def parse_policy(text: str) -> Dict[str, List[str]]:
    """``apt-cache policy NAME…``: the package files that offer what is installed, by name."""
    found: Dict[str, List[str]] = {}
    name, here = "", False
    for line in text.splitlines():
        if line and not line[0].isspace() and line.endswith(":"):
            name, here = line[:-1].split(":")[0], False
            found[name] = []
        elif line.startswith(" *** "):
            here = True
        elif line.startswith("     ") and not line[5:6].isspace():
            here = False  # another version
        elif here and "/var/lib/dpkg/status" not in line:
            source = re.match(r"^\s+-?\d+ (\S.*)$", line)
            if source:
                found[name].append(source.group(1).strip())
    return found


def _debian(host: Host, have: Dict[str, Tuple[str, str]]) -> List[Package]:
    if not have:
        return []
    origins = parse_origins(host.run([*APT, "policy"]).out)
    offered = parse_policy(host.run([*APT, "policy", *sorted(have)]).out)
    system = os_release.keys(host).get("ID", "unknown").lower()
    found = []
    for name in sorted(have):
        sources = offered.get(name, [])
        owners = [_owner([system], origins.get(s), s) for s in sources] or [UNKNOWN]
        # Where several offer the same version, the distribution's is the one that apt trusts.
        best = min(owners, key=(DISTRO, VENDOR, OTHER, UNKNOWN).index)
        where = public(sources[owners.index(best)]) if sources else None
        found.append(Package(name, have[name][0], best, where))
    return found


def _base_urls(host: Host) -> Dict[str, str]:
    """The addresses of the repositories that rpm systems know, by id."""
    found: Dict[str, str] = {}
    for file in host.list(REPOS):
        section = ""
        for line in (host.read(f"{REPOS}/{file}") or "").splitlines():
            heading = re.match(r"^\[(.+)\]\s*$", line)
            address = re.match(r"^(?:baseurl|mirrorlist|metalink)\s*=\s*(\S+)", line)
            if heading:
                section = heading.group(1)
            elif address and section:
                found.setdefault(section, public(address.group(1)))
    return found


def _from_repository(host: Host) -> Dict[str, str]:
    """The repository that dnf 4 last installed each package from, by name.

    Its history is read instead of asking dnf, which writes logs and caches when it is asked.
    """
    path = host.path(DNF_HISTORY)
    if not host.exists(DNF_HISTORY):
        return {}
    try:
        import sqlite3  # not every Python has it
    except ImportError:
        return {}
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        try:
            rows = database.execute(
                "SELECT rpm.name, repo.repoid FROM trans_item"
                " JOIN rpm ON rpm.item_id = trans_item.item_id"
                " JOIN repo ON repo.id = trans_item.repo_id ORDER BY trans_item.id"
            )
            return {str(name): str(repo) for name, repo in rows if not repo.startswith("@")}
        finally:
            database.close()
    except sqlite3.Error:
        return {}


def _redhat(host: Host, have: Dict[str, Tuple[str, str]]) -> List[Package]:
    origin, addresses = _from_repository(host), _base_urls(host)
    # "Red Hat Enterprise Linux" and "Red Hat, Inc.", "Rocky Linux" and "Rocky Enterprise …".
    name = os_release.keys(host).get("NAME", "unknown").lower()
    system = [" ".join(name.split()[:2]) if name.startswith("red hat") else name.split(" ")[0]]
    found = []
    for package in sorted(have):
        version, maker = have[package]
        repository = origin.get(package)
        address = addresses.get(repository or "")
        maker = "" if maker == "(none)" else maker
        owner = _owner(system, maker, address, repository)
        found.append(Package(package, version, owner, address or repository))
    return found


def runfile(host: Host) -> Optional[Dict[str, Optional[str]]]:
    """The driver that NVIDIA's runfile installed, or None: its uninstaller is still there."""
    if not host.exists(UNINSTALLER):
        return None
    said = _INSTALLER.search(host.read(INSTALLER_LOG) or "")
    return {"version": said.group(1) if said else None, "uninstaller": UNINSTALLER}
