"""rpm in the words of the driver role: versions as the catalogue writes them, holds, owners."""

from typing import Dict, List, Sequence

from ..host import Host
from . import rpm
from .debian import Package


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


def interrupted(host: Host) -> bool:
    """Whether a transaction of ours was left unfinished."""
    return rpm.journal(host) is not None
