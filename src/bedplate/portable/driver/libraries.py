"""The driver's libraries where NVIDIA's container tools look for them.

Debian keeps the libraries of a legacy branch in a folder of its own (``nvidia/tesla-535``). The
container toolkit and the device plugin look in the loader's folders and in ``nvidia/current``, so
that containers would get a GPU and no library (the plugin has no option for other folders).
Links there lead to the branch's folder. Debian's present branch has its files in ``current``
itself, beside which the links do no harm.
"""

import glob
import os
from typing import Dict, List, NamedTuple

from ..host import Host, make_folders

PARENTS = "/usr/lib/*-linux-gnu/nvidia"
CURRENT = "current"


class Change(NamedTuple):
    """Links to make, with their targets, and links that lead nowhere any more."""

    make: Dict[str, str]
    remove: List[str]

    @property
    def told(self) -> Dict[str, str]:
        """Links before and after, as Ansible shows differences."""
        after = "".join(f"{path} -> {to}\n" for path, to in sorted(self.make.items()))
        return {"before": "".join(f"{path}\n" for path in self.remove), "after": after}


def change(host: Host, version: str) -> Change:
    """What differs for the driver of ``version``; empty: no driver, so that no link is wanted."""
    make: Dict[str, str] = {}
    remove: List[str] = []
    for real in sorted(glob.glob(host.path(PARENTS))):
        wanted = _wanted(real, version) if version else {}
        current = os.path.join(real, CURRENT)
        there = {
            name: os.readlink(os.path.join(current, name))
            for name in (os.listdir(current) if os.path.isdir(current) else [])
            if os.path.islink(os.path.join(current, name))
        }
        shown = "/" + os.path.relpath(current, host.root)
        for name, target in wanted.items():
            taken = name not in there and os.path.lexists(os.path.join(current, name))
            if there.get(name) != target and not taken:
                make[f"{shown}/{name}"] = target
        # The packages' own links stay within the folder.
        ours = [name for name, target in there.items() if target.startswith("../")]
        remove += [f"{shown}/{name}" for name in sorted(ours) if name not in wanted]
    return Change(make, remove)


def _wanted(parent: str, version: str) -> Dict[str, str]:
    library = f"libnvidia-ml.so.{version}"
    own = os.path.join(parent, CURRENT, library)
    if os.path.exists(own) and not os.path.islink(own):
        return {}
    for found in sorted(glob.glob(os.path.join(parent, "*", library))):
        folder = os.path.dirname(found)
        if os.path.basename(folder) == CURRENT:
            continue
        libraries = glob.glob(os.path.join(folder, f"*.so.{version}"))
        names = sorted(map(os.path.basename, libraries))
        return {name: f"../{os.path.basename(folder)}/{name}" for name in names}
    return {}


def apply(host: Host, todo: Change) -> None:
    """Make and remove the links, each in one step; a folder that is left empty goes too."""
    for path in todo.remove:
        os.unlink(host.path(path))
    for path, target in todo.make.items():
        real = host.path(path)
        make_folders(os.path.dirname(real))
        fresh = f"{real}.new"
        if os.path.lexists(fresh):
            os.unlink(fresh)
        os.symlink(target, fresh)
        os.replace(fresh, real)
    for folder in {os.path.dirname(host.path(path)) for path in todo.remove}:
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
