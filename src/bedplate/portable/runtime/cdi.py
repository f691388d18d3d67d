"""The host's CDI specification, compared with what its GPUs would give now."""

import os
import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .. import documents, nvidia
from ..files import File, ensure_files
from ..host import Host
from ..message import problem

#: Where the roles keep the specification.
SPECIFICATION = "/etc/cdi/nvidia.yaml"
#: What regenerates the specification at boot and when the driver's libraries or MIG devices change.
UNITS = ("bedplate-cdi-refresh.service", "bedplate-cdi-refresh.path")
#: Where container runtimes look for specifications. Of two that name one device, that of the later
#: folder counts; of two in one folder that differ, none.
FOLDERS = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/gpu"
#: What NVIDIA's packages of the toolkit bring from 1.18 on: it writes a specification of its own at
#: boot and when modules change, and its settings may name another file.
PACKAGE_UNIT = "nvidia-cdi-refresh.service"
PACKAGE_SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
PACKAGE_FILE = "/var/run/cdi/nvidia.yaml"
_UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
#: Without them a container has a GPU and nothing that can talk to it.
LIBRARIES = ("libcuda", "libnvidia-ml")
_UUID = re.compile(r"^(?:GPU|MIG)-[0-9a-f-]+$")
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_HOST_PATH = re.compile(r"""hostPath["']?:\s*["']?(/[^"',\s]+)""")
_SHOWN = 3
_OUTPUT = re.compile(r"^\s*NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=[\"']?([^\"'\s]+)", re.MULTILINE)
_YAML_KIND = re.compile(r"^[\"']?kind[\"']?\s*:\s*[\"']?([^\"'\s,#]+)", re.MULTILINE)
_DEVICE = re.compile(r"^\s*-?\s*name:\s*[\"']?([^\"'\s]+)", re.MULTILINE)


class CdiError(Exception):
    """The toolkit cannot describe this host's GPUs; the text says how to fix it."""


class Outcome(NamedTuple):
    """Whether the specification changes, its text before and after, and the devices it names."""

    changed: bool
    before: Optional[str]
    after: str
    devices: List[str]


def devices(text: str) -> List[str]:
    """The device names in a specification as nvidia-ctk writes it, sorted."""
    body = text.split("\ndevices:", 1)[-1]
    body = re.split(r"\n(?=[a-zA-Z])", body, maxsplit=1)[0]
    return sorted(set(_DEVICE.findall(body)))


def present(host: Host) -> Tuple[List[str], str]:
    """UUIDs of what a specification is to name, and the reason where the driver cannot say.

    A GPU in MIG mode is named by its MIG devices only.
    """
    asked = ["nvidia-smi", "--query-gpu=uuid,mig.mode.current", "--format=csv,noheader"]
    modes = host.run(asked)
    listed = host.run(["nvidia-smi", "-L"])
    if modes.code != 0 or listed.code != 0:
        return [], (modes if modes.code != 0 else listed).said
    rows = [[field.strip() for field in line.split(",")] for line in modes.out.splitlines()]
    whole = [row[0] for row in rows if len(row) == 2 and row[1] != "Enabled"]
    return sorted(whole + re.findall(r"\(UUID: (MIG-[0-9a-f-]+)\)", listed.out)), ""


def stale(host: Host, path: str) -> List[str]:
    """What the specification at ``path`` says that is not so on this host; empty where it is true.

    It reads the specification only, so that it finds what a container would get, whoever wrote it.
    """
    text = host.read(path)
    if text is None:
        return [f"there is no {path}"]
    found = []
    wanted, reason = present(host)
    if reason:
        return [f"the driver does not answer: {reason}"]
    named = [name for name in devices(text) if _UUID.match(name)]
    found += _all_of("it lacks {}", [uuid for uuid in wanted if uuid not in named])
    found += _all_of("it names {}, not on this host", [u for u in named if u not in wanted])
    loaded = nvidia.loaded_module(host)
    files = sorted(set(_HOST_PATH.findall(text)))
    versions = sorted({match.group(1) for match in map(_VERSION.search, files) if match})
    if loaded and versions != [loaded.version]:
        others = ", ".join(versions) or "none"
        found.append(f"it is for driver {others}, and {loaded.version} is loaded")
    elif loaded:
        mounted = {name.rsplit("/", 1)[-1] for name in files}
        wanted_files = [f"{library}.so.{loaded.version}" for library in LIBRARIES]
        found += _all_of("it lacks {}", [name for name in wanted_files if name not in mounted])
    return found + _all_of(
        "it mounts {}, not on this host", [f for f in files if not host.exists(f)]
    )


