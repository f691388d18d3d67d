"""A pool's sharing in the lock: what was decided, its words, and what its nodes will offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.resolver import mig_layouts
from bedplate.resolver.candidates import MODES_WITH_REPLICAS
from bedplate.resolver.sharing_words import asks_limits, mode_fact
from bedplate.resolver.wishes import shares_of
from bedplate.site.sharing import MemoryShare
from bedplate.site.site import SLURM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.wishes import Subject


def decided(subject: Subject, values: Mapping[str, str], candidates: Candidates) -> dict[str, Any]:
    """Return the lock's sharing of a pool."""
    wished, catalogue = subject.host.wishes.bedplate_sharing, candidates.catalogue
    content: dict[str, Any] = {"mode": wished.mode}
    if wished.mode in MODES_WITH_REPLICAS:
        content["replicas"] = shares_of(subject.host)
    elif wished.mode == "mig":
        content["profile"] = wished.profile
        cut = _layout(subject, catalogue)
        content["layout"] = [{"cards": cards, "profiles": has} for cards, has in cut]
    elif isinstance(wished.share, MemoryShare):
        content["share_memory"] = wished.share.memory
    if "driver" in values:
        branch = candidates.facts[values["driver"]].value.branch
        fact = mode_fact(wished.mode, branch, catalogue, limits=asks_limits(wished))
        if fact is not None:
            content |= {"memory": fact.value.memory, "compute": fact.value.compute}
    return content


def expected(subject: Subject, candidates: Candidates) -> dict[str, Any] | None:
    """Return what a node of a pool offers; hypervisors and hosts with Docker alone are none."""
    wishes, catalogue = subject.host.wishes, candidates.catalogue
    if wishes.bedplate_host.kind == "hypervisor" or subject.host.by_docker:
        return None
    stack = "slurm" if SLURM in subject.host.groups else "cluster"
    if wishes.bedplate_accelerator is not None:
        board = catalogue.accelerators[wishes.bedplate_accelerator.model].value
        count = wishes.bedplate_accelerator.count
        return {"resource": board.resource, "count": count, "by": stack}
    mode = wishes.bedplate_sharing.mode
    stack = {"hami": "schedulers", "dra": "dra"}.get(mode, stack)
    fact = mode_fact(mode, None, catalogue)
    if fact is None:
        raise AssertionError(f"nothing is known of mode {mode}")
    whole, divided = fact.value.resource, fact.value.mixed_resource
    if divided is not None and (cut := _layout(subject, catalogue)):
        offered = [one for one in mig_layouts.resources(cut, whole, divided) if one[1]]
        (resource, count), *others = offered
        return {"resource": resource, "count": count, "also": dict(others), "by": stack}
    total = sum(
        wish.number * _shares(wish.model.value.model, subject, catalogue)
        for wish in subject.wishes
        if wish.model is not None
    )
    return {"resource": whole, "count": total, "by": stack}


def _layout(subject: Subject, catalogue: Catalogue) -> list[tuple[list[int], dict[str, int]]]:
    boards = [wish for wish in subject.wishes if wish.model is not None]
    count = sum(wish.number for wish in boards)
    models = [wish.model.value.model for wish in boards if wish.model is not None]
    shapes = mig_layouts.shapes_of(models[0], catalogue) if models else {}
    return mig_layouts.layout(subject.host.wishes.bedplate_sharing, count, shapes)


def _shares(model: str, subject: Subject, catalogue: Catalogue) -> int:
    wished = subject.host.wishes.bedplate_sharing
    if wished.mode in MODES_WITH_REPLICAS:
        return shares_of(subject.host) or 1
    if wished.mode == "mig" and wished.profile is not None:
        return mig_layouts.shapes_of(model, catalogue)[wished.profile].value.instances
    return 1
