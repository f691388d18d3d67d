"""What a lock says of shared GPUs, against the facts: parameters, layouts, words, claims."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from tests.properties.plain import RESOURCE, at_least
from tests.properties.view import SHARED_BY_REPLICAS, geometry, instances, replicas_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.properties.plain import Row
    from tests.properties.view import View

WORDS = ["counted", "limited", "isolated"]
#: One Gi in Mi.
GIBIBYTE = 1024


def mig_geometry(view: View) -> Iterator[str]:
    """Every board can be cut into its instances, and they have places at the same time."""
    if view.sharing["mode"] != "mig":
        return
    for model, _ in view.gpus:
        if not view.sharing["parts"] and not view.sharing["profiles"]:
            if geometry(view, model) is None:
                yield f"{view.sharing['profile']} on {model['model']}"
            continue
        for entry in view.sharing["parts"] or [view.sharing]:
            cut = instances(view, model, entry) if entry["mode"] == "mig" else {}
            if not _fit(cut, rows_of(view, model)):
                yield f"{cut} on {model['model']}"
            if entry["profiles"] and any("+" in name or "-" in name for name in cut):
                yield f"{cut} have no resources of their own"


def _fit(cut: Mapping[str, int], rows: Mapping[str, Row]) -> bool:
    """Try every set of starts of each profile with every one of the others."""
    if any(name not in rows or number > rows[name]["instances"] for name, number in cut.items()):
        return False
    if len(cut) <= 1:
        return True
    ways = [_ways(rows[name], number) for name, number in cut.items()]
    for taken in product(*ways):
        slices = [one for some in taken for one in some]
        if len(slices) == len(set(slices)):
            return True
    return False


def _ways(row: Row, number: int) -> list[list[int]]:
    """Return the slices of each choice of places for some instances of a profile."""
    starts, size = row.get("starts") or [], row.get("size") or 0
    chosen: list[list[int]] = [[]]
    for start in starts:
        chosen += [[*one, start] for one in chosen if len(one) < number]
    full = [one for one in chosen if len(one) == number]
    slices = [[start + step for start in one for step in range(size)] for one in full]
    return [one for one in slices if len(one) == len(set(one))]


def sharing_parameters(view: View) -> Iterator[str]:
    """Each mode has its own parameters and no other's."""
    wished = view.sharing
    if wished["parts"]:
        return
    given = {key for key in ("replicas", "share", "profile", "profiles") if wished[key]}
    by_memory = isinstance(wished["share"], dict)
    right = given == set()
    if wished["mode"] in SHARED_BY_REPLICAS:
        right = given in ({"replicas"}, {"share"}) and not by_memory
    elif wished["mode"] == "mig":
        right = given in ({"profile"}, {"profiles"})
    elif wished["mode"] == "dra":
        right = given <= {"share"} and by_memory == bool(given) and wished["seats"] is None
    if not right:
        yield f"{wished['mode']} with {sorted(given)}"
    row = view.mode
    least = row.get("replicas_from") if row and not view.slurm else None
    if right and least and (replicas_of(wished) or 0) < least:
        yield f"fewer than {least} shares"


def share_memory(view: View) -> Iterator[str]:
    """A share by memory is no larger than a GPU."""
    share = view.sharing["share"]
    if not isinstance(share, dict):
        return
    text = share["memory"]
    asked = int(text[:-2]) * (GIBIBYTE if text.endswith("Gi") else 1)
    for model, _ in view.gpus:
        size = model.get("memory_gib")
        if size is not None and asked > size * GIBIBYTE:
            yield f"{text} of {model['model']}"


def sharing_cards(view: View) -> Iterator[str]:
    """Where GPUs differ, each is there once, whole or divided, and all are of one model."""
    parts = view.sharing["parts"]
    if not parts:
        return
    numbers = sorted(card for part in parts for card in part["cards"])
    if numbers != list(range(sum(count for _, count in view.gpus))):
        yield f"GPUs {numbers}"
    if not {part["mode"] for part in parts} <= {"mig", "none"} or view.sharing["mode"] != "mig":
        yield f"modes of {parts}"
    if len({model["model"] for model, _ in view.gpus}) > 1 or view.slurm:
        yield "several models, or Slurm"
    for part in parts:
        profiles = bool(part["profile"]) + bool(part["profiles"])
        if profiles != (part["mode"] == "mig") or part["replicas"] or part["share"]:
            yield f"parameters of {part}"


def isolation(view: View) -> Iterator[str]:
    """Memory is held back at least as asked for, and a limit of claims has what it needs."""
    least, row = view.sharing["isolation"], view.mode
    if least is not None and row is None and view.sharing["mode"] == "dra":
        yield f"limits of claims on branch {(view.driver or {}).get('branch')}"
    if least is None or row is None:
        return
    if WORDS.index(row["memory"]) < WORDS.index(least):
        yield f"{least} with {row['memory']}"
    if row.get("cgroup") and (view.system or {}).get("cgroup", 0) < row["cgroup"]:
        yield f"control groups of {view.pool['os']}"
    toolkit = view.cluster.get("nvidia_container_toolkit", {}).get("version")
    if row.get("toolkit_from") and not at_least(str(toolkit), row["toolkit_from"]):
        yield f"toolkit {toolkit}"


def claims(view: View) -> Iterator[str]:
    """A pool of mode dra has a DRA driver, on a Kubernetes and a driver that it goes with."""
    if view.sharing["mode"] != "dra":
        return
    version = (view.cluster.get("nvidia_dra_driver") or {}).get("version")
    row = view.facts.one("components", component="nvidia_dra_driver", version=version)
    if row is None:
        yield f"no DRA driver {version}"
        return
    if not at_least(view.cluster["kubernetes"]["version"], row.get("kubernetes_from")):
        yield f"{version} with {view.cluster['kubernetes']['version']}"
    floor = row.get("driver_seen") or row.get("driver_from")
    if view.driver and not at_least(view.driver["version"], floor):
        yield f"{version} on {view.driver['version']}"


def words(view: View) -> dict[str, Any]:
    """Return the words that the lock should have: those of the mode on the driver's branch."""
    row = view.mode if view.driver else None
    return {key: (row or {}).get(key) for key in ("memory", "compute")}


def layout(view: View) -> list[dict[str, Any]]:
    """Return the layout that the lock should have."""
    if view.sharing["mode"] != "mig" or not view.gpus:
        return []
    model, _ = view.gpus[0]
    if view.sharing["profiles"]:
        cards = list(range(sum(count for _, count in view.gpus)))
        return [{"cards": cards, "profiles": instances(view, model, view.sharing)}]
    return [
        {
            "cards": sorted(part["cards"]),
            "profiles": instances(view, model, part) if part["mode"] == "mig" else {},
        }
        for part in sorted(view.sharing["parts"], key=lambda part: min(part["cards"]))
    ]


def offered(view: View) -> dict[str, int]:
    """Return what a node of the pool should offer, by resource."""
    cut = layout(view)
    if not cut:
        return {RESOURCE: sum(shares * cards for shares, cards in view.shares)}
    found = {RESOURCE: sum(len(one["cards"]) for one in cut if not one["profiles"])}
    for one in cut:
        for name, number in one["profiles"].items():
            key = f"nvidia.com/mig-{name}"
            found[key] = found.get(key, 0) + number * len(one["cards"])
    return {name: number for name, number in found.items() if number}
