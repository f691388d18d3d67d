"""NVIDIA drivers on a host that Bedplate did not bring: by the files that only a driver has."""

import glob
import os
import re
from typing import List, Mapping, NamedTuple, Sequence

from ..host import Host
from . import state as driver

#: What NVIDIA's installer leaves on the host, and what takes its driver away again.
UNINSTALLER = "/usr/bin/nvidia-uninstall"
#: What a source for DKMS makes, in its dkms.conf.
_MADE = re.compile(r"^\s*BUILT_MODULE_NAME\[\d+\]=[\"']?([^\"'\s]+)", re.MULTILINE)


class Foreign(NamedTuple):
    """``packages`` with their versions, and ``files`` that no package owns."""

    packages: Mapping[str, str]
    files: List[str]

    def __bool__(self) -> bool:
        """Whether there is anything foreign."""
        return bool(self.packages or self.files)

    @property
    def said(self) -> str:
        """Everything foreign, each with who brought it."""
        found = [f"package {name} {self.packages[name]}" for name in sorted(self.packages)]
        found += [f"{path} (of no package: NVIDIA's installer)" for path in self.files]
        return ", ".join(found)


def marks(host: Host, patterns: Sequence[str]) -> List[str]:
    """Files of the host that match; links are other names of such files and do not count.

    Nor do sources that make other modules than a driver's: GPUDirect Storage's ``nvidia-fs`` and
    ``nvidia-peer-memory`` lie beside any driver.
    """
    root = host.path("/").rstrip("/")
    found = {path[len(root) :] for p in patterns for path in glob.glob(host.path(p))}
    files = sorted(path for path in found if not os.path.islink(host.path(path)))
    return [path for path in files if not path.endswith("/dkms.conf") or _driver(host, path)]


def _driver(host: Host, path: str) -> bool:
    """Whether a dkms.conf makes module nvidia; one that does not say so plainly may."""
    made = _MADE.findall(host.read(path) or "")
    return not made or any(name == "nvidia" or "$" in name for name in made)


def find(
    host: Host,
    patterns: Sequence[str],
    ours: Sequence[Mapping[str, str]],
    runfile: bool,
    begun: Sequence[str] = (),
) -> Foreign:
    """What is there of drivers other than ``ours``: versions by package of each of our drivers.

    A library that no driver names, and that came along because one of its packages needs it, is
    ours as well: a vendor's package depends on what is built together with it.
    ``runfile`` says that files of no package are ours, because NVIDIA's installer is the source.
    ``begun`` are versions that a change of ours has begun to bring. Where it was cut off, the
    package manager has unpacked files that no package owns; their names carry the version.
    """
    paths = marks(host, patterns)
    owners = driver.owners(host, paths)
    named = {name for packages in ours for name in packages}
    others = sorted(set(owners.values()) - named)
    names = sorted(set(others) - set(driver.along(host, others, ours)))
    versions = driver.installed(host, names)
    files = [] if runfile else [path for path in paths if path not in owners]
    files = [path for path in files if not any(version in path for version in begun)]
    return Foreign({n: versions[n].version if n in versions else "" for n in names}, files)
