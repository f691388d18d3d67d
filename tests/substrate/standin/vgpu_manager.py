"""A stand-in of NVIDIA's vGPU manager for KVM, as a Debian package.

    python -m tests.substrate.standin.vgpu_manager FOLDER 580.65.05

It keeps to what the user guide says of the real one: a module nvidia, a daemon that ends, one that
stays, and `sriov-manage`, which gives a card virtual functions that offer one profile under the
vendor-specific VFIO framework. The profile is an L40S's, whatever card the host shows.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.substrate.standin import deb
from tests.substrate.standin.packages import StandIn

FUNCTIONS = 4
#: The form of the list as kubevirt-gpu-device-plugin's README shows it, under the driver's heading.
OFFERED = "ID    : vGPU Name\n1178  : NVIDIA L40S-12Q\n"
LIST = "/usr/lib/nvidia/offered"
SRIOV = f"""#!/bin/sh
# sriov-manage -e CARD, or -d CARD
set -e
devices=/sys/bus/pci/devices
card=$2
number=0
if [ "$1" = -d ]; then
    rm -r $devices/$card/virtfn* $devices/${{card%.*}}.[4-7]
    echo 0 > $devices/$card/sriov_numvfs
    exit
fi
[ "$1" = -e ]
while [ $number -lt {FUNCTIONS} ]; do
    function=${{card%.*}}.$((number + 4))
    mkdir -p $devices/$function/nvidia
    for file in vendor device class numa_node resource; do
        cp $devices/$card/$file $devices/$function/$file
    done
    echo DRIVER=nvidia > $devices/$function/uevent
    cp {LIST} $devices/$function/nvidia/creatable_vgpu_types
    echo 0 > $devices/$function/nvidia/current_vgpu_type
    ln -sfn ../$card $devices/$function/physfn
    ln -sfn ../$function $devices/$card/virtfn$number
    number=$((number + 1))
done
echo {FUNCTIONS} > $devices/$card/sriov_numvfs
"""
UNIT = """[Unit]
Description=A stand-in of NVIDIA's vGPU {}
[Service]
{}
[Install]
WantedBy=multi-user.target
"""


def package(version: str, work: Path) -> StandIn:
    """Return the manager of a version; its program is written into a folder."""
    program, units = work / "sriov-manage", "/usr/lib/systemd/system"
    program.write_text(SRIOV, encoding="utf-8")
    daemon = UNIT.format("daemon", "Type=oneshot\nExecStart=/bin/true")
    manager = UNIT.format("manager", "ExecStart=/bin/sleep infinity")
    source = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n'
    return StandIn(
        f"nvidia-vgpu-ubuntu-{version.partition('.')[0]}",
        version,
        files={
            f"/usr/src/nvidia-{version}/dkms.conf": source,
            f"{units}/nvidia-vgpud.service": daemon,
            f"{units}/nvidia-vgpu-mgr.service": manager,
            LIST: OFFERED,
        },
        programs={"/usr/lib/nvidia/sriov-manage": program},
    )


def main() -> int:
    """Build the package, as manager.deb, and print its digest."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.substrate.standin.vgpu_manager", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("version")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        built = deb.build(package(arguments.version, Path(work)), Path(work))
        shutil.copy(built, arguments.folder / "manager.deb")
    print(hashlib.sha256((arguments.folder / "manager.deb").read_bytes()).hexdigest())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
