"""The settings of how pods share GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from bedplate.site.patterns import BY_MEMORY, BY_PART, Memory, Wish

PROFILE = r"^[1-7]g\.[0-9]+gb([+-][a-z.]+)?$"


class MemoryShare(Wish):
    """The size of a share by its memory."""

    memory: Memory


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
    """How pods share some GPUs of each host, which `cards` numbers as nvidia-smi does."""

    mode: Mode = "none"
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    share: Part | None = None
    profile: Profile | None = None
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    cards: Annotated[list[Annotated[int, Field(ge=0, le=63)]], Field(min_length=1)]


class Sharing(Wish):
    """How pods share a GPU.

    `replicas` is the number of shares of a card; instead of it, `share` is the part of a card that
    one user gets. `seats` is how many users the whole pool must have room for at once. `profile`
    is the MIG profile that every card is cut into; `profiles` are several, with their numbers.
    `isolation` is the least that must hold a share's memory back: what a mode gives is a fact of
    the catalogue. Of mode `dra`, where claims name the size, `share` is that of those that don't.

    Where cards differ, a list takes its place: each entry is for some `cards` (`parts` here).
    """

    mode: Mode = "none"
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    share: Share | None = None
    seats: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    profile: Profile | None = None
    profiles: dict[Profile, Annotated[int, Field(ge=1, le=64)]] = {}
    isolation: Literal["limited", "isolated"] | None = None
    parts: Annotated[list[CardSharing], Field(min_length=1)] = []
