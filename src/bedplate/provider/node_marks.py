"""Labels and taints that the site gives a Node object, and those that it gave it before.

An annotation has the keys that are the site's: what others set on a node is left alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.provider.cluster_api import ClusterApi
    from bedplate.provider.deadline import Deadline
    from bedplate.provider.model import Taint

OURS: Final = "bedplate.io/labels-and-taints"


async def apply(
    api: ClusterApi,
    name: str,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    deadline: Deadline,
) -> None:
    """Give a node its labels and taints, and remove those that it had from the site before."""
    node = await api.node(name)
    for argv in changes(node or {}, name, labels, taints):
        await api.kubectl(*argv, deadline=deadline)
        api.forget_nodes()


def changes(
    node: Mapping[str, Any], name: str, labels: Mapping[str, str], taints: Sequence[Taint]
) -> list[list[str]]:
    """Return the commands of kubectl, none where all is so already.

    The annotation is written first, and the keys that go are in it until they are gone: a run that
    is cut off is finished by the next.
    """
    metadata = node.get("metadata", {})
    found = {
        (one["key"], one["effect"]): one.get("value", "")
        for one in node.get("spec", {}).get("taints") or ()
    }
    wanted = {(taint.key, taint.effect): taint.value for taint in taints}
    ours = _read((metadata.get("annotations") or {}).get(OURS))
    had = {tuple(one) for one in ours["taints"]}
    lost_labels = sorted(set(ours["labels"]) - labels.keys())
    lost_taints = sorted(had - wanted.keys())
    new_labels = [
        f"{key}={value}"
        for key, value in sorted(labels.items())
        if (metadata.get("labels") or {}).get(key) != value
    ]
    new_taints = [
        f"{key}{f'={value}' if value else ''}:{effect}"
        for (key, effect), value in sorted(wanted.items())
        if found.get((key, effect)) != value
    ]
    gone = [f"{key}-" for key in lost_labels if key in (metadata.get("labels") or {})]
    gone_taints = [f"{key}:{effect}-" for key, effect in lost_taints if (key, effect) in found]
    last = _written(labels, wanted)
    during = _written([*labels, *lost_labels], [*wanted, *lost_taints])
    commands = []
    if during != _written(ours["labels"], had):
        commands.append(["annotate", "nodes", name, f"{OURS}={during}", "--overwrite"])
    if new_labels or gone:
        commands.append(["label", "nodes", name, *new_labels, *gone, "--overwrite"])
    if new_taints or gone_taints:
        commands.append(["taint", "nodes", name, *new_taints, *gone_taints, "--overwrite"])
    if during != last:
        after = f"{OURS}={last}" if labels or wanted else f"{OURS}-"
        commands.append(["annotate", "nodes", name, after, "--overwrite"])
    return commands


def _written(labels: Iterable[str], taints: Iterable[tuple[str, ...]]) -> str:
    content = {"labels": sorted(labels), "taints": sorted(map(list, taints))}
    return json.dumps(content, separators=(",", ":"))


def _read(text: str | None) -> dict[str, Any]:
    """Return the site's keys; what is no such annotation says that there are none."""
    try:
        found = json.loads(text or "{}")
        labels = [str(key) for key in found.get("labels", [])]
        taints = [(str(key), str(effect)) for key, effect in found.get("taints", [])]
    except (ValueError, TypeError, AttributeError):
        labels, taints = [], []
    return {"labels": labels, "taints": taints}
