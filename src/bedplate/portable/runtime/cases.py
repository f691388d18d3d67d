"""What a container may see of a host's GPUs, by how it asks: the table that runtimes are held to.

``NVIDIA_VISIBLE_DEVICES`` and ``NVIDIA_DRIVER_CAPABILITIES`` as NVIDIA's container toolkit
documents them (docs.nvidia.com, "Specialized Configurations with Docker"); CDI names as nvidia-ctk
gives them.
"""

from typing import Dict, List, NamedTuple, Sequence, Tuple

#: The name under which the toolkit's runtime is registered.
NVIDIA_RUNTIME = "nvidia"
CDI_KIND = "nvidia.com/gpu"
#: Libraries of each capability, without version: what a container that asks cannot do without.
CAPABILITIES: Dict[str, Tuple[str, ...]] = {
    "compute": ("libcuda.so",),
    "utility": ("libnvidia-ml.so",),
    "video": ("libnvidia-encode.so", "libnvcuvid.so"),
    "graphics": ("libGLX_nvidia.so", "libEGL_nvidia.so"),
}


class Gpu(NamedTuple):
    """A GPU as containers name it; ``number`` is its index, ``migs`` its MIG UUIDs."""

    number: int
    uuid: str
    minor: int
    migs: Tuple[str, ...] = ()


class Case(NamedTuple):
    """One way to ask, and what must come of it.

    ``uuids`` are the GPUs and MIG devices that nvidia-smi lists in the container, ``nodes`` the
    cards' device nodes (``nvidia0``). ``driver``: whether driver libraries are mounted.
    ``capabilities``: those whose files must be there. ``refused``: the container must not start.
    """

    name: str
    runtime: str = ""
    environment: Tuple[Tuple[str, str], ...] = ()
    devices: Tuple[str, ...] = ()
    gpus_option: str = ""
    uuids: Tuple[str, ...] = ()
    nodes: Tuple[str, ...] = ()
    driver: bool = False
    capabilities: Tuple[str, ...] = ()
    refused: bool = False


def _seeing(case: Case, gpus: Sequence[Gpu]) -> Case:
    """The case with what a container lists (MIG devices too) and holds that is given whole GPUs."""
    uuids = [uuid for gpu in gpus for uuid in (gpu.uuid, *gpu.migs)]
    nodes = [f"nvidia{gpu.minor}" for gpu in gpus]
    return case._replace(uuids=tuple(sorted(uuids)), nodes=tuple(sorted(nodes)))


def _visible(value: str) -> Tuple[Tuple[str, str], ...]:
    return (("NVIDIA_VISIBLE_DEVICES", value),)


def _whole(gpus: Sequence[Gpu]) -> List[Gpu]:
    """GPUs that can be asked for as such: one in MIG mode is its MIG devices."""
    return [gpu for gpu in gpus if not gpu.migs]


def _mig(gpus: Sequence[Gpu]) -> List[Tuple[Gpu, str]]:
    return [(gpu, gpu.migs[0]) for gpu in gpus if gpu.migs][:1]


def plain(gpus: Sequence[Gpu], default_runtime: str, accepted: bool = True) -> List[Case]:
    """Containers that were given nothing. With the toolkit's runtime as default, the variable is a
    request that anybody may make, if it is ``accepted`` of containers without privileges."""
    request = "nothing is given, the variable says all"
    cases = [Case("nothing is given")]
    if default_runtime == NVIDIA_RUNTIME and accepted:
        given = Case(request, environment=_visible("all"), driver=True)
        return [*cases, _seeing(given, gpus)]
    return [*cases, Case(request, environment=_visible("all"))]


