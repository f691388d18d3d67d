"""Evidence that containers see the GPUs that they may see, and nothing else."""

from typing import Any, Dict, Iterable, List, Sequence

from ..host import Host
from ..runtime import cases as runtime_cases
from ..runtime.cases import CAPABILITIES, Case, Gpu
from ..runtime.containers import (
    ContainerError,
    Containers,
    Cri,
    Docker,
    Seen,
    gpus_of,
    host_libraries,
)
from ..runtime.state import SOCKETS
from .area import Collected, Wishes
from .checks import Checks, check, failed, skipped

WHAT = "containers see the GPUs that they may see and nothing else"
FIX = "Run the roles container_runtime and nvidia_container_toolkit again, and look at the journal."
#: What a core run asks: the ways in which a container could get more than it was given.
CORE = (
    "nothing is given",
    "CDI: index",
    "CDI: UUID",
    "NVIDIA_VISIBLE_DEVICES: all",
    "NVIDIA_VISIBLE_DEVICES: index",
    "--gpus",
)


def containers(host: Host, wish: Wishes) -> Containers:
    """What starts containers in the wished runtime."""
    ours = wish.containers
    if ours["runtime"] == "docker":
        return Docker(host, ours["image"], ours["command"])
    return Cri(host, ours["image"], SOCKETS[ours["runtime"]], ours["command"])


def cases(wish: Wishes, gpus: Sequence[Gpu], has_cdi: bool) -> List[Case]:
    """The cases that this host is held to, in order."""
    accepted = bool(wish.containers.get("accepts_variable", True))
    found = runtime_cases.plain(gpus, wish.containers["default"], accepted)
    found += runtime_cases.cdi(gpus) if has_cdi else []
    found += runtime_cases.visible_devices(gpus, accepted)
    # They are asked for beside GPUs that the variable names.
    found += runtime_cases.driver_capabilities(gpus) if accepted else []
    if wish.containers["runtime"] == "docker":
        by_default = wish.containers["default"] == runtime_cases.NVIDIA_RUNTIME
        found += runtime_cases.gpus_option(gpus, "" if by_default else runtime_cases.NVIDIA_RUNTIME)
    if wish.containers["cases"] == "core":
        found = [case for case in found if case.name.startswith(CORE)]
    return found


def _told(names: Iterable[str]) -> str:
    return " ".join(sorted(names)) or "none"


def judge(case: Case, seen: Seen, available: Sequence[str]) -> Dict[str, Any]:
    """One case as a check; ``available`` are the driver's libraries that the host has at all."""
    name = f"container.{case.name}"
    what = f"a container sees what it may ({case.name})"
    if case.refused:
        got = "refused" if seen.refused else "started"
        return check(name, what, "refused", got, FIX)
    if seen.refused:
        return failed(
            name, what, f"it did not start: {seen.refused}", FIX, "a container that starts"
        )
    wished: Dict[str, Any] = {
        "device nodes": _told(case.nodes),
        "driver": "mounted" if case.driver else "absent",
    }
    found: Dict[str, Any] = {
        "device nodes": _told(seen.nodes),
        "driver": "mounted" if seen.libraries else "absent",
    }
    if seen.uuids is not None:
        wished["GPUs"], found["GPUs"] = _told(case.uuids), _told(seen.uuids)
    needed = [one for asked in case.capabilities for one in CAPABILITIES[asked] if one in available]
    if needed:
        wished["libraries"] = _told(needed)
        found["libraries"] = _told(set(needed) & set(seen.libraries))
    return check(name, what, wished, found, FIX)


def capability_checks(case: Case, available: Sequence[str]) -> Checks:
    """What could not be looked at, because the host's driver has no such library."""
    return [
        skipped(
            f"container.{case.name}",
            f"a container sees what it may ({case.name})",
            "the host's driver has no {}".format(" and no ".join(CAPABILITIES[asked])),
        )
        for asked in case.capabilities
        if len(case.capabilities) == 1 and not set(CAPABILITIES[asked]) & set(available)
    ]


def narrowed(case: Case, seen: Seen, available: Sequence[str]) -> bool:
    """Whether a container that asked for one capability was spared the others' libraries."""
    others = {
        one
        for name, names in CAPABILITIES.items()
        if name not in case.capabilities
        for one in names
    }
    return not others & set(available) & set(seen.libraries)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Start a container for each case and look at it."""
    if not wish.containers.get("image"):
        to.checks.append(skipped("container.isolation", WHAT, "no image to try it with is named"))
        return
    if host.joined and wish.containers["runtime"] != "docker":
        reason = "kubelet ends containers that it has not started"
        to.checks.append(skipped("container.isolation", WHAT, reason))
        return
    tool = "docker" if wish.containers["runtime"] == "docker" else "crictl"
    if host.run([tool, "--version"]).code == 127:
        to.checks.append(skipped("container.isolation", WHAT, f"{tool} is not on this host yet"))
        return
    gpus = gpus_of(host)
    if not gpus:
        reason = "the host itself sees no GPU"
        to.checks.append(failed("container.isolation", WHAT, reason, FIX, "the host's GPUs"))
        return
    available = host_libraries(host)
    trial = containers(host, wish)
    try:
        trial.clear()
        trial.prepare()
        has_cdi = trial.has_cdi()
        if not has_cdi:
            reason = "this Docker does not know CDI (docker info names no CDISpecDirs)"
            to.checks.append(skipped("container.cdi", "devices by CDI names", reason))
        if not any(gpu.migs for gpu in gpus):
            reason = "no GPU of this host is cut into MIG devices"
            to.checks.append(skipped("container.mig", "MIG devices by UUID", reason))
        _collect_cases(trial, cases(wish, gpus, has_cdi), available, to)
    except ContainerError as error:
        to.checks.append(failed("container.isolation", WHAT, str(error), FIX, "containers"))
    finally:
        trial.clear()


def _collect_cases(
    trial: Containers, wanted: Sequence[Case], available: Sequence[str], to: Collected
) -> None:
    for case in wanted:
        cannot = capability_checks(case, available)
        if cannot:
            to.checks.extend(cannot)
            continue
        seen = trial.see(case)
        to.checks.append(judge(case, seen, available))
        if len(case.capabilities) == 1 and not seen.refused:
            told = "narrowed" if narrowed(case, seen, available) else "not narrowed"
            to.facts.setdefault("driver_capabilities", {})[case.capabilities[0]] = told
