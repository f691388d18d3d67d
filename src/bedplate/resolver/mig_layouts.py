"""What GPUs are cut into by MIG: from the setting to instances, and whether they have room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.sharing_facts import MigGeometry
    from bedplate.site.sharing import CardSharing, Sharing

type Shapes = Mapping[str, Fact[MigGeometry]]


def shapes_of(model: str, catalogue: Catalogue) -> dict[str, Fact[MigGeometry]]:
    """Return the profiles that a model has, by name."""
    facts = catalogue.mig_geometries.values()
    return {fact.value.profile: fact for fact in facts if model in fact.value.models}


def instances(entry: Sharing | CardSharing, shapes: Shapes) -> dict[str, int]:
    """Return the instances that each GPU of an entry gets, by profile; an unknown one has none."""
    if entry.profile is not None:
        shape = shapes.get(entry.profile)
        return {entry.profile: shape.value.instances if shape else 0}
    return dict(sorted(entry.profiles.items()))


def layout(sharing: Sharing, count: int, shapes: Shapes) -> list[tuple[list[int], dict[str, int]]]:
    """Return which GPUs get which instances, where they differ or one has several profiles.

    *count* are the GPUs of each host. One profile for all of them is no such case.
    """
    if sharing.parts:
        return [
            (sorted(part.cards), instances(part, shapes) if part.mode == "mig" else {})
            for part in sorted(sharing.parts, key=lambda part: min(part.cards))
        ]
    if sharing.profiles:
        return [(list(range(count)), instances(sharing, shapes))]
    return []


def places_known(profiles: Mapping[str, int], shapes: Shapes) -> bool:
    """Tell whether it can be said that these instances fit: one profile alone needs no places."""
    return len(profiles) == 1 or all(shapes[name].value.starts for name in profiles)


def fits(profiles: Mapping[str, int], shapes: Shapes) -> bool:
    """Tell whether instances of these numbers have places on one GPU at the same time."""
    wanted = [shapes[name].value for name, number in profiles.items() for _ in range(number)]
    if any(number > shapes[name].value.instances for name, number in profiles.items()):
        return False
    if len(profiles) == 1:
        return True
    return _placed(sorted(wanted, key=lambda shape: -(shape.size or 0)), 0, -1)


def _placed(wanted: Sequence[MigGeometry], taken: int, after: int) -> bool:
    """Tell whether these instances have places beside the taken slices, a bit each.

    Instances of one profile are alike: the next of them goes to a later start than *after*.
    """
    if not wanted:
        return True
    first, *rest = wanted
    for start in first.starts:
        slices = ((1 << (first.size or 0)) - 1) << start
        if start <= after or taken & slices:
            continue
        same = bool(rest) and rest[0].profile == first.profile
        if _placed(rest, taken | slices, start if same else -1):
            return True
    return False


def shown(profiles: Mapping[str, int]) -> str:
    """Return instances in words: `1 of 3g.40gb and 4 of 1g.10gb`."""
    return " and ".join(f"{number} of {name}" for name, number in profiles.items())


def resources(
    cut: Sequence[tuple[Sequence[int], Mapping[str, int]]], whole: str, divided: str
) -> Iterator[tuple[str, int]]:
    """Yield what a host with such a layout offers: whole GPUs first, then instances by profile."""
    yield whole, sum(len(cards) for cards, profiles in cut if not profiles)
    totals: dict[str, int] = {}
    for cards, profiles in cut:
        for name, number in profiles.items():
            totals[name] = totals.get(name, 0) + number * len(cards)
    for name, number in sorted(totals.items()):
        yield divided.format(profile=name), number


def held(model: str, profile: str, catalogue: Catalogue) -> int | None:
    """Return how many instances of a MIG profile a GPU holds, None if it has no such profile."""
    for fact in catalogue.mig_geometries.values():
        if fact.value.profile == profile and model in fact.value.models:
            return fact.value.instances
    return None