def others(host: Host, path: str) -> List[str]:
    """Further files that name NVIDIA's GPUs to container runtimes, next to that at ``path``.

    A runtime gives containers what one of them says, or nothing at all (`FOLDERS`).
    """
    ours = os.path.realpath(host.path(path))
    found = []
    for folder in FOLDERS:
        for name in host.list(folder):
            other = f"{folder}/{name}"
            named = name.endswith((".yaml", ".json")) and os.path.realpath(host.path(other)) != ours
            if named and _kind(host.read(other) or "") == KIND:
                found.append(other)
    return found


def _kind(text: str) -> str:
    """What a specification in JSON or YAML describes, as ``vendor/class``."""
    kind = documents.table(text).get("kind")
    if isinstance(kind, str):
        return kind
    found = _YAML_KIND.search(text)
    return found.group(1) if found else ""


def by_package(host: Host, path: str) -> List[str]:
    """Those of `others` that the unit of NVIDIA's packages has written; none without the unit."""
    if not any(os.path.lexists(host.path(f"{one}/{PACKAGE_UNIT}")) for one in _UNIT_FOLDERS):
        return []
    named = _OUTPUT.findall(host.read(PACKAGE_SETTINGS) or "") or [PACKAGE_FILE]
    theirs = os.path.realpath(host.path(named[-1]))
    return [one for one in others(host, path) if os.path.realpath(host.path(one)) == theirs]


def remove_packages(host: Host, path: str, check: bool = False) -> List[str]:
    """Remove what the unit of NVIDIA's packages has written next to ``path``; which files it is.

    The role nvidia_container_toolkit switches the unit off in the same run.
    """
    found = by_package(host, path)
    if not check:
        for one in found:
            host.remove(one)
    return found


def _all_of(sentence: str, names: Sequence[str]) -> List[str]:
    """``sentence`` with the names in it; none without names."""
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [sentence.format(", ".join(names[:_SHOWN]) + more)]


def _canonical(text: str) -> str:
    """The text without regard to the order in which equal entries were found."""
    return "\n".join(sorted(line.strip().lstrip("- ") for line in text.splitlines()))


def refresh(host: Host, path: str, hook: str, check: bool = False) -> Outcome:
    """Write the specification of the GPUs that are there to ``path`` if it says another thing.

    ``hook`` is the absolute path of nvidia-cdi-hook that containers are to use.

    Raises:
        CdiError: nvidia-ctk is not there or cannot talk to the driver.
    """
    before = host.read(path)
    answer = host.run(
        ["nvidia-ctk", "--quiet", "cdi", "generate", "--nvidia-cdi-hook-path", hook], 120
    )
    if answer.code == 127 and check:
        return Outcome(before is None, before, "", [])
    if answer.code != 0 or not devices(answer.out):
        raise CdiError(
            problem(
                "the CDI specification cannot be generated",
                "nvidia-ctk cdi generate",
                answer.said,
                "a specification with at least one GPU",
                "See whether nvidia-smi -L lists the GPUs; if not, fix the driver first.",
            )
        )
    after = answer.out
    if before is not None and _canonical(before) == _canonical(after):
        return Outcome(False, before, before, devices(before))
    ensure_files(host, [File(path, after)], check=check, watched=False)
    return Outcome(True, before, after, devices(after))
