"""Which settings do not go together, by which rule, and the nearest change that would help."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from bedplate.common.errors import CatalogueError, Problem
from bedplate.common.nearest import nearest
from bedplate.common.versions import natural, parts
from bedplate.resolver.encoding import Encoding
from bedplate.resolver.solving import Model, Program, grounded, shrunk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.wishes import Subject, Wish
    from bedplate.site import SiteHost
    from bedplate.site.places import KeyPath

#: The rule of wishes that contradict each other without any fact.
CONTRADICTION = "wishes-contradict"
#: The rule of wishes for a driver that leave no package at all.
UNPACKAGED = "driver-packaged"


#: The rule of pins by which Fabric Manager would differ from the driver.
UNEQUAL_FABRIC = "fabric-packaged"
#: Rules that take part in many conflicts without being what they are about.
STRUCTURAL = {"driver-packaged", "gpu-branch", "kernel-of-system", "sharing-scheduler"}
#: Sharing modes, those that isolate users better first; none is the last resort.
MODES = ("mig", "mps", "hami", "dra", "time-slicing", "none")
#: Kinds of wish for another version of what stays the same.
VERSIONS = ("kubernetes", "pin", "branch")
#: How the rules about a kind of wish begin: of several rules, such a one names the conflict.
ABOUT = {
    "addon": ("addon-", "resource-"),
    "cuda": ("cuda-",),
    "framework": ("framework-",),
    "gpu": ("gpu-", "fabric-"),
    "isolation": ("isolation",),
    "kernel": ("kernel-",),
    "kubernetes": ("addon-kubernetes", "runtime-", "component-", "node-"),
    "os": ("driver-packaged", "guest-"),
    "profile": ("mig-",),
    "rdma": ("rdma-",),
    "replicas": ("mps-", "share-"),
    "runtime": ("runtime-",),
    "seats": ("share-",),
    "secure_boot": ("secure-",),
    "setting": ("node-",),
    "sharing": ("sharing-", "mps-", "mig-", "resource-"),
}


@dataclass(frozen=True)
class Change:
    """A setting of a subject that a refusal proposes to write, or to remove where it is None."""

    subject: str
    path: KeyPath
    value: str | float | None

    @classmethod
    def of(cls, wish: Wish, label: str | None) -> Change:
        """Return the change that writes something for a wish, numbers as numbers."""
        path, value = wish.path, label
        if label is None and wish.kind == "rdma":
            path = path[:1]  # It cannot be without its stack.
        if label is not None and wish.kind in {"replicas", "seats"}:
            return cls(wish.subject, path, float(label) if path[-1] == "share" else int(label))
        return cls(wish.subject, path, value)


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

    @property
    def ways(self) -> tuple[tuple[Change, ...], ...]:
        """Return the fixes that the refusal proposes, each as the changes that it is made of.

        What no single setting says is left out: a pool for each model, a key enrolled on a host.
        """
        wish, found = self.blamed, []
        if wish.kind == "gpu" and self.wishes[1:]:
            return ()
        if self.instead is not None:
            changes = [Change.of(wish, self.instead)]
            if wish.kind == "sharing" and self.instead == "none":
                keys = given_with_mode(wish.host)
                changes += [Change(wish.subject, (wish.path[0], key), None) for key in keys]
            found.append(tuple(changes))
        else:
            found.append((Change.of(wish, None),))
        if self.elsewhere is not None:
            other, label = self.elsewhere
            found.append((Change.of(other, label),))
        return tuple(found)


def given_with_mode(host: SiteHost) -> list[str]:
    """Return the settings of sharing that go with a mode, and that a host has."""
    sharing = host.wishes.bedplate_sharing
    keys = ("replicas", "share", "profile", "profiles")
    return [key for key in keys if getattr(sharing, key) and not sharing.parts]


class Search:
    """Looks for the conflicts of a cluster and some pools, every alternative at hand.

    What it proposes has to go with each of `others` too, pools that the conflict is not about.
    Where the shared components are decided already, *fixed* has them.
    """

    def __init__(
        self,
        candidates: Candidates,
        cluster: Subject,
        pools: Sequence[Subject],
        others: Sequence[Subject] = (),
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        self.candidates, self.cluster, self.pools = candidates, cluster, pools
        self.fixed = fixed
        alike = {
            tuple((w.path, w.label, w.model and w.model.id) for w in o.wishes): o for o in others
        }
        self.others = [Search(candidates, cluster, [other]) for other in alike.values()]

    @cached_property
    def _grounded(self) -> tuple[Program, list[Wish]]:
        # Of the others, most searches propose nothing that would have to go with them.
        return self.with_options([])

    @property
    def program(self) -> Program:
        """Return the program of what is wished."""
        return self._grounded[0]

    @property
    def wishes(self) -> list[Wish]:
        """Return what is wished, in the order of its numbers."""
        return self._grounded[1]

    def with_options(self, options: Sequence[Wish]) -> tuple[Program, list[Wish]]:
        """Return a program with some more wishes, the last ones, that need not be kept."""
        encoding = self._encoded.copy()
        for option in options:
            encoding.option(option)
        problem = encoding.finish()
        return grounded(problem.facts.text(), len(problem.wishes)), problem.wishes

    @cached_property
    def _encoded(self) -> Encoding:
        encoding = Encoding(self.candidates.catalogue, self.candidates, wide=True)
        encoding.cluster(self.cluster, self.fixed)
        encoding.kubelet(self.cluster.host)
        for pool in self.pools:
            encoding.pool(pool)
        return encoding

    def conflicts(self) -> list[Conflict]:
        """Return the conflicts, one after the other, each without the wishes that others blame.

        Every change is proposed beside all wishes that are not blamed, and beside the changes that
        were proposed before it: to make all of them at once leads to a plan.
        """
        kept = sorted(range(len(self.wishes)), key=lambda i: (-self.wishes[i].weight, i))
        cores: list[tuple[int, list[int], list[str]]] = []
        while (core := self.program.conflict(kept)) is not None:
            wishes, rules = core
            if not wishes:
                raise CatalogueError([_no_way(rules)])
            blamed = min(wishes, key=lambda i: (self.wishes[i].weight, -i))
            kept = [i for i in kept if i != blamed]
            cores.append((blamed, wishes, rules))
        # What was blamed first may go with the rest once a heavier wish is blamed as well.
        for first in list(cores):
            if len(cores) > 1 and self.program.possible([*kept, first[0]]):
                kept.append(first[0])
                cores.remove(first)
        found = []
        changes: list[Wish] = []
        for blamed, wishes, rules in cores:
            conflict, change = self._conflict(blamed, wishes, rules, (kept, changes))
            changes += [change] if change else []
            found.append(conflict)
        return found

    def _conflict(
        self,
        blamed: int,
        wishes: list[int],
        rules: list[str],
        beside: tuple[list[int], list[Wish]],
    ) -> tuple[Conflict, Wish | None]:
        kept, changes = beside
        wish = self.wishes[blamed]
        allowed, change = self._change(wish, kept, changes)
        elsewhere = None
        unshared = wish.kind == "sharing" and change is not None and change.label == "none"
        if change is None or unshared:
            # Nothing else can be written there, or nothing that shares: perhaps at another of the
            # wishes, to keep the sharing by another version alone.
            others = sorted(set(wishes) - {blamed}, key=lambda i: self.wishes[i].weight)
            for other in (i for i in others if i in kept):
                if unshared and self.wishes[other].kind not in VERSIONS:
                    continue
                rest = [*(i for i in kept if i != other), blamed]
                changed = self._change(self.wishes[other], rest, changes)[1]
                if changed is not None:
                    elsewhere = (self.wishes[other], changed.label)
                    break
        conflict = Conflict(
            tuple(rules),
            tuple(self.wishes[i] for i in sorted(wishes)),
            wish,
            allowed,
            change.label if change else None,
            elsewhere,
            (),
        )
        facts = leaning_on(self.program, wishes, conflict.rule)
        return replace(conflict, facts=facts), change

    def _change(
        self, wish: Wish, kept: list[int], changes: Sequence[Wish]
    ) -> tuple[tuple[str, ...], Wish | None]:
        """Return what could be written for a wish beside others, and the best of it."""
        options = [replace(wish, label=one, number=number) for one, number in self.labels(wish)]
        program, all_wishes = self.with_options([*changes, *options])
        first = len(all_wishes) - len(options)
        context = [*kept, *range(first - len(changes), first)]
        allowed = [
            option
            for offset, option in enumerate(options)
            if program.possible([*context, first + offset])
        ]
        for other in self.others:
            also = other.possible(kept, len(self.wishes), changes, allowed)
            allowed = also or allowed  # A pool that goes with none has a conflict of its own.
        relaxed = program.best(context)
        return tuple(one.label for one in allowed), self._best(wish, allowed, relaxed)

    def possible(
        self, shared: Sequence[int], many: int, changes: Sequence[Wish], options: Sequence[Wish]
    ) -> list[Wish]:
        """Return the options that go with the *shared* of the first *many* wishes, and the rest."""
        program, wishes = self.with_options([*changes, *options])
        first = len(wishes) - len(options)
        context = [*(i for i in shared if i < many), *range(many, first)]
        return [
            option
            for offset, option in enumerate(options)
            if program.possible([*context, first + offset])
        ]

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
        return sorted(found.items(), key=lambda item: natural(item[0]))

    def _best(self, wish: Wish, allowed: list[Wish], relaxed: Model | None) -> Wish | None:
        if wish.kind == "seats" and relaxed is not None:
            room = relaxed.seats.get(wish.subject, 0)
            return replace(wish, label=str(room), number=room) if room else None
        if wish.component is None or not allowed:
            return None
        if wish.kind == "sharing":
            return min(allowed, key=lambda one: MODES.index(one.label))
        if wish.kind == "profile":
            # One with other engines is another choice than the nearest size.
            plain = [one.label for one in allowed if not re.search("[+-]", one.label)]
            label = nearest(wish.label, plain, at_least=0.5)
            return next((one for one in allowed if one.label == label), allowed[0])
        if wish.kind == "replicas":
            fewer = [one for one in allowed if one.number < wish.number]
            return max(fewer or allowed, key=lambda one: one.number)
        if not wish.asks and relaxed is not None:
            value = relaxed.values.get((wish.subject, str(wish.component)))
            label = self.candidates.label(wish, value) if value is not None else None
            if preferred := [one for one in allowed if one.label == label]:
                return preferred[0]
        return max(allowed, key=lambda one: (parts(one.label.rpartition("-")[2]), one.label))


def _no_way(rules: Sequence[str]) -> Problem:
    """Return the problem of facts that leave nothing, whatever is wished."""
    what, fix = "no cluster can be made with these facts", "correct the facts that the rules use"
    got = f"nothing that keeps {', '.join(rules) or 'one candidate for each component'}"
    return Problem(what, "facts", got=got, allowed="at least one", fix=fix, rule="catalogue")


def leaning_on(program: Program, wishes: Sequence[int], rule: str) -> tuple[str, ...]:
    """Return the ids of the facts by which wishes break a rule, all other rules being kept."""
    model = program.best(wishes, [one for one in program.rules if one != rule])
    if model is None:
        return ()
    return tuple(sorted({fact for broken, _, fact in model.broken if broken == rule}))


def search(candidates: Candidates, cluster: Subject, pools: Sequence[Subject]) -> list[Conflict]:
    """Return the conflicts of the cluster, and of each pool with it; of some pools if none has any.

    What the cluster is blamed for by itself is not told again for each pool.
    """
    found = Search(candidates, cluster, [], pools).conflicts()
    while True:
        rest = _without(cluster, found)
        of_pools = [one for pool in pools for one in Search(candidates, rest, [pool]).conflicts()]
        if not found:
            break
        # Once pools blame a shared wish, others need not be blamed for what does not go with it.
        fewer = Search(candidates, _without(cluster, of_pools), [], pools).conflicts()
        if len(fewer) >= len(found):
            break
        found = fewer
    found += of_pools
    if not found:
        together = shrunk(list(pools), lambda some: not _go_together(candidates, cluster, some))
        found = Search(candidates, cluster, together).conflicts()
    return list(dict.fromkeys(found))


def _without(cluster: Subject, conflicts: Sequence[Conflict]) -> Subject:
    """Return the shared components without the wishes that are blamed."""
    blamed = {conflict.blamed for conflict in conflicts}
    return replace(cluster, wishes=tuple(w for w in cluster.wishes if w not in blamed))


def _go_together(candidates: Candidates, cluster: Subject, pools: Sequence[Subject]) -> bool:
    search_ = Search(candidates, cluster, pools)
    return search_.program.possible(range(len(search_.wishes)))
