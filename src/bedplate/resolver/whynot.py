"""Why a component has its version, and why not another one: asked of the solver, wish by wish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bedplate.resolver import preferences as prefer
from bedplate.resolver.candidates import Candidates
from bedplate.resolver.conflicts import Search, leaning_on
from bedplate.resolver.explanations import WHAT
from bedplate.resolver.subjects import subjects
from bedplate.resolver.terms import Name
from bedplate.resolver.wishes import CLUSTER, POOL_PINS, SHARED_PINS, Wish, split_named
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.resolver.solving import Model, Program
    from bedplate.resolver.subjects import Subject
    from bedplate.site import Site


def asked_as(wish: Wish, version: str) -> str:
    """Return how another version is written in a wish that asks for a component."""
    return version if wish.kind == "cuda" else f"{split_named(wish.label)[0]}-{version}"


@dataclass(frozen=True)
class Alternative:
    """A version that was not chosen, and why; with the sources of the facts that forbid it."""

    label: str
    because: str
    sources: tuple[str, ...] = ()


def component_of(name: str, subject: Subject) -> Name | None:
    """Return the decision that a user means, as the program spells it; None if there is none."""
    if name in POOL_PINS:
        return POOL_PINS[name]
    if name in SHARED_PINS:
        return SHARED_PINS[name]
    for wish in subject.wishes:
        if wish.asks and wish.component is not None:
            known = {
                wish.label,
                split_named(wish.label)[0],
                split_named(wish.label)[0].replace("-", "_"),
            }
            if name in known or (name == "cuda_toolkit" and wish.kind == "cuda"):
                return wish.component
    return None


class Question:
    """A site's solver with one component's alternatives at hand. The site must be solvable."""

    def __init__(
        self, site: Site, catalogue: Catalogue, previous: Lock | None, subject: str
    ) -> None:
        self.candidates = Candidates(catalogue, previous)
        cluster, pools = subjects(site, catalogue)
        self.candidates.know(cluster, pools)
        self.cluster = cluster
        self.pools = [one for one in pools if subject in {CLUSTER, one.name}]
        self.subject = cluster if subject == CLUSTER else self.pools[0]
        self.search = Search(self.candidates, cluster, self.pools)

    def alternatives(
        self, name: str, component: Name, decided: Model, version: str | None
    ) -> list[Alternative]:
        """Return why each other version of a component (or the one that is named) is not chosen."""
        shared = name in SHARED_PINS or component.startswith("addon(")
        holder = self.cluster if shared else self.subject
        pin = Wish(holder.host, holder.name, ("bedplate_pins", name), "", "pin", component)
        labels = self._labels(pin, version)
        asking = [
            i
            for i, wish in enumerate(self.search.wishes)
            if wish.component == component and wish.asks
        ]
        options = [replace(pin, label=label) for label in labels]
        if asking:
            wish = self.search.wishes[asking[0]]
            options = [replace(wish, label=asked_as(wish, label)) for label in labels]
        program, wishes = self.search.with_options(options)
        kept = [i for i in range(len(wishes) - len(labels)) if i not in asking]
        key = (holder.name, str(component))
        found = []
        for offset, label in enumerate(labels):
            option = len(wishes) - len(labels) + offset
            if self.candidates.facts[decided.values[key]].value.version == label:
                continue
            if program.possible([*kept, option]):
                other = program.best([*kept, option])
                because = (
                    f"possible where {asked_as(wish, label)} is wished"
                    if asking
                    else f"possible, and {self._preference(decided, other, key)}"
                )
                found.append(Alternative(label, because))
                continue
            order = sorted(kept, key=lambda i: (-wishes[i].weight, i))
            found.append(self._refused(program, [*order, option], wishes, label))
        return found

    def decided(self) -> Model | None:
        """Return the decision without any further wish."""
        return self.search.program.best(range(len(self.search.wishes)))

    def _labels(self, pin: Wish, version: str | None) -> list[str]:
        if version is not None:
            return [version]
        return [label for label, _ in reversed(self.search.labels(pin))]

    def _preference(self, decided: Model, other: Model | None, key: tuple[str, str]) -> str:
        if other is None:
            return "it is not preferred"
        mine, its = decided.values[key], other.values[key]
        costs = dict(self.candidates.costs(key[0], Name(key[1]), mine))
        for level, cost in sorted(self.candidates.costs(key[0], Name(key[1]), its), reverse=True):
            if cost > costs[level]:
                return prefer.meaning(level)
        return "other components would be worse"

    def _refused(
        self, program: Program, kept: list[int], wishes: Sequence[Wish], label: str
    ) -> Alternative:
        conflict = program.conflict(kept)
        if conflict is None:
            return Alternative(label, "it is not preferred")
        members, rules = conflict
        others = [wishes[i] for i in members if i != kept[-1]]
        told = ", ".join(f"{spelt(wish.path)} {wish.label}" for wish in others)
        nothing = "it contradicts what is wished" if told else "nothing brings it"
        what = WHAT[rules[0]] if rules else nothing
        facts = [self.candidates.facts.get(one) for one in leaning_on(program, members, rules)]
        sources = dict.fromkeys(fact.source.url for fact in facts if fact is not None)
        return Alternative(label, what + (f" — with {told}" if told else ""), tuple(sources))
