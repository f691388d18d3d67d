"""The words of a refusal. Which wishes are refused is in the rules, not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.errors import Problem
from bedplate.nearest import nearest
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedplate.site import SiteHost

WHAT = {
    "gpu-known": "unknown GPU",
    "gpu-count": "pool has no GPUs",
    "gpu-mixed": "pool mixes GPU models",
    "system-known": "unknown operating system",
    "kubernetes-known": "unknown Kubernetes version",
    "branch-known": "unknown driver branch",
    "branch-drives-gpu": "driver branch does not drive the GPU",
    "flavour-drives-gpu": "kernel module flavour does not drive the GPU",
    "driver-packaged": "no package brings such a driver",
    "policy-packaged": "no driver of this policy is packaged",
    "pin-known": "pinned driver is not packaged",
    "control-plane": "control plane cannot keep a quorum",
    "endpoint-is-host": "endpoint is a host outside of the control plane",
    "mirror-url": "mirror has no address",
    "upstream-url": "address without a mirror",
    "undecided": "not decided by this version",
}


def refused(
    rule: str,
    host: SiteHost,
    path: Sequence[str | int],
    got: str,
    allowed: str,
    fix: str,
    sources: Iterable[str] = (),
) -> Problem:
    """Return the refusal of a wish, at the wish's place."""
    written: Sequence[str | int] = path
    if path[:1] == ("bedplate_gpu",) and tuple(path[:2]) not in host.places.known:
        written = (path[0], *path[2:])
    place = host.places.of(written)
    return Problem(
        WHAT[rule],
        place.file,
        place.line,
        place.column,
        spelt(written),
        got,
        allowed,
        fix,
        rule,
        tuple(sources),
    )


def unknown(
    rule: str, host: SiteHost, path: Sequence[str | int], got: str, known: Iterable[str]
) -> Problem:
    """Return the refusal of a name that the catalogue does not have."""
    names = sorted(known)
    close = nearest(got, names)
    fix = f"write {close}" if close else f"choose one of {', '.join(names)}"
    return refused(rule, host, path, got, ", ".join(names), fix)
