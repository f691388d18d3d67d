"""What a running container runtime says of itself, whichever it is."""

import json
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

from ..host import VERSION, Host

UNITS = {"containerd": "containerd.service", "cri-o": "crio.service", "docker": "docker.service"}
#: Where kubelet and crictl reach each runtime of Kubernetes.
SOCKETS = {
    "containerd": "unix:///run/containerd/containerd.sock",
    "cri-o": "unix:///run/crio/crio.sock",
}
_TABLE = re.compile(r"^\s*\[(?P<name>[^\]]+)\]\s*$")
_VALUE = re.compile(r"^\s*(?P<key>[A-Za-z_]+)\s*=\s*(?P<value>.+?)\s*$")
_HANDLER = re.compile(r"\.runtimes\.[\"']?(?P<name>[A-Za-z0-9_.-]+?)[\"']?(?P<options>\.options)?$")


class State(NamedTuple):
    """Version of the daemon, its handlers with their programs (empty: the runtime's own choice),
    the default handler, sandbox image and who makes cgroups. ``reason`` says why nothing is known.
    """

    version: str = ""
    handlers: Mapping[str, str] = {}
    default: str = ""
    sandbox: str = ""
    cgroups: str = ""
    reason: str = ""


def read(host: Host, runtime: str) -> State:
    """Ask the daemon. containerd tells its version only: there, what its files give counts."""
    return _READERS[runtime](host)


def _version(text: str) -> str:
    """The version in a program's words, without what distributions add: 20.10.24+dfsg1."""
    found = VERSION.search(text)
    return re.split("[+~]", found.group(1))[0] if found else ""


def tables(text: str) -> Dict[str, Dict[str, str]]:
    """The tables of a TOML text as programs print it: keys and values on one line each."""
    found: Dict[str, Dict[str, str]] = {}
    current: Dict[str, str] = {}
    for line in text.splitlines():
        head, pair = _TABLE.match(line), _VALUE.match(line)
        if head:
            current = found.setdefault(head.group("name"), {})
        elif pair:
            current[pair.group("key")] = pair.group("value").strip("\"'")
    return found


def _handlers(found: Mapping[str, Mapping[str, str]], key: str) -> Tuple[Dict[str, str], bool]:
    """Handlers with the program that ``key`` names, and whether all leave cgroups to systemd."""
    programs: Dict[str, str] = {}
    systemd = []
    for name, values in found.items():
        match = _HANDLER.search(name)
        if match is None:
            continue
        program = values.get(key, "")
        programs[match.group("name")] = program or programs.get(match.group("name"), "")
        if "SystemdCgroup" in values:
            systemd.append(values["SystemdCgroup"] == "true")
    return programs, bool(systemd) and all(systemd)


def _containerd(host: Host) -> State:
    answer = host.run(["ctr", "version"])
    version = _version(answer.out.partition("Server:")[2])
    if not version:
        return State(reason=answer.said)
    dump = host.run(["containerd", "config", "dump"])
    if dump.code != 0:
        return State(version, reason=dump.said)
    found = tables(dump.out)
    programs, systemd = _handlers(found, "BinaryName")
    values = {key: value for table in found.values() for key, value in table.items()}
    return State(
        version,
        programs,
        values.get("default_runtime_name", ""),
        values.get("sandbox", values.get("sandbox_image", "")),
        "systemd" if systemd else "cgroupfs",
    )


def _crio(host: Host) -> State:
    # `crio status` asks the daemon; `crio config` would say what the files give.
    answer = host.run(["crio", "status", "config"])
    if answer.code != 0:
        return State(reason=answer.said)
    found = tables(answer.out)
    programs, _ = _handlers(found, "runtime_path")
    values = {key: value for table in found.values() for key, value in table.items()}
    return State(
        _version(host.run(["crio", "--version"]).out),
        programs,
        values.get("default_runtime", ""),
        values.get("pause_image", ""),
        values.get("cgroup_manager", ""),
    )


def _docker(host: Host) -> State:
    answer = host.run(["docker", "info", "--format", "{{json .}}"])
    try:
        info: Dict[str, Any] = json.loads(answer.out)
    except ValueError:
        return State(reason=answer.said)
    if answer.code != 0 or not info.get("ServerVersion"):
        errors = info.get("ServerErrors") or [answer.said]
        return State(reason=str(errors[0]))
    programs = {name: entry.get("path", "") for name, entry in (info["Runtimes"] or {}).items()}
    return State(
        _version(info["ServerVersion"]),
        programs,
        info.get("DefaultRuntime", ""),
        "",
        info.get("CgroupDriver", ""),
    )


_READERS: Dict[str, Callable[[Host], State]] = {
    "containerd": _containerd,
    "cri-o": _crio,
    "docker": _docker,
}
