"""What is wrong with the setting for sharing alone: parameters, isolation, GPUs one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.nearest import meant, write_one
from bedplate.common.versions import last, number
from bedplate.portable import quantities
from bedplate.resolver.explanations import refused, unknown
from bedplate.resolver.mig_layouts import fits, instances, places_known, shapes_of, shown
from bedplate.resolver.sharing_words import asks_limits, at_least, mode_fact
from bedplate.resolver.wishes import IN_KUBERNETES_ONLY, model_of, shares_of
from bedplate.site.sharing import MemoryShare
from bedplate.site.site import SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.hardware_facts import GpuModel
    from bedplate.common.errors import Problem
    from bedplate.site import SiteHost
    from bedplate.site.places import KeyPath
    from bedplate.site.sharing import CardSharing, Sharing

KEY = "bedplate_sharing"
#: What each sharing mode needs, and what it has no use for.
NEEDS_SHARES = ("time-slicing", "mps", "hami")
#: Modes that single GPUs of a host can have: all others count for the whole host.
OF_CARDS = ("mig", "none")


def check(host: SiteHost, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is wrong before there is anything to decide."""
    sharing = host.wishes.bedplate_sharing
    models = [model_of(host, index, catalogue) for index in range(len(host.wishes.bedplate_gpu))]
    known = [fact.value for fact in models if fact is not None]
    if host.by_docker and (problem := _by_docker(host, sharing)) is not None:
        yield problem
        return
    if sharing.parts:
        yield from _cards(host, sharing, known, catalogue)
        return
    yield from _parameters(host, sharing, (KEY,), known, catalogue)
    yield from _seats(host, sharing)
    yield from _fewest(host, sharing, catalogue)
    yield from _isolation(host, sharing, known, catalogue)
    if SLURM in host.groups and sharing.mode in IN_KUBERNETES_ONLY:
        fix = "write mode: time-slicing, mig or none"
        got, allowed = f"{sharing.mode} in Slurm", "none, time-slicing, mig"
        yield refused("slurm-or-kubernetes", host, (KEY, "mode"), got, allowed, fix)
    if SLURM in host.groups and sharing.profiles:
        path, fix = (KEY, "profiles"), "write profile: with one of them"
        got = "several profiles in Slurm"
        yield refused("slurm-or-kubernetes", host, path, got, "one profile for all GPUs", fix)


def _by_docker(host: SiteHost, sharing: Sharing) -> Problem | None:
    """Refuse shares that Docker cannot give: it has no device plugin, and no scheduler."""
    key = next((key for key in ("replicas", "share", "seats") if getattr(sharing, key)), None)
    if sharing.mode in OF_CARDS and key is None:
        return None
    path = (KEY, "mode") if sharing.mode not in OF_CARDS else (KEY, str(key))
    got = f"{sharing.mode if sharing.mode not in OF_CARDS else key} with Docker alone"
    fix = "write mode: none or mig, and remove replicas, share and seats"
    return refused("docker-shares", host, path, got, "none, mig", fix)


def _parameters(
    host: SiteHost,
    entry: Sharing | CardSharing,
    at: KeyPath,
    models: Sequence[GpuModel],
    catalogue: Catalogue,
) -> Iterator[Problem]:
    mode, where, rule = entry.mode, (*at, "mode"), "sharing-parameters"
    if mode in NEEDS_SHARES and entry.replicas is None and not isinstance(entry.share, float):
        if entry.share is None:
            fix = "add replicas: or share:"
            yield refused(rule, host, where, mode, f"{mode} with replicas", fix)
        else:
            yield _memory_for_others(host, entry, models)
    if entry.replicas is not None and entry.share is not None:
        got = f"share {_written(entry)} with replicas {entry.replicas}"
        yield refused(rule, host, (*at, "share"), got, "one of them", "remove one")
    for key in ("replicas", "share"):
        if getattr(entry, key) is None or mode in NEEDS_SHARES:
            continue
        if key == "share" and mode == "dra" and isinstance(entry.share, MemoryShare):
            yield from _too_large(host, entry.share, models)
            continue
        fix = f"remove it, or write mode: {'time-slicing' if SLURM in host.groups else 'mps'}"
        if mode == "dra":
            fix = "remove it, or write share: {memory: 8Gi} for claims that name no size"
        got, allowed = f"{key} with mode {mode}", f"{key} with {', '.join(NEEDS_SHARES)}"
        if mode == "mig":
            fix = "remove it: MIG's instances are not shared further; smaller profiles give more"
        yield refused(rule, host, (*at, key), got, allowed, fix)
    yield from _profiles(host, entry, at, models, catalogue)


