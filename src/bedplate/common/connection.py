"""How a host is reached over SSH: one value, from the inventory to the provider's connection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

SSH_PORT = 22
#: A DNS subdomain by RFC 1123, as kubeadm's validation of node names wants it, and not longer than
#: a label's value: the kubelet registers its node with the label kubernetes.io/hostname.
NODE_NAME = re.compile(r"(?!.{64})[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
NODE_NAME_IS = "a node name of up to 63 lower-case letters, digits, '-' and '.'"
#: Neither an option of ssh, nor with a sign that no name has.
_HOP = re.compile(
    r"(?:(?P<user>(?!-)[^@\s\x00-\x1f\x7f]+)@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>(?!-)[^\s@:/\[\]\x00-\x1f\x7f]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Hop:
    """A host that connections go through. Without user or port, SSH's configuration has them."""

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `user@host:port`, of which only the host must be there. Raises ValueError."""
        found = _HOP.fullmatch(text.removeprefix("ssh://").removesuffix("/"))
        port = int(found["port"]) if found and found["port"] else None
        if not found or (port is not None and not 0 < port < 2**16):
            raise ValueError(f"{text} is not user@host:port")
        return cls(found["six"] or found["host"], found["user"], port)

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}" + (f":{self.port}" if self.port else "")


def _as_tuple(value: object) -> object:
    """JSON and YAML have lists only."""
    return tuple(value) if isinstance(value, list) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class Connection(BaseModel):
    """How a host is reached over SSH. A user other than root becomes root by sudo.

    `jump` are the hops ahead of the host, the first one first. `keys` are files of private keys,
    `config` is SSH's configuration instead of the user's own, and `options` are lines of such a
    configuration that come before it; relative paths start at the site's directory. Passwords are
    no part of it.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    name: str
    address: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] = SSH_PORT
    user: Annotated[str, Field(min_length=1)] = "root"
    jump: Strings = ()
    keys: Strings = ()
    config: str | None = None
    options: Strings = ()

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Return the hosts ahead of this one."""
        return tuple(Hop.parse(text) for text in self.jump)

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        via = f" through {', '.join(self.jump)}" if self.jump else ""
        return f"{self.user}@{host}:{self.port}{via}"
