"""CUDA toolkits side by side, and the one that programs get when they name none."""

import os
import re
from typing import Dict, Optional

from . import documents, services
from .host import Host
from .message import problem

LINK = "/usr/local/cuda"
#: What the loader has made of the libraries' folders, and what that depends on here.
CACHE = "/etc/ld.so.cache"
FOLDERS = ("/etc/ld.so.conf.d/zz-bedplate-cuda.conf", "/etc/alternatives/cuda")
_FOLDER = re.compile(r"^cuda-(\d+\.\d+)$")
_RELEASE = re.compile(r"\brelease (\d+\.\d+)\b")


class CudaError(Exception):
    """The default toolkit cannot be chosen; the text says what to do about it."""


def folder(version: str) -> str:
    """Where a toolkit lies: ``/usr/local/cuda-12.9`` for 12.9.1."""
    return LINK + "-" + ".".join(version.split(".")[:2])


def installed(host: Host) -> Dict[str, str]:
    """Full version by ``12.9`` of the toolkits below /usr/local, empty where one says none."""
    found = {}
    for name in host.list("/usr/local"):
        match = _FOLDER.match(name)
        if match and not os.path.islink(host.path("/usr/local/" + name)):
            found[match.group(1)] = _version(host.read(f"/usr/local/{name}/version.json"))
    return found


def _version(text: Optional[str]) -> str:
    try:
        return str(documents.table(text)["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def release(host: Host) -> Optional[str]:
    """What the compiler on the path says of itself, as ``11.8``."""
    found = _RELEASE.search(host.run(["nvcc", "--version"]).out)
    return found.group(1) if found else None


def default(host: Host) -> Optional[str]:
    """The folder that /usr/local/cuda leads to on the host, or None."""
    path = host.path(LINK)
    if not os.path.exists(path):
        return None
    real = os.path.realpath(path)
    root = os.path.realpath(host.root)
    return "/" + os.path.relpath(real, root)


def choose(host: Host, version: str, check: bool = False) -> bool:
    """Have /usr/local/cuda lead to a toolkit, by the alternatives that its packages keep.

    Returns whether that changes.

    Raises:
        CudaError: something that is no alternative lies there, or the system refuses.
    """
    target = folder(version)
    if default(host) == target:
        return False
    path = host.path(LINK)
    foreign = os.path.isdir(path) and not os.path.islink(path)
    if foreign or (os.path.islink(path) and "/alternatives/" not in os.readlink(path)):
        raise CudaError(
            problem(
                "the default CUDA toolkit is not the system's to choose",
                LINK,
                "a folder" if foreign else "a link to " + os.readlink(path),
                "a link of the alternatives, or nothing",
                "Take it away, or name no toolkit, and run the play again.",
            )
        )
    if check:
        return True
    priority = "".join(version.split(".")[:2])
    for words in (["--install", LINK, "cuda", target, priority], ["--set", "cuda", target]):
        answer = host.run(["update-alternatives", *words])
        if answer.code != 0:
            raise CudaError(
                problem(
                    "the default CUDA toolkit cannot be chosen",
                    LINK,
                    answer.said,
                    target,
                    "See 'update-alternatives --display cuda' on the host.",
                )
            )
    return True


def refresh(host: Host, check: bool = False) -> bool:
    """Have the loader know the default toolkit's libraries; whether it did not yet.

    By the times of files: a run that was ended after the link or the folder had changed is made
    good by the next one.

    Raises:
        CudaError: ldconfig refuses.
    """
    if not services.newer(host, FOLDERS, services.changed_at(host, CACHE)):
        return False
    answer = host.run(["ldconfig"]) if not check else None
    if answer is not None and answer.code != 0:
        raise CudaError(
            problem(
                "the loader cannot read the CUDA libraries",
                CACHE,
                answer.said,
                "'ldconfig' ends well",
                "Run it by hand, fix what it says, and run the play again.",
            )
        )
    return True