def _profiles(
    host: SiteHost,
    entry: Sharing | CardSharing,
    at: KeyPath,
    models: Sequence[GpuModel],
    catalogue: Catalogue,
) -> Iterator[Problem]:
    mode, rule = entry.mode, "sharing-parameters"
    if mode == "mig" and entry.profile is None and not entry.profiles:
        fix = "add profile:, for example 1g.10gb"
        yield refused(rule, host, (*at, "mode"), mode, "mig with profile or profiles", fix)
    if entry.profile is not None and entry.profiles:
        got = f"profiles with profile {entry.profile}"
        yield refused(rule, host, (*at, "profiles"), got, "one of them", "remove one")
        return
    for key in ("profile", "profiles"):
        if getattr(entry, key) and mode != "mig":
            got, fix = f"{key} with mode {mode}", "remove it, or write mode: mig"
            yield refused(rule, host, (*at, key), got, f"{key} with mig", fix)
            return
    named = {fact.value.profile for fact in catalogue.mig_geometries.values()}
    asked = [entry.profile] if entry.profile is not None else list(entry.profiles)
    key = "profile" if entry.profile is not None else "profiles"
    lacking = [name for name in asked if name not in named]
    for name in lacking:
        path = (*at, key) if key == "profile" else (*at, key, name)
        yield _no_profile(host, path, name, models, catalogue)
    if mode == "mig" and not lacking and (entry.profiles or at != (KEY,)):
        yield from _geometry(host, entry, (*at, key), models, catalogue)


def _no_profile(
    host: SiteHost,
    path: KeyPath,
    name: str,
    models: Sequence[GpuModel],
    catalogue: Catalogue,
) -> Problem:
    """Refuse a profile that no GPU has, with those that the GPUs of this pool have."""
    shapes = [shapes_of(model.model, catalogue) for model in models]
    if not shapes:
        named = {fact.value.profile for fact in catalogue.mig_geometries.values()}
        return unknown("mig-geometry", host, path, name, named)
    got = f"{name} on {', '.join(model.model for model in models)}"
    common = sorted(set.intersection(*(set(one) for one in shapes)))
    sources = sorted({shape.source.url for one in shapes for shape in one.values()})
    fix = write_one(name, meant(name, common) or common) if common else _undivided(host)
    allowed = ", ".join(common) or "none"
    return refused("mig-geometry", host, path, got, allowed, fix, sources)


def _undivided(host: SiteHost) -> str:
    """Return what to write for GPUs that MIG cannot divide."""
    modes = "time-slicing or none" if SLURM in host.groups else "mps, time-slicing or none"
    modes = "none" if host.by_docker else modes
    return f"write mode: {modes}, and remove profile"


