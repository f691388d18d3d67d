"""Stand-ins of what goes with a driver: Fabric Manager and its companions, CUDA and libraries.

    python -m tests.substrate.standin.companions FOLDER --os debian-12 fabric=535.309.01 cuda=12.9.1

Fabric Manager's keeps to what matters of the real one: it starts only beside a driver of its own
version, and the simulated cards register once it runs. A toolkit's says its version. The file
`fingerprint` names the key that signed the repository.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bedplate.catalogue.load import load_catalogue
from tests.substrate.standin import deb
from tests.substrate.standin.packages import StandIn
from tests.substrate.standin.signing import Key

MANAGER = """#!/bin/sh
# As the real one: no work beside a driver of another version.
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
if [ "$loaded" != "{version}" ]; then
    echo "fabric manager {version} and driver $loaded do not match" >&2
    exit 1
fi
echo $$ > /run/nvidia-fabricmanager/nv-fabricmanager.pid
exec sleep infinity
"""
UNIT = """[Unit]
Description=A stand-in of NVIDIA Fabric Manager
[Service]
RuntimeDirectory=nvidia-fabricmanager
ExecStart=/bin/sh /usr/share/nvidia/nvswitch/stand-in
[Install]
WantedBy=multi-user.target
"""


def fabric(os: str, version: str) -> list[StandIn]:
    """Return the packages of the catalogue's sets for ``os``, at another driver's version.

    Those with a version of their own (the subnet manager) keep it.
    """
    found: dict[str, StandIn] = {}
    for fact in load_catalogue().driver_packages.values():
        one = fact.value
        if one.os != os or one.source != "vendor-repo":
            continue
        for name, own in (one.fabric or {}).items():
            mine = f"{version}-1" if own.startswith(one.version) else own
            files = {}
            if name.startswith("nvidia-fabricmanager"):
                files = {
                    "/usr/share/nvidia/nvswitch/stand-in": MANAGER.format(version=version),
                    "/usr/lib/systemd/system/nvidia-fabricmanager.service": UNIT,
                }
            found[name] = StandIn(name, mine, files=files)
    return list(found.values())


def cuda(version: str, library: Path) -> list[StandIn]:
    """Return a toolkit, with the forward compatibility library that must hide no driver's.

    As the vendor's it needs parts that count their versions differently.
    """
    release, _, patch = version.rpartition(".")
    suffix, folder = release.replace(".", "-"), f"/usr/local/cuda-{release}"
    compiler = StandIn(f"cuda-nvcc-{suffix}", f"{release}.{40 + int(patch)}-1")
    files = {
        f"{folder}/version.json": json.dumps({"cuda": {"name": "CUDA SDK", "version": version}}),
        f"{folder}/lib64/stand-in": "",
    }
    compatibility = {f"{folder}/compat/libcuda.so.1": library}
    name, needs = f"cuda-toolkit-{suffix}", {compiler.name: f">= {compiler.version}"}
    toolkit = StandIn(name, f"{version}-1", needs, files=files, programs=compatibility)
    return [toolkit, compiler]


def library(wish: str) -> StandIn:
    """Return a package that has a name and a version only, such as ``libnccl2=2.27.3-1``."""
    name, _, version = wish.partition("=")
    return StandIn(name, version)


def empty_library(name: str, folder: Path) -> Path:
    """Compile a library of that name with nothing in it, which the loader lists all the same."""
    made = folder / name
    source = ["-x", "c", "/dev/null", "-o", str(made)]
    subprocess.run(["gcc", "-shared", f"-Wl,-soname,{name}", *source], check=True)
    return made


def main() -> int:
    """Build the repository that the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.substrate.standin.companions", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("wanted", nargs="+", metavar="fabric=VERSION|cuda=VERSION|NAME=VERSION")
    parser.add_argument("--os", required=True)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        work, packages = Path(folder), list[StandIn]()
        libcuda = empty_library("libcuda.so.1", work)
        for wish in arguments.wanted:
            kind, _, version = wish.partition("=")
            if kind == "fabric":
                packages += fabric(arguments.os, version)
            elif kind == "cuda":
                packages += cuda(version, libcuda)
            else:
                packages.append(library(wish))
        key = Key(work / "gnupg")
        try:
            deb.repository(
                {(p.name, p.version): p for p in packages}.values(), arguments.folder, key
            )
        finally:
            key.close()
        (arguments.folder / "fingerprint").write_text(key.fingerprint)
    return 0


if __name__ == "__main__":
    sys.exit(main())
