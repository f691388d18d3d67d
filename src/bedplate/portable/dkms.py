"""Kernel modules that DKMS builds from a driver's source: which are there, and why one is not."""

import glob
import os
import re
from typing import List, NamedTuple, Optional

from .host import Host

SOURCES = "/usr/src"
TREE = "/var/lib/dkms"
HEADERS = "/lib/modules/{}/build"
#: A build of the driver takes minutes on a slow host, never an hour.
BUILD_SECONDS = 3600
_FIELD = re.compile(r"^\s*(PACKAGE_NAME|PACKAGE_VERSION)\s*=\s*[\"']?([^\"'\s]+)", re.MULTILINE)
#: The compiler's and make's errors; what follows the first is usually its consequence.
_ERROR = re.compile(r"\berror:|\bError \d|\*\*\* ")
_LOG = re.compile(r"(/var/lib/dkms/\S+?/make\.log)")


class Module(NamedTuple):
    """A source that DKMS knows, as ``nvidia-current`` at ``535.309.01``."""

    name: str
    version: str


def modules(host: Host, version: str) -> List[Module]:
    """NVIDIA's sources of a driver version, sorted."""
    found = []
    for folder in host.list(SOURCES):
        if not folder.startswith("nvidia"):
            continue
        fields = dict(_FIELD.findall(host.read(f"{SOURCES}/{folder}/dkms.conf") or ""))
        # Packages of some systems have DKMS fill in the version: the folder's name carries it too.
        if version in (fields.get("PACKAGE_VERSION"), folder.rpartition("-")[2]):
            found.append(Module(fields.get("PACKAGE_NAME", folder.rpartition("-")[0]), version))
    return sorted(found)


def built(host: Host, module: Module, kernel: str) -> bool:
    """Whether the module was built for a kernel release, and lies where the kernel finds it."""
    made = glob.glob(host.path(f"{TREE}/{module.name}/{module.version}/{kernel}/*/module/*.ko*"))
    # Debian keeps them below updates/dkms, Red Hat below extra.
    placed = {
        os.path.basename(path)
        for folder in ("updates/dkms", "updates", "extra")
        for path in glob.glob(host.path(f"/lib/modules/{kernel}/{folder}/*.ko*"))
    }
    return bool(made) and {os.path.basename(path) for path in made} <= placed


def missing(host: Host, version: str, kernel: str) -> List[Module]:
    """Modules of a driver version that are not there for a kernel whose headers are."""
    if not host.exists(HEADERS.format(kernel)):
        return []
    return [module for module in modules(host, version) if not built(host, module, kernel)]


def build(host: Host, module: Module, kernel: str) -> Optional[str]:
    """Build and install a module for a kernel; the first error where that fails."""
    argv = ["dkms", "install", "--force", "-m", module.name, "-v", module.version, "-k", kernel]
    answer = host.run(argv, timeout=BUILD_SECONDS)
    if answer.code == 0 and built(host, module, kernel):
        return None
    return failure(host, answer.out + answer.err) or answer.said


def failure(host: Host, output: str) -> str:
    """The first error of the build that ``output`` says failed, and its log; empty for none."""
    logs = _LOG.findall(output)
    if not logs:
        return ""
    log = logs[-1]
    for line in (host.read(log) or "").splitlines():
        if _ERROR.search(line):
            return f"{short(line.strip(), log)} ({log})"
    return f"the build failed ({log})"


def short(line: str, log: str) -> str:
    """A compiler's line with paths relative to the build."""
    return line.replace(os.path.dirname(log) + "/build/", "").replace(
        os.path.dirname(log) + "/", ""
    )
