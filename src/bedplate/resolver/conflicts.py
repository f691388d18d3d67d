"""Which wishes do not go together, by which rule, and the nearest change that would help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bedplate.errors import CatalogueError, Problem
from bedplate.resolver.encoding import Encoding
from bedplate.resolver.solving import Model, Program
from bedplate.versions import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.subjects import Subject
    from bedplate.resolver.wishes import Wish

#: The rule of wishes that contradict each other without any fact.
CONTRADICTION = "wishes-contradict"
#: The rule of wishes for a driver that leave no package at all.
UNPACKAGED = "driver-packaged"


#: The rule of pins by which Fabric Manager would differ from the driver.
UNEQUAL_FABRIC = "fabric-packaged"
#: Rules that take part in many conflicts without being what they are about.
STRUCTURAL = {"driver-packaged", "gpu-branch", "kernel-of-system", "sharing-scheduler"}
#: Sharing modes, those that isolate users better first; none is the last resort.
MODES = ("mig", "mps", "hami", "time-slicing", "none")
#: How the rules about a kind of wish begin: of several rules, such a one names the conflict.
ABOUT = {
    "addon": ("addon-", "resource-"),
    "cuda": ("cuda-",),
    "framework": ("framework-",),
    "gpu": ("gpu-", "fabric-"),
    "kernel": ("kernel-",),
    "kubernetes": ("addon-kubernetes", "runtime-", "component-"),
    "os": ("driver-packaged", "guest-"),
    "profile": ("mig-",),
    "rdma": ("rdma-",),
    "replicas": ("mps-", "share-"),
    "runtime": ("runtime-",),
    "seats": ("share-",),
    "secure_boot": ("secure-",),
    "sharing": ("sharing-", "mps-", "mig-", "resource-"),
}


@dataclass(frozen=True)
class Conflict:
    """Wishes that do not go together; without any one of them the others do.

    Attributes:
        rules: what forbids it, the first one names it.
        wishes: all that take part.
        blamed: the one of them that is easiest to change.
        allowed: what could be written in its place, the other wishes kept.
        instead: the nearest of those.
        elsewhere: where there is none, another of the wishes and what could be written there.
        facts: the ids of the facts that the rules lean on.
    """

    rules: tuple[str, ...]
    wishes: tuple[Wish, ...]
    blamed: Wish
    allowed: tuple[str, ...]
    instead: str | None
    elsewhere: tuple[Wish, str] | None
    facts: tuple[str, ...]

    @property
    def rule(self) -> str:
        """Return the rule that names the conflict."""
        if not self.rules:
            if any(wish.path[-1] == "nvidia_fabric" for wish in self.wishes):
                return UNEQUAL_FABRIC
            return UNPACKAGED if self.blamed.component == "driver" else CONTRADICTION
        about = ABOUT.get(self.blamed.kind, ())
        return min(self.rules, key=lambda rule: (not rule.startswith(about), rule in STRUCTURAL))


class Search:
    """Looks for the conflicts of a cluster and some pools, every alternative at hand."""

    def __init__(self, candidates: Candidates, cluster: Subject, pools: Sequence[Subject]) -> None:
        self.candidates, self.cluster, self.pools = candidates, cluster, pools
        self.program, self.wishes = self.with_options([])

    def with_options(self, options: Sequence[Wish]) -> tuple[Program, list[Wish]]:
        """Return a program with some more wishes, the last ones, that need not be kept."""
        encoding = Encoding(self.candidates.catalogue, self.candidates, wide=True)
        encoding.cluster(self.cluster)
        encoding.kubelet(self.cluster.host)
        for pool in self.pools:
            encoding.pool(pool)
        for option in options:
            encoding.option(option)
        problem = encoding.finish()
        return Program(problem.facts.text(), len(problem.wishes), kept=False), problem.wishes

    def conflicts(self) -> list[Conflict]:
        """Return one conflict after the other, each without the wish that the last one blames."""
        order = sorted(range(len(self.wishes)), key=lambda i: (-self.wishes[i].weight, i))
        kept, found = order, []
        while (core := self.program.conflict(kept)) is not None:
            wishes, rules = core
            if not wishes:
                raise CatalogueError([_no_way(rules)])
            blamed = min(wishes, key=lambda i: (self.wishes[i].weight, -i))
            kept = [i for i in kept if i != blamed]
            found.append(self._conflict(blamed, wishes, rules, kept))
        return found

    def _conflict(
        self, blamed: int, wishes: list[int], rules: list[str], kept: list[int]
    ) -> Conflict:
        allowed, instead = self._change(blamed, wishes, kept)
        elsewhere = None
        if instead is None:
            # Nothing else can be written there: perhaps at another of the wishes.
            others = sorted(set(wishes) - {blamed}, key=lambda i: self.wishes[i].weight)
            for other in others:
                rest = [i for i in [*kept, blamed] if i != other]
                if (label := self._change(other, wishes, rest)[1]) is not None:
                    elsewhere = (self.wishes[other], label)
                    break
        return Conflict(
            tuple(rules),
            tuple(self.wishes[i] for i in sorted(wishes)),
            self.wishes[blamed],
            allowed,
            instead,
            elsewhere,
            leaning_on(self.program, wishes, rules),
        )

    def _change(
        self, changed: int, wishes: list[int], kept: list[int]
    ) -> tuple[tuple[str, ...], str | None]:
        """Return what could be written for one of a conflict's wishes, and the best of it."""
        wish = self.wishes[changed]
        context = kept if self.program.possible(kept) else [i for i in wishes if i != changed]
        labels = self.labels(wish)
        program, all_wishes = self.with_options(
            [replace(wish, label=label, number=number) for label, number in labels]
        )
        first = len(all_wishes) - len(labels)
        allowed = [
            label
            for offset, (label, _) in enumerate(labels)
            if program.possible([*context, first + offset])
        ]
        return tuple(allowed), self._instead(wish, allowed, self.program.best(context))

    def labels(self, wish: Wish) -> list[tuple[str, int]]:
        """Return what else could be written for a wish; numbers with their value."""
        if wish.component is None:
            return []
        if wish.asks:
            values: Sequence[object] = self.candidates.of_asked(wish)
        else:
            subjects = (self.cluster, *self.pools)
            subject = next(one for one in subjects if one.name == wish.subject)
            if wish.component.partition("(")[0] in {"cuda", "framework", "addon"}:
                asking = next(w for w in self.wishes if w.component == wish.component and w.asks)
                values = self.candidates.of_asked(asking)
            else:
                values = self.candidates.of(subject, wish.component, wide=True)
        found: dict[str, int] = {}
        for value in values:
            if not self.candidates.could_be(wish, str(value)):
                continue
            label = self.candidates.label(wish, str(value))
            found.setdefault(label, value if isinstance(value, int) else 0)
        found.pop(wish.label, None)
        return sorted(found.items(), key=lambda item: (parts(item[0]), item[0]))

    def _instead(self, wish: Wish, allowed: list[str], relaxed: Model | None) -> str | None:
        if wish.kind == "seats" and relaxed is not None:
            return str(relaxed.seats.get(wish.subject, 0))
        if wish.component is None or not allowed:
            return None
        if wish.kind == "sharing":
            return min(allowed, key=MODES.index)
        if wish.kind == "replicas":
            fewer = [one for one in allowed if float(one) < float(wish.label)]
            return max(fewer or allowed, key=float)
        if not wish.asks and relaxed is not None:
            value = relaxed.values.get((wish.subject, str(wish.component)))
            if value is not None and (label := self.candidates.label(wish, value)) in allowed:
                return label
        return max(allowed, key=lambda label: (parts(label.rpartition("-")[2]), label))


def _no_way(rules: Sequence[str]) -> Problem:
    """Return the problem of facts that leave nothing, whatever is wished."""
    what, fix = "no cluster can be made with these facts", "correct the facts that the rules use"
    got = f"nothing that keeps {', '.join(rules) or 'one candidate for each component'}"
    return Problem(what, "facts", got=got, allowed="at least one", fix=fix, rule="catalogue")


def leaning_on(program: Program, wishes: Sequence[int], rules: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the facts by which wishes break rules, in a decision without these."""
    model = program.best(wishes, [rule for rule in program.rules if rule not in rules])
    if model is None:
        return ()
    return tuple(sorted({fact for rule, _, fact in model.broken if rule in rules}))


def search(candidates: Candidates, cluster: Subject, pools: Sequence[Subject]) -> list[Conflict]:
    """Return the conflicts of each pool with the cluster; of all together if none has any."""
    found = [
        conflict
        for pools_ in ([], *([pool] for pool in pools))
        for conflict in Search(candidates, cluster, pools_).conflicts()
    ]
    return list(dict.fromkeys(found or Search(candidates, cluster, pools).conflicts()))
