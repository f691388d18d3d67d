"""An image of the host's own C library, to see with it what containers are given.

It has a program that stays and what nvidia-smi is linked with, and no file of NVIDIA's: what a
container has of those, the toolkit has put there. So no registry is asked for an image.
"""

import os
import re
import tarfile
from typing import List, Set

from ..host import Host

#: What the image is called. No registry has such a name.
NAME = "bedplate.invalid/probe:host"
STAYS = "sleep"
ASKS = "nvidia-smi"
#: Where the tools of every supported system lie.
FOLDERS = ("/usr/bin", "/bin")
#: Links of a system whose folders are merged, and what runtimes and hooks mount on.
LINKS = ("/bin", "/sbin", "/lib", "/lib64")
EMPTY = ("/dev", "/etc", "/etc/ld.so.conf.d", "/proc", "/run", "/sys")
_LINKED = re.compile(r"(?:=>\s+|^\s*)(/\S+)\s+\(0x", re.MULTILINE)


def content(host: Host) -> List[str]:
    """Paths of the program that stays and of the libraries that it and nvidia-smi want, sorted.

    Empty where the host lacks one of the two programs.
    """
    found: Set[str] = set()
    for name in (STAYS, ASKS):
        paths = [f"{folder}/{name}" for folder in FOLDERS if host.exists(f"{folder}/{name}")]
        if not paths:
            return []
        found.update(_LINKED.findall(host.run(["ldd", paths[0]]).out))
        found.update(paths[:1] if name == STAYS else [])
    return sorted(found)


def write(host: Host, path: str) -> bool:
    """Write the image's files as an archive to ``path``; False where they are not all there."""
    files = content(host)
    if not files:
        return False
    with tarfile.open(host.path(path), "w") as archive:
        for folder in EMPTY:
            archive.addfile(_entry(folder, tarfile.DIRTYPE))
        for link in LINKS:
            if os.path.islink(host.path(link)):
                archive.addfile(_entry(link, tarfile.SYMTYPE, os.readlink(host.path(link))))
        for name in files:
            real = os.path.realpath(host.path(name))
            folder = os.path.realpath(host.path(os.path.dirname(name)))
            inside = os.path.relpath(folder, os.path.realpath(host.root))
            entry = _entry(os.path.join(inside, os.path.basename(name)), tarfile.REGTYPE)
            entry.size = os.path.getsize(real)
            with open(real, "rb") as file:
                archive.addfile(entry, file)
    return True


def _entry(path: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.linkname, entry.mode = kind, target, 0o755
    return entry
