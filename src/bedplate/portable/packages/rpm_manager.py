"""rpm in the words of the driver role: versions as the catalogue writes them, holds, owners."""

import re
from typing import Dict, List, Sequence

from ..host import Host
from . import dnf, rpm
from .debian import Package

#: Modules are built from a source of their own, by DKMS, by akmods or for one kernel.
MODULE = re.compile(r"a?kmod-nvidia")
#: What else NVIDIA's drivers consist of, in its own repository and in others. Not what only uses
#: one, as nvidia-container-toolkit does.
PART = re.compile(
    r"dkms-nvidia|libnvidia-|cuda-drivers|xorg-x11-(?:drv-)?nvidia"
    r"|nvidia-(?:driver|kmod|libXNVCtrl|modprobe|open|persistenced|settings|xconfig)"
)


def installed(host: Host, names: Sequence[str]) -> Dict[str, Package]:
    """Those of ``names`` that are installed in one version; no epoch where it is 0."""
    found: Dict[str, List[rpm.Package]] = {}
    for package in rpm.query(host, names):
        found.setdefault(package.name, []).append(package)
    return {
        name: Package(packages[0].evr.removeprefix("0:"), rpm.locked(host, packages[0]))
        for name, packages in found.items()
        if len(packages) == 1
    }


def there(host: Host, names: Sequence[str]) -> List[str]:
    """Those of ``names`` that are on the host, in however many versions."""
    return sorted(rpm.versions(rpm.query(host, names)))


def owners(host: Host, paths: Sequence[str]) -> Dict[str, str]:
    """The package that owns each of ``paths``; those of no package are left out."""
    found = {}
    for path in paths:
        answer = host.run(["rpm", "--query", "--queryformat", "%{NAME}\n", "--file", path])
        if answer.code == 0 and answer.out.strip():
            found[path] = answer.out.splitlines()[0]
    return found


def siblings(host: Host, names: Sequence[str]) -> List[str]:
    """A driver's ``names``, and every other package on the host that it is made of, sorted.

    Those are from the same source packages, its modules, and what dnf would remove with them, as
    far as that is part of a driver: somebody else's packages stay to be refused.
    """
    if not names:
        return []
    answer = host.run(["rpm", "--query", "--all", "--queryformat", "%{NAME}\t%{SOURCERPM}\n"])
    rows = [line.partition("\t") for line in answer.out.splitlines()]
    built_from = {source for name, _, source in rows if name in names}
    mine = {n for n, _, source in rows if source in built_from or MODULE.match(n)}
    going = sorted({*names, *mine})
    return sorted({*going, *filter(PART.match, dnf.removed_with(host, going))})


def interrupted(host: Host) -> bool:
    """Whether a transaction of ours was left unfinished."""
    return rpm.journal(host) is not None
