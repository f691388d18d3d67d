"""What NVIDIA's driver says about itself: loaded module, GPUs, CDI devices."""

import csv
import io
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from .host import Host

PROC_VERSION = "/proc/driver/nvidia/version"
PROC_PARAMETERS = "/proc/driver/nvidia/params"
#: A simulated kernel says so in this line; real ones have no such line.
SIMULATED = "Simulated: bedplate"
_NVRM = re.compile(
    r"^NVRM version:.*Kernel Module\s+(?:for \S+\s+)?(?P<version>\d+\.\d+(?:\.\d+)?)\s",
    re.MULTILINE,
)
_QUERY = "index,name,uuid,memory.total,persistence_mode,pci.bus_id,driver_version"
_CDI_INDEX = re.compile(r"^nvidia\.com/gpu=\d+(:\d+)?$")


class LoadedModule(NamedTuple):
    """The nvidia kernel module that runs now."""

    version: str
    flavour: str
    simulated: bool


class Gpu(NamedTuple):
    """One GPU as nvidia-smi reports it; memory in MiB."""

    number: int
    name: str
    uuid: str
    memory: int
    persistence: bool
    bus: str
    library: str


def loaded_module(host: Host) -> Optional[LoadedModule]:
    """The loaded module, or None when none is loaded."""
    text = host.read(PROC_VERSION)
    found = _NVRM.search(text + "\n") if text else None
    if text is None or found is None:
        return None
    return LoadedModule(
        version=found.group("version"),
        flavour="open" if "Open Kernel Module" in found.group(0) else "proprietary",
        simulated=SIMULATED in text.splitlines(),
    )


def options(host: Host) -> Dict[str, str]:
    """Options that the loaded module nvidia has, by names such as ``NVreg_EnableGpuFirmware``.

    The module tells them without their prefix, and not all of them; none where it is not loaded.
    """
    rows = (line.partition(":") for line in (host.read(PROC_PARAMETERS) or "").splitlines())
    return {f"NVreg_{name.strip()}": value.strip().strip('"') for name, _, value in rows}


def same_option(now: str, wished: object) -> bool:
    """Whether an option that the module tells is the wished one.

    It tells numbers as unsigned ones of 32 bits; a wish may be written as C writes them: ``0x02``,
    ``0660`` (octal), ``-1``.
    """
    number = _c_number(str(wished))
    if number is None or not now.isdigit():
        return now == str(wished)
    return int(now) == number % 2**32


def _c_number(text: str) -> Optional[int]:
    base = 8 if re.match(r"[-+]?0[0-7]+$", text) else 0
    try:
        return int(text, base)
    except ValueError:
        return None


def other_options(host: Host, wished: Mapping[str, Mapping[str, object]]) -> List[str]:
    """Wished options of module nvidia that the loaded one does not have, as ``NVreg_X=1``."""
    now = options(host)
    return [
        f"{name}={value}"
        for name, value in sorted(wished.get("nvidia", {}).items())
        if name in now and not same_option(now[name], value)
    ]


def parse_query(text: str) -> List[Gpu]:
    """GPUs from ``nvidia-smi --query-gpu`` in CSV without header and units.

    Raises ValueError when a row is not of that form.
    """
    found = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if not row:
            continue
        if len(row) != len(_QUERY.split(",")) or not row[0].isdigit():
            raise ValueError("nvidia-smi printed an unexpected row: {}".format(", ".join(row)))
        index, name, uuid, memory, persistence, bus, library = row
        found.append(
            Gpu(
                number=int(index),
                name=name,
                uuid=uuid,
                memory=int(float(memory)) if memory.replace(".", "", 1).isdigit() else 0,
                persistence=persistence == "Enabled",
                bus=bus.lower(),
                library=library,
            )
        )
    return found


def query(host: Host) -> Tuple[List[Gpu], Optional[str]]:
    """GPUs through the driver's library, and the reason where it cannot say."""
    answer = host.run(["nvidia-smi", "--query-gpu=" + _QUERY, "--format=csv,noheader,nounits"])
    if answer.code != 0:
        return [], answer.said
    try:
        return parse_query(answer.out), None
    except ValueError as error:
        return [], str(error)


def cdi_devices(host: Host) -> Tuple[List[str], Optional[str]]:
    """CDI names of single GPUs (``nvidia.com/gpu=0``), and the reason where there are none to list.

    UUID names and ``all`` are other names of the same GPUs and are left out.
    """
    answer = host.run(["nvidia-ctk", "--quiet", "cdi", "list"])
    if answer.code != 0:
        return [], answer.said
    return [line for line in answer.out.split() if _CDI_INDEX.match(line)], None
