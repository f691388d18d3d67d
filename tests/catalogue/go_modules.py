"""What Go modules say about themselves, fetched with the ordinary go client.

`requirements` and `kubeadm` are what `data/go/*.yml` was written with; a proof fetches it again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).with_name("data") / "go"
KUBERNETES = "k8s.io/kubernetes"

#: Facts by the beginning of their ids, and the modules that they are released from.
MODULES = {
    "addon/hami-": ["github.com/Project-HAMi/HAMi"],
    "addon/jobset-": ["sigs.k8s.io/jobset"],
    "addon/kueue-": ["sigs.k8s.io/kueue"],
    "addon/nfd-": ["sigs.k8s.io/node-feature-discovery"],
    "addon/nvidia-device-plugin-chart-": ["github.com/NVIDIA/k8s-device-plugin"],
    "addon/nvidia-dra-driver-": ["sigs.k8s.io/dra-driver-nvidia-gpu"],
    "addon/slurm-operator-": ["github.com/SlinkyProject/slurm-operator"],
    "addon/volcano-": ["volcano.sh/volcano"],
    "component/cilium-": ["github.com/cilium/cilium"],
    "component/cri_tools-": ["sigs.k8s.io/cri-tools"],
    "component/flannel-": ["github.com/flannel-io/flannel"],
    "component/nvidia_device_plugin-": ["github.com/NVIDIA/k8s-device-plugin"],
    "kubernetes/": [KUBERNETES],
    "runtime/containerd-1": ["github.com/containerd/containerd"],
    "runtime/containerd-2": ["github.com/containerd/containerd/v2"],
    "runtime/cri-o-": ["github.com/cri-o/cri-o"],
}
#: Modules that carry Kubernetes' minor version in their own: v0.36.2 is 1.36, as is v1.36.2.
STAGED = {
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/client-go",
    "k8s.io/component-base",
    "k8s.io/cri-api",
    "k8s.io/cri-client",
    "k8s.io/kubelet",
    KUBERNETES,
}
ETCD = "go.etcd.io/etcd/client/v3"


class NotPublishedError(LookupError):
    """The module's version cannot be had."""


def modules() -> dict[str, tuple[list[str], str]]:
    """Return the ids of the facts that are released as Go modules, with paths and version."""
    return {
        fact.id: (paths, fact.value.version)
        for table in load_catalogue().tables().values()
        for fact in table.values()
        for prefix, paths in MODULES.items()
        if fact.id.startswith(prefix)
    }


@contextmanager
def cache() -> Iterator[Path]:
    """Yield an empty module cache, and remove it with all that was downloaded."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _go(folder: Path, *arguments: str) -> dict[str, Any]:
    # -modcacherw, because a read-only cache cannot be removed.
    environment = os.environ | {"GOMODCACHE": str(folder), "GOFLAGS": "-modcacherw"}
    done = subprocess.run(
        ["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode or "Error" in found:
        raise NotPublishedError(str(found.get("Error", done.stderr)).strip())
    return found


def _present(about: dict[str, Any], key: str) -> str:
    """Return a part of a module that is there, or raise NotPublishedError."""
    if key not in about:
        raise NotPublishedError(f"{about['Path']} {about['Version']} has no {key}")
    return str(about[key])


def requirements(folder: Path, paths: list[str], version: str) -> dict[str, str]:
    """Return the Kubernetes and etcd modules that a module's go.mod requires, with their versions.

    Raises NotPublishedError when none of the paths has the version.
    """
    for path in paths:
        try:
            about = _go(folder, "list", "-m", "-json", f"{path}@v{version}")
            said = _go(folder, "mod", "edit", "-json", _present(about, "GoMod"))
        except NotPublishedError as error:
            problem = error
            continue
        return {
            one["Path"]: one["Version"]
            for one in said.get("Require") or []
            if one["Path"] in STAGED | {ETCD} and one["Version"] != "v0.0.0"
        }
    raise problem


def sources(folder: Path, path: str, version: str) -> Path:
    """Return the folder with a module's sources. Raises NotPublishedError."""
    about = _go(folder, "mod", "download", "-json", f"{path}@v{version}")
    return Path(_present(about, "Dir"))


def kubeadm(folder: Path, version: str) -> dict[str, Any]:
    """Return what kubeadm and kubelet of a Kubernetes release take by default, from their source.

    Raises NotPublishedError when the release cannot be had.
    """
    root = sources(folder, KUBERNETES, version)
    constants = (root / "cmd/kubeadm/app/constants/constants.go").read_text(encoding="utf-8")
    defaults = root / "pkg/kubelet/apis/config/v1beta1/defaults.go"
    fails = re.search(r"obj\.FailCgroupV1 = [\w.]+\((\w+)\)", defaults.read_text(encoding="utf-8"))
    assert fails is not None

    def constant(name: str) -> str:
        found = re.search(rf'^\s+{name} = "v?([^"]+)"', constants, re.MULTILINE)
        assert found is not None, name
        return found.group(1)

    return {
        "etcd": constant("DefaultEtcdVersion"),
        "coredns": constant("CoreDNSVersion"),
        "pause": constant("PauseVersion"),
        "fail_cgroup_v1": fails.group(1) == "true",
    }


def stored(name: str) -> dict[str, Any]:
    """Return what was fetched before; null for what could not be had."""
    found: dict[str, Any] = yaml.safe_load((DATA / f"{name}.yml").read_text(encoding="utf-8"))
    return found