def _geometry(
    host: SiteHost,
    entry: Sharing | CardSharing,
    path: KeyPath,
    models: Sequence[GpuModel],
    catalogue: Catalogue,
) -> Iterator[Problem]:
    """Refuse instances that some model has no profile or no room for, or that pods can't tell."""
    for model in models:
        shapes = shapes_of(model.model, catalogue)
        cut = instances(entry, shapes)
        sources = sorted({shape.source.url for shape in shapes.values()})
        got, allowed = f"{shown(cut)} on {model.model}", ", ".join(sorted(shapes)) or "none"
        strange = [name for name in cut if name not in shapes]
        if strange:
            got, fix = f"{', '.join(strange)} on {model.model}", "write some of these"
            fix = fix if shapes else _undivided(host)
            yield refused("mig-geometry", host, path, got, allowed, fix, sources)
            continue
        suffixed = [name for name in cut if "+" in name or "-" in name]
        if suffixed and entry.profiles:
            allowed = "profiles without + or -, whose resources have names of their own"
            fix = f"write profile: {suffixed[0]} for all GPUs of a pool"
            yield refused("mig-geometry", host, path, ", ".join(suffixed), allowed, fix)
        elif not places_known(cut, shapes):
            allowed, fix = "one profile for each GPU", "write one profile"
            got += ", whose places on the GPU are not known"
            yield refused("mig-geometry", host, path, got, allowed, fix, sources)
        elif not fits(cut, shapes):
            most = ", ".join(
                f"{shapes[name].value.instances} of {name}" for name in cut if name in shapes
            )
            allowed, fix = f"at most {most}, and together what has room", "write fewer of them"
            yield refused("mig-geometry", host, path, got, allowed, fix, sources)


def _memory_for_others(
    host: SiteHost, entry: Sharing | CardSharing, models: Sequence[GpuModel]
) -> Problem:
    """Refuse a size by memory where a mode has parts of a GPU, with the part that would be it."""
    asked = _mib(entry.share)
    sizes = [model.memory_gib for model in models if model.memory_gib is not None]
    shares = min(sizes) * quantities.GIB // asked if sizes and asked else 0
    fix = "write replicas:" + (f" {shares}" if shares >= 1 else "")
    got, allowed = f"share {_written(entry)} with mode {entry.mode}", "a part of a GPU, as 0.25"
    return refused("sharing-parameters", host, (KEY, "share"), got, allowed, f"{fix}, or mode: dra")


def _too_large(host: SiteHost, share: MemoryShare, models: Sequence[GpuModel]) -> Iterator[Problem]:
    for model in models:
        size = model.memory_gib
        if size is not None and _mib(share) > size * quantities.GIB:
            path, got = (KEY, "share", "memory"), f"{share.memory} of {model.model}"
            fix = "write a smaller one"
            yield refused("share-divides", host, path, got, f"at most {size}Gi", fix)


def _mib(share: object) -> int:
    """Return the size of a share by memory; 0 of any other."""
    if not isinstance(share, MemoryShare):
        return 0
    return quantities.mebibytes(share.memory)


def _written(entry: Sharing | CardSharing) -> str:
    return entry.share.memory if isinstance(entry.share, MemoryShare) else str(entry.share)


def _seats(host: SiteHost, sharing: Sharing) -> Iterator[Problem]:
    if sharing.mode == "dra" and sharing.seats is not None:
        path, got = (KEY, "seats"), "seats with mode dra, where claims name their size"
        fix = "remove it, or write mode: time-slicing with share:"
        yield refused("sharing-parameters", host, path, got, "seats of one size", fix)


def _fewest(host: SiteHost, sharing: Sharing, catalogue: Catalogue) -> Iterator[Problem]:
    """Refuse one share of a GPU where the device plugin refuses it."""
    shares, fact = shares_of(host), mode_fact(sharing.mode, None, catalogue)
    least = fact.value.replicas_from if fact else None
    if fact is None or least is None or shares is None or SLURM in host.groups or shares >= least:
        return
    key = "replicas" if sharing.replicas is not None else "share"
    got = f"{shares} share of a GPU with mode {sharing.mode}"
    fix = "write mode: none, which gives whole GPUs, and remove it"
    path, allowed = (KEY, key), f"{least} or more"
    yield refused("sharing-parameters", host, path, got, allowed, fix)


def _isolation(
    host: SiteHost, sharing: Sharing, models: Sequence[GpuModel], catalogue: Catalogue
) -> Iterator[Problem]:
    """Refuse a mode that holds memory back less than asked, and name those that do."""
    least = sharing.isolation
    limits = asks_limits(sharing)
    fact = mode_fact(sharing.mode, None, catalogue, limits=limits)
    if fact is None or at_least(fact.value.memory, least):
        return
    others = list(_others(host, str(least), models, catalogue))
    got = f"{least} with mode {sharing.mode}, where memory is {fact.value.memory}"
    allowed = ", ".join(told for told, _ in others)
    fix = next((fix for _, fix in others if fix), "remove it")
    yield refused("isolation", host, (KEY, "isolation"), got, allowed, fix, [fact.source.url])


