"""Labels and taints of nodes: their forms as Kubernetes checks them, and whose keys are taken.

The forms are those of "Labels and Selectors" and of the API's Taint; the reserved names those of
"Well-Known Labels, Annotations and Taints": https://kubernetes.io/docs/reference/.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bedplate.site.patterns import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    type Path = tuple[str | int, ...]
    type Found = tuple[Path, str, str, str, str]

LABELS, TAINTS = "bedplate_labels", "bedplate_taints"
#: The value of a label or taint, which may be empty.
VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
VALUE_IS = "up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?!.{254})[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
KEY_IS = "NAME or DOMAIN/NAME; NAME has up to 63 letters, digits, '-', '_' and '.'"
#: What Kubernetes leaves to a cluster's administrator among its own names.
FREE = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
FREE_PREFIX = "node-restriction.kubernetes.io"
#: Who owns keys by the end of their domain.
OWNERS = {
    "kubernetes.io": "Kubernetes",
    "k8s.io": "Kubernetes and its add-ons",
    "bedplate.io": "Bedplate",
    "bedplate.gpu": "Bedplate",
}
#: Labels alone: a taint nvidia.com/gpu is usual, and nobody else sets it.
OF_LABELS = {"nvidia.com": "GPU feature discovery"}


class Taint(Wish):
    """A taint of all nodes of a pool: only pods that tolerate it run there."""

    key: Annotated[str, Field(min_length=1)]
    """The taint's key. Example: `nvidia.com/gpu`"""
    value: Annotated[str, Field(pattern=VALUE)] = ""
    """The taint's value. Example: `present`"""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What happens to pods that do not tolerate it; NoExecute also evicts those that run. Example:
    `NoSchedule`"""


def problems(labels: Mapping[str, str], taints: Sequence[Taint]) -> Iterator[Found]:
    """Yield what is wrong with the labels and taints of a host."""
    for key in labels:
        yield from _of_key((LABELS, key), key, OWNERS | OF_LABELS)
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path: Path = (TAINTS, index, "key")
        yield from _of_key(path, taint.key, OWNERS)
        if (taint.key, taint.effect) in seen:
            got = f"{taint.key}:{taint.effect}"
            yield path, "taint is there twice", got, "each key and effect once", "remove one"
        seen.add((taint.key, taint.effect))


def _of_key(path: Path, key: str, owners: Mapping[str, str]) -> Iterator[Found]:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        yield path, "no key of a label or taint", key, KEY_IS, "correct it"
        return
    if key in FREE or prefix == FREE_PREFIX:
        return
    for domain, owner in owners.items():
        if prefix == domain or prefix.endswith(f".{domain}"):
            fix = f"choose a domain of your own, like example.com/{name}"
            yield path, f"key belongs to {owner}", key, "a key that no one else sets", fix
