"""Build a repository of stand-ins into a folder.

    python -m tests.substrate.standin driver FOLDER --os ubuntu-24.04 580.178.04 595.91.07
    python -m tests.substrate.standin kernel FOLDER --os debian-12 6.1.0-90-amd64 6.1.0-91-amd64

It prints, as JSON, the fingerprint of the key that signed it and, of drivers, the packages that the
catalogue pins, by version and flavour.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.substrate.standin import deb, driver_packages, kernel_packages, programs, rpm
from tests.substrate.standin.packages import StandIn, format_of, pins
from tests.substrate.standin.signing import Key

FLAVOURS = ("open", "proprietary")


def wanted(arguments: argparse.Namespace, work: Path) -> list[StandIn]:
    """Return what the arguments ask for."""
    if arguments.kind == "kernel":
        return kernel_packages(arguments.os, arguments.versions)
    carried = programs.unpack(work) if arguments.programs else {}
    return driver_packages(arguments.os, arguments.versions, carried)


def main() -> int:
    """Build; a mistake in the arguments is one line and status 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.substrate.standin", description=__doc__)
    parser.add_argument("kind", choices=["driver", "kernel"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--os", required=True)
    parser.add_argument(
        "--programs",
        action="store_true",
        help="carry Debian's nvidia-smi and persistence daemon, for hosts with simulated cards",
    )
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        try:
            packages = wanted(arguments, work)
        except ValueError as error:
            print(f"ERROR: {error}", file=sys.stderr)
            return 1
        key = Key(work / "gnupg")
        try:
            build = rpm if format_of(arguments.os) == "rpm" else deb
            build.repository(packages, arguments.folder, key)
        finally:
            key.close()
        said: dict[str, object] = {"fingerprint": key.fingerprint}
        if arguments.kind == "driver":
            said["packages"] = {
                version: {flavour: pins(arguments.os, version, flavour) for flavour in FLAVOURS}
                for version in arguments.versions
            }
        print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