def cdi(gpus: Sequence[Gpu]) -> List[Case]:
    """Devices by their CDI names, without any special runtime."""
    whole = _whole(gpus)

    def case(name: str, seen: Sequence[Gpu], *devices: str) -> Case:
        names = tuple(f"{CDI_KIND}={device}" for device in devices)
        return _seeing(Case(f"CDI: {name}", devices=names, driver=True), seen)

    cases = [case("all", gpus, "all")]
    for last in whole[-1:]:
        cases.append(case("index", [last], str(last.number)))
        cases.append(case("UUID", [last], last.uuid))
    if len(whole) > 1:
        pair = [whole[0], whole[-1]]
        cases.append(case("two of them", pair, *(str(gpu.number) for gpu in pair)))
    for gpu, uuid in _mig(gpus):
        asked = Case("CDI: MIG UUID", devices=(f"{CDI_KIND}={uuid}",), driver=True)
        cases.append(_seeing(asked, [gpu._replace(migs=(uuid,))]))
    unknown = max(gpu.number for gpu in gpus) + 1
    cases.append(Case("CDI: no such GPU", devices=(f"{CDI_KIND}={unknown}",), refused=True))
    return cases


def visible_devices(gpus: Sequence[Gpu], accepted: bool = True) -> List[Case]:
    """``NVIDIA_VISIBLE_DEVICES`` under the toolkit's runtime.

    Where it is not ``accepted`` of containers without privileges, it gives them nothing.
    """
    if accepted:
        return _visible_devices(gpus)
    return [Case(case.name, case.runtime, case.environment) for case in _visible_devices(gpus)]


def _visible_devices(gpus: Sequence[Gpu]) -> List[Case]:
    whole = _whole(gpus)

    def case(name: str, seen: Sequence[Gpu], value: str, driver: bool = True) -> Case:
        name = f"NVIDIA_VISIBLE_DEVICES: {name}"
        return _seeing(Case(name, NVIDIA_RUNTIME, _visible(value), driver=driver), seen)

    cases = [
        case("all", gpus, "all"),
        case("none", [], "none"),
        case("void", [], "void", driver=False),
        case("empty", [], "", driver=False),
    ]
    for last in whole[-1:]:
        cases.append(case("index", [last], str(last.number)))
        cases.append(case("UUID", [last], last.uuid))
    if len(whole) > 1:
        pair = [whole[0], whole[-1]]
        cases.append(case("list", pair, ",".join(str(gpu.number) for gpu in pair)))
    for gpu, uuid in _mig(gpus):
        cases.append(case("MIG UUID", [gpu._replace(migs=(uuid,))], uuid))
    cases.append(Case("NVIDIA_VISIBLE_DEVICES: not set", NVIDIA_RUNTIME))
    unknown = str(max(gpu.number for gpu in gpus) + 1)
    cases.append(case("no such GPU", [], unknown, driver=False)._replace(refused=True))
    return cases


def driver_capabilities(gpus: Sequence[Gpu]) -> List[Case]:
    """``NVIDIA_DRIVER_CAPABILITIES`` under the toolkit's runtime: what was asked for is there.

    In CDI mode, which is the toolkit's own choice from 1.18 on, more is there too: the variable
    narrows nothing. `narrowed` tells which it was.
    """
    asked: List[Tuple[str, Tuple[str, ...]]] = [(name, (name,)) for name in CAPABILITIES]
    asked += [("compute,utility", ("compute", "utility")), ("all", tuple(CAPABILITIES))]
    return [
        _seeing(
            Case(
                f"NVIDIA_DRIVER_CAPABILITIES: {value}",
                NVIDIA_RUNTIME,
                (*_visible(first.uuid), ("NVIDIA_DRIVER_CAPABILITIES", value)),
                driver=True,
                capabilities=capabilities,
            ),
            [first],
        )
        for first in _whole(gpus)[:1]
        for value, capabilities in asked
    ]


def gpus_option(gpus: Sequence[Gpu], runtime: str) -> List[Case]:
    """Docker's ``--gpus`` under a runtime (empty: the default one): all, and one by UUID."""
    cases = [_seeing(Case("--gpus all", runtime, gpus_option="all", driver=True), gpus)]
    for last in _whole(gpus)[-1:]:
        one = Case("--gpus device", runtime, gpus_option=f"device={last.uuid}", driver=True)
        cases.append(_seeing(one, [last]))
    return cases
