"""NVIDIA's own installer (a runfile): what it has installed, how it is called, how it goes away."""

import glob
import os
import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from .. import files, owned
from ..host import Host
from . import foreign as driver_foreign
from . import record as driver_record

#: Where the installer keeps its log; a failed run names its cause there.
LOG = "/var/log/nvidia-installer.log"
#: Of the persistence daemon: the installer brings the program alone, role nvidia_driver the unit.
UNIT = "/etc/systemd/system/nvidia-persistenced.service"
#: The installer compiles the module; on a slow host for many minutes.
SECONDS = 3600
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*",
    "/usr/lib64/libnvidia-ml.so.*",
)
_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def installed(host: Host) -> str:
    """The version that NVIDIA's installer has installed; empty where it has not."""
    if not host.exists(driver_foreign.UNINSTALLER):
        return ""
    for pattern in _LIBRARIES:
        for path in sorted(glob.glob(host.path(pattern))):
            found = _VERSION.search(path)
            if found and not os.path.islink(path):
                return found.group(1)
    return ""


def flavour(host: Host) -> str:
    """The flavour of the module on the disk, ``open`` or ``proprietary``; empty where none tells.

    The open one is under two licences, of which one is the GPL: its maker says so in the module.
    """
    licence = host.run(["modinfo", "--field", "license", "nvidia"])
    if licence.code != 0 or not licence.out.strip():
        return ""
    return "open" if "GPL" in licence.out else "proprietary"


def other_flavour(host: Host, version: str, wished: str) -> bool:
    """Whether the installer has installed this version with the module's other flavour."""
    return installed(host) == version and flavour(host) not in ("", wished)


def wanted(host: Host, version: str, wished: str) -> bool:
    """Whether the installer must run: for another driver, or after a run that was cut off.

    ``wished`` is the flavour.
    """
    if installed(host) != version or other_flavour(host, version, wished):
        return True
    return driver_record.read(host).changing is not None


def _key(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def arguments(
    version: str, flavour: str, kernel: str, known: Sequence[Mapping[str, Any]]
) -> List[str]:
    """The installer's arguments. ``known`` says by first version how a flavour is asked for.

    Raises ValueError when that version cannot install the flavour.
    """
    rows = sorted((row for row in known if _key(row["from"]) <= _key(version)), key=_from)
    if not rows or flavour not in rows[-1]:
        raise ValueError(f"the installer of {version} has no {flavour} kernel module")
    common = ["--silent", "--dkms", "--no-x-check", "--no-nouveau-check"]
    for_kernel = [f"--kernel-name={kernel}"] if kernel else []
    return [*common, *for_kernel, *(str(option) for option in rows[-1][flavour])]


def _from(row: Mapping[str, Any]) -> Tuple[int, ...]:
    return _key(row["from"])


def install(host: Host, path: str, version: str, options: Sequence[str]) -> Optional[str]:
    """Run the installer; the reason where that fails."""
    return _run(host, ["sh", host.path(path), *options], version)


def uninstall(host: Host) -> Optional[str]:
    """Have the installer take its driver away; the reason where that fails."""
    return _run(host, [host.path(driver_foreign.UNINSTALLER), "--silent"], "")


def take_daemon_away(host: Host) -> None:
    """Remove the unit of role nvidia_driver: it would hide the one that packages bring."""
    entry, text = owned.load(host).get(UNIT), host.read(UNIT)
    if entry is None or text is None or not files.is_ours(text):
        return
    host.run(["systemctl", "disable", "--now", os.path.basename(UNIT)])
    owned.put_back(host, UNIT, entry, entry["before"])
    owned.forget(host, [UNIT])
    host.run(["systemctl", "daemon-reload"])


def _run(host: Host, argv: Sequence[str], version: str) -> Optional[str]:
    answer = host.run(argv, timeout=SECONDS)
    now = installed(host)
    if answer.code == 0 and now == version:
        return None
    errors = [line for line in (host.read(LOG) or "").splitlines() if "ERROR:" in line]
    if answer.code == 0 and not errors:
        return f"it ended well, and {now or 'no driver'} is installed"
    return f"{errors[0].strip()} ({LOG})" if errors else answer.said


def superfluous(host: Host, folder: str, versions: Sequence[str]) -> List[str]:
    """Installers in ``folder`` of other versions than those."""
    kept = {f"{version}.run" for version in versions}
    return [f"{folder}/{f}" for f in host.list(folder) if f.endswith(".run") and f not in kept]
