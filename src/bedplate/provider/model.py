"""The typed inputs of the provider and its resources, and how their errors are reported."""

from __future__ import annotations

import re
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from bedplate.common.connection import NODE_NAME, NODE_NAME_IS, Connection
from bedplate.portable.runtime.state import SOCKETS
from bedplate.provider.errors import message
from bedplate.provider.wire import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")
ENDPOINT = re.compile(r"(\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"(?!.{{254}}){_LABEL}(\.{_LABEL})*")
_NUMBERS = re.compile(r"[0-9.]+")
#: Neither an option of ssh, nor with a sign that no name has.
_NAME = re.compile(r"(?!-)[^\s\x00-\x1f\x7f]+")
_ADDRESS = re.compile(r"(?!-)[^\s\x00-\x1f\x7f@/]+")
PATTERNS = {
    NODE_NAME: NODE_NAME_IS,
    VERSION: "a full version as in the lock, like 1.36.3",
    _NAME: "a user's name, without spaces and not beginning with '-'",
    _ADDRESS: "a host's name or address, not beginning with '-'",
}
#: Where the runtime listens that a host has unless the site chooses another.
CRI_SOCKET = SOCKETS["containerd"]
#: kubeadm's own.
ETCD_DATA_DIR = "/var/lib/etcd"
ENDPOINT_IS = "HOST:PORT, like 192.0.2.10:6443"
NETWORK_IS = "a network, like 10.244.0.0/16, or two with a comma"


def _like(pattern: re.Pattern[str]) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(PATTERNS[pattern])
        return value

    return AfterValidator(check)


def _endpoint(value: str) -> str:
    found = ENDPOINT.fullmatch(value)
    if found is None or int(found["port"]) not in range(1, 1 << 16):
        raise ValueError(ENDPOINT_IS)
    name = found["six"] or found["host"]
    if found["host"] and not _NUMBERS.fullmatch(name):
        if not _DOMAIN.fullmatch(name):
            raise ValueError(ENDPOINT_IS)
        return value
    with _as(ENDPOINT_IS):
        (IPv6Address if found["six"] else IPv4Address)(name)
    return value


def _network(value: str) -> str:
    parts = value.split(",")
    with _as(NETWORK_IS):
        for part in parts:
            address, _, length = part.partition("/")
            if not (length.isascii() and length.isdigit()):
                raise ValueError(part)
            ip_network(f"{address}/{length}", strict=False)
    if len(parts) > 2:
        raise ValueError(NETWORK_IS)
    return value


def _ip(value: str) -> str:
    with _as("an IP address"):
        return str(ip_address(value))


@contextmanager
def _as(allowed: str) -> Iterator[None]:
    """Say what is allowed in place of what the standard library says."""
    try:
        yield
    except ValueError:
        raise ValueError(allowed) from None


HostName = Annotated[str, _like(NODE_NAME)]
Version = Annotated[str, _like(VERSION)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Network = Annotated[str, AfterValidator(_network)]
CriSocket = Annotated[str, Field(pattern=r"^unix:///[^\s]+$")]


class Inputs(BaseModel):
    """Inputs are frozen, in the engine's camelCase, and refuse what they do not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, strict=True
    )


class Machine(Connection):
    """How a node is reached, from the lock; `node_ip` is where the other nodes reach it."""

    name: HostName
    node_ip: Annotated[str, AfterValidator(_ip)] | None = None
    address: Annotated[str, _like(_ADDRESS)]
    user: Annotated[str, _like(_NAME)] = "root"


class ProviderInputs(Inputs):
    """Configuration of the provider."""

    site: Annotated[str, Field(min_length=1)]
    private_key: str | None = None
    known_hosts: str | None = None
    force: bool = False
    version: str | None = None


class Taint(Inputs):
    """A taint of a node."""

    key: Annotated[str, Field(min_length=1)]
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ControlPlaneInputs(Inputs):
    """A control plane: the first is initialised, one with `join` joins that first one."""

    host: Machine
    version: Version
    endpoint: Endpoint
    pod_subnet: Network
    service_subnet: Network
    etcd_image_tag: str
    dns_image_tag: str
    cri_socket: CriSocket = CRI_SOCKET
    etcd_data_dir: Annotated[str, Field(pattern=r"^/.+")] = ETCD_DATA_DIR
    kubelet: dict[str, Any] = Field(default_factory=dict)
    kube_proxy: dict[str, Any] = Field(default_factory=dict)
    controller_requests: Annotated[int, Field(ge=0)] = 0
    ignore_preflight: list[str] = Field(default_factory=list)
    taint: bool = True
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)
    join: Machine | None = None


class NodeInputs(Inputs):
    """A worker that joins the cluster of `control_plane`."""

    host: Machine
    control_plane: Machine
    version: Version
    endpoint: Endpoint
    cri_socket: CriSocket = CRI_SOCKET
    ignore_preflight: list[str] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)


class GpuReadyInputs(Inputs):
    """What a node must offer before anything is built on it: an extended resource, or a DRA
    driver's devices, by the driver's name."""

    host: Machine
    control_plane: Machine
    resource: Annotated[str, Field(pattern=r"^[a-z0-9.-]+(/[a-zA-Z0-9._-]+)?$")] = "nvidia.com/gpu"
    count: Annotated[int, Field(ge=1)]


class DeletionGuardInputs(Inputs):
    """The cluster that must not go while it is in use."""

    host: Machine
    endpoint: Endpoint


def path_of(location: Sequence[str | int]) -> str:
    """Return a property path as the engine writes it: `host.address`, `ignorePreflight[0]`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def failures(model: type[Inputs], values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return every (property path, reason) for which the values are no such inputs.

    What is not known yet during a preview is not judged.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        return [
            (path_of(found["loc"]), _reason(model, found, path_of(found["loc"])))
            for found in error.errors()
            if not _undecided(values, found["loc"])
        ]
    return []


def _undecided(values: Any, location: Sequence[str | int]) -> bool:
    for part in location:
        if isinstance(values, Unknown):
            return True
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(values, Unknown)


def _reason(model: type[Inputs], found: Any, path: str) -> str:
    kind = model.__name__.removesuffix("Inputs")
    if found["type"] == "missing":
        return message("missing input", f"{kind}.{path}", "nothing", "a value", f"set `{path}`")
    if found["type"] == "extra_forbidden":
        known = ", ".join(sorted(to_camel(name) for name in model.model_fields))
        return message("unknown input", f"{kind}.{path}", path, known, "remove or rename it")
    allowed = str(found["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    got = repr(found["input"])
    return message("wrong value", f"{kind}.{path}", got, allowed, f"correct `{path}`")
