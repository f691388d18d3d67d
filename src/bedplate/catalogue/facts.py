"""What a fact is, and which combinations are known to be broken; kinds are in `…_facts`.

Ranges are inclusive. `…_from` and `…_upto` are versions; an `…_upto` of `1.36` includes 1.36.3.
"""

from __future__ import annotations

from datetime import date  # noqa: TC003 - Pydantic needs it when it runs
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Who says so; `site` are the facts of a site, beside the catalogue.
Sure = Literal["vendor", "tested", "secondary", "unproved", "site"]
Flavour = Literal["open", "proprietary"]
Market = Literal["data-centre", "workstation", "geforce", "embedded"]
Branch = Annotated[str, Field(pattern=r"^[0-9]{3}$")]
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*([-+~.][0-9A-Za-z.+~-]+)?$")]
Pci = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
ComputeCapability = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]
Chart = Annotated[str, Field(pattern=r"^(oci|https)://[^/\s]+/\S*[^/\s]$")]


class Value(BaseModel):
    """Base of what facts say: immutable and nothing unknown."""

    # Validators are built when the first fact is read, which is not often: see `compiled`.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Source(Value):
    """Where a fact was read, and when: an address, or a file of this project's own proof."""

    url: Annotated[str, Field(pattern=r"^(https?://|tests/|docs/)\S+$")]
    read: date


class Condition(Value):
    """One side of a known-bad combination; exactly one of `equal`, `range` and `prefix`.

    A range has `from` and `upto`, either of which may be left out.
    """

    dimension: Literal[
        "gpu",
        "architecture",
        "os",
        "kernel",
        "source",
        "flavour",
        "branch",
        "driver",
        "fabric",
        "cuda",
        "kubernetes",
        "containerd",
        "nvidia_container_toolkit",
        "nvidia_device_plugin",
        "sharing",
        "framework",
        "addon",
        "kind",
    ]
    equal: str | None = None
    prefix: str | None = None
    name: str | None = None
    from_: Annotated[Version | None, Field(alias="from")] = None
    upto: Version | None = None


class KnownBad(Value):
    """A combination that was reported as broken: all conditions together."""

    bad: str
    all: Annotated[list[Condition], Field(min_length=1)]


class Fact[V: Value](Value):
    """Something the world allows or forbids, with where it was read and how sure it is."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[A-Za-z0-9._+-]+$")]
    value: V
    when: str | None = None
    reason: Annotated[str, Field(min_length=1)]
    source: Source
    sure: Sure


GRADES = {"vendor": "vendor", "tested": "tested", "secondary": "unproved", "unproved": "unproved"}
#: The weakest first: a cell of several facts is as sure as the weakest.
WEAKEST = ("unproved", "vendor", "tested")
NONE = "none"


def grade(facts: Iterable[Fact[Any]]) -> str:
    """Return how sure some facts are together."""
    found = {GRADES[fact.sure] for fact in facts}
    return next((one for one in WEAKEST if one in found), NONE)