def _others(
    host: SiteHost, least: str, models: Sequence[GpuModel], catalogue: Catalogue
) -> Iterator[tuple[str, str]]:
    """Yield the modes that would do for these GPUs, with what to write."""
    replicas = shares_of(host)
    shapes = [shapes_of(model.model, catalogue) for model in models]
    common = sorted(set.intersection(*(set(one) for one in shapes))) if shapes else []
    if common and _gives("mig", least, catalogue):
        also = ", and remove replicas and share" if replicas is not None else ""
        yield f"mig ({', '.join(common)})", f"write mode: mig with a profile{also}"
    if host.is_node and _gives("mps", least, catalogue):
        most = min((clients(model, catalogue) for model in models), default=0)
        fix = f"write mode: mps with replicas: {most}"
        if replicas is None or replicas <= most:
            fix = "write mode: mps" + " with replicas:" * (replicas is None)
        if most:
            yield f"mps (up to {most} shares of a GPU)", fix
    yield "none", "write mode: none, which gives whole GPUs"


def _gives(mode: str, least: str, catalogue: Catalogue) -> bool:
    fact = mode_fact(mode, None, catalogue)
    return fact is not None and at_least(fact.value.memory, least)


def clients(model: GpuModel, catalogue: Catalogue) -> int:
    """Return how many shares of a GPU the device plugin's MPS has; 0 where that is not known."""
    capability = number(model.compute_capability)
    for fact in catalogue.mps_limits.values():
        limit = fact.value
        if limit.by != "device-plugin":
            continue
        first = number(limit.capability_from) if limit.capability_from else 0
        end = last(limit.capability_upto) if limit.capability_upto else capability
        if first <= capability <= end:
            return limit.clients
    return 0


def _cards(
    host: SiteHost, sharing: Sharing, models: Sequence[GpuModel], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield what is wrong where GPUs of a host differ."""
    rule, count = "sharing-cards", sum(gpu.count for gpu in host.wishes.bedplate_gpu)
    if SLURM in host.groups:
        got, fix = "a list in Slurm", "write one mode for all GPUs"
        yield refused(rule, host, (KEY,), got, "one mode for all GPUs", fix)
        return
    if len({model.model for model in models}) > 1:
        got, fix = "a list for several models", "give each model a pool of its own"
        yield refused(rule, host, (KEY,), got, "GPUs of one model", fix)
        return
    if sharing.mode != "mig":
        got, fix = "no GPU with mode mig", "write one mode for all GPUs, without the list"
        yield refused(rule, host, (KEY,), got, "GPUs that differ by MIG", fix)
    seen: dict[int, int] = {}
    for index, part in enumerate(sharing.parts):
        at = (KEY, index)
        if part.mode not in OF_CARDS:
            got, allowed = f"{part.mode} for some GPUs", f"{' or '.join(OF_CARDS)} for some GPUs"
            fix = "write it for all GPUs of the pool, without the list: it counts for a whole host"
            yield refused(rule, host, (*at, "mode"), got, allowed, fix)
            continue
        yield from _parameters(host, part, at, models, catalogue)
        for place, card in enumerate(part.cards):
            path = (*at, "cards", place)
            if card >= count:
                got, allowed = f"GPU {card}", f"0 to {count - 1}, as bedplate_gpu counts them"
                yield refused(rule, host, path, got, allowed, "correct it")
            elif card in seen:
                got = f"GPU {card}, which entry {seen[card] + 1} of the list has"
                yield refused(rule, host, path, got, "each GPU once", "remove one")
            seen.setdefault(card, index)
    if missing := [str(card) for card in range(count) if card not in seen]:
        got, allowed = f"nothing for GPU {', '.join(missing)}", "each GPU once"
        fix = f"add {{mode: none, cards: [{', '.join(missing)}]}}"
        yield refused(rule, host, (KEY,), got, allowed, fix)
