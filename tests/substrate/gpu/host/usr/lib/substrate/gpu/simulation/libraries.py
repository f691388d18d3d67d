"""Puts the simulated libraries in the place of those that driver packages installed."""

import glob
import os
import re

from . import cards, driver, paths

NAMES = ("libnvidia-ml.so", "libnvidia-cfg.so")
#: Where Debian's and NVIDIA's packages put libraries; links to them are theirs and stay.
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/*", "/usr/lib64")
MARKER = b"\n--simulated-gpus--\n"
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")


def main():
    """What dpkg calls after each of its runs."""
    with paths.locked():
        refresh()
    return 0


def refresh():
    """Bring every installed library up to date with version, loaded module and cards."""
    for library in NAMES:
        for name in (n for f in FOLDERS for n in glob.glob(paths.path(f"{f}/{library}.*"))):
            match = _VERSION.search(name)
            if match and not os.path.islink(name):
                _replace(name, library, match.group(1))


def table(version):
    """The device table that a library of this version carries."""
    loaded = (paths.read(paths.MODULES + "/nvidia") or "").partition("\n")[0]
    lines = ["library " + version]
    if loaded:
        lines += ["loaded " + loaded, f"cuda_driver {driver.cuda(loaded)}"]
    lines += ["fault " + line for line in (paths.read(paths.FAULTS) or "").splitlines()]
    for name in (paths.SETTINGS, paths.PLANTED):
        lines += (paths.read(name) or "").splitlines()
    for card in cards.plugged():
        lines += ["gpu"] + [f"{key} {value}" for key, value in card.items()]
    return "".join(line + "\n" for line in lines)


def _replace(name, library, version):
    with open(paths.path(paths.LIBRARIES + "/" + library), "rb") as stream:
        wanted = stream.read() + MARKER + table(version).encode()
    with open(name, "rb") as stream:
        if stream.read() == wanted:
            return
    # Renamed over the old one: who has that mapped (a daemon, a pod) keeps it, as after an upgrade.
    temporary = name + ".simulated"
    with open(temporary, "wb") as stream:
        stream.write(wanted)
        os.fchmod(stream.fileno(), 0o644)
    os.rename(temporary, name)
