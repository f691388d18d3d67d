"""The settings of how pods share GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from bedplate.site.patterns import BY_MEMORY, BY_PART, Memory, Wish

PROFILE = r"^[1-7]g\.[0-9]+gb([+-][a-z.]+)?$"


class MemoryShare(Wish):
    """The size of a share by its memory."""

    memory: Memory
    """GPU memory of one share. Unit: bytes. Example: `8Gi`"""


def _form_of_share(value: object) -> str:
    return BY_MEMORY if isinstance(value, dict | MemoryShare) else BY_PART


Part = Annotated[float, Field(ge=0.001, le=1)]
Share = Annotated[
    Annotated[Part, Tag(BY_PART)] | Annotated[MemoryShare, Tag(BY_MEMORY)],
    Discriminator(_form_of_share),
]
Profile = Annotated[str, Field(pattern=PROFILE)]
Mode = Literal["none", "time-slicing", "mps", "mig", "hami", "dra"]


class CardSharing(Wish):
    """How pods share some GPUs of each host."""

    mode: Mode = "none"
    """How these GPUs are shared. Example: `mig`"""
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Shares of each of these GPUs. Unit: shares. Left out: `share` says it, or a profile. Example:
    `4`"""
    share: Part | None = None
    """The part of a GPU that one share is. Unit: GPUs. Left out: `replicas` says it, or a profile.
    Example: `0.25`"""
    profile: Profile | None = None
    """The MIG profile into which each of these GPUs is cut. Left out: `profiles` says it. Example:
    `1g.10gb`"""
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    """Several MIG profiles on each of these GPUs, with the number of each. Unit: instances.
    Example: `{3g.40gb: 1, 1g.10gb: 4}`"""
    cards: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(min_length=1)]
    """Which GPUs of each host, numbered as nvidia-smi does. Example: `[0, 1]`"""


class Sharing(Wish):
    """How pods share a GPU.

    Where cards differ, a list takes its place: each entry is for some `cards` (`parts` here).
    """

    mode: Mode = "none"
    """How pods share a GPU; the page *Sharing GPUs* says which mode is for whom. Example:
    `time-slicing`"""
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Shares of each GPU. Unit: shares. Left out: `share` says it, or a profile. Example: `10`"""
    share: Share | None = None
    """The size of one share, as a part of a GPU or as `{memory: 8Gi}`. In mode `dra` it is that of
    pods that name no size. Unit: GPUs. Left out: `replicas` says it, or a profile. Example:
    `0.25`"""
    seats: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many users the whole pool must have room for at once. The plan takes as many shares as
    that needs, or refuses. Unit: users. Left out: it is not checked. Example: `30`"""
    profile: Profile | None = None
    """The MIG profile into which every GPU is cut. Left out: `profiles` says it. Example:
    `1g.10gb`"""
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    """Several MIG profiles on each GPU, with the number of each. Unit: instances. Example:
    `{3g.40gb: 1, 1g.10gb: 4}`"""
    isolation: Literal["limited", "isolated"] | None = None
    """The least that must hold a share's memory back; modes that hold it back less are refused.
    Left out: every mode is allowed. Example: `isolated`"""
    parts: Annotated[list[CardSharing], Field(min_length=1)] = []
