"""Why a component has its version, and why not another one: asked of the plan's own decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bedplate.common.versions import parts
from bedplate.resolver import kernels, plain
from bedplate.resolver import preferences as prefer
from bedplate.resolver.candidates import Candidates
from bedplate.resolver.conflicts import STRUCTURAL, Search, leaning_on
from bedplate.resolver.explanations import WHAT
from bedplate.resolver.locking import reasons
from bedplate.resolver.resolve import Decider, decide
from bedplate.resolver.solving import Program, shrunk
from bedplate.resolver.subjects import subjects
from bedplate.resolver.terms import Name
from bedplate.resolver.wishes import CLUSTER, POOL_PINS, SHARED_PINS, Wish, begins, split_named
from bedplate.site.places import spelt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.resolver.wishes import Subject
    from bedplate.site import Site

type Values = Mapping[str, str]

#: Levels at which what is locked already costs nothing.
LOCKED = {prefer.LOCKED_SHARED, prefer.LOCKED, prefer.CUDA_LOCKED, prefer.BUILD_LOCKED}
#: Its own preferences speak for it.
OTHERS = "other components would be worse"


@dataclass(frozen=True)
class Alternative:
    """A version that was not chosen, and why; with the sources of the facts that forbid it."""

    label: str
    because: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A component that a user asks about.

    Attributes:
        name: as the user calls it; with `cni`, the one that is chosen.
        component: as the program spells it.
        holder: the pool, or the shared components, for which it is decided.
        chosen: the id of what is decided.
        wish: the wish because of which it is decided at all, if there has to be one.
    """

    name: str
    component: Name
    holder: Subject
    chosen: str
    wish: Wish | None

    def wished(self, version: str) -> Wish:
        """Return the wish by which a version would be asked for."""
        if self.wish is None:
            path, host = ("bedplate_pins", self.name), self.holder.host
            return Wish(host, self.holder.name, path, version, "pin", self.component)
        bare = self.wish.kind in {"cuda", "rdma"}
        label = version if bare else f"{split_named(self.wish.label)[0]}-{version}"
        return replace(self.wish, label=label)

    def instead(self, wish: Wish) -> Subject:
        """Return the holder with a wish for another version."""
        kept = (one for one in self.holder.wishes if one is not self.wish)
        return replace(self.holder, wishes=(*kept, wish))


def version_of(value: Any) -> str:
    """Return what tells a component's candidates apart: a version, or a stack for RDMA."""
    return str(getattr(value, "version", None) or value.stack)


def name_of(value: Any) -> str | None:
    """Return which one of several a component is: flannel, cri_o; None if there is just one."""
    name = getattr(value, "runtime", None) or getattr(value, "component", None)
    return name.replace("-", "_") if name else None


def has_fabric(pool: Subject) -> bool:
    """Tell whether a pool's boards are joined by a fabric that needs a manager."""
    boards = ((wish.model.value, wish.number) for wish in pool.wishes if wish.model)
    return any(
        board.fabric_from is not None and count >= board.fabric_from for board, count in boards
    )


def shares(site: Site) -> bool:
    """Tell whether hosts of a site share components: those that run containers do."""
    return any(host.runs_containers for host in site.hosts.values())


class Question:
    """A site's decision, the one that a plan takes, with what else could have been decided."""

    def __init__(
        self,
        site: Site,
        catalogue: Catalogue,
        previous: Lock | None,
        upgraded: Lock | None = None,
    ) -> None:
        """Decide a site: *upgraded* is what an upgrade of it keeps, nothing as a rule."""
        catalogue = kernels.with_unknown(site, catalogue)
        self.candidates = Candidates(catalogue, previous)
        self.cluster, pools = subjects(site, catalogue)
        self.candidates.know(self.cluster, pools)
        self.pools = {pool.name: pool for pool in pools}
        #: A site of Slurm or hypervisors alone shares nothing that could be asked about.
        self.has_cluster = shares(site)
        self._free = Candidates(catalogue, upgraded)
        self._free.know(self.cluster, pools)
        refused = any(True for _ in plain.check(site, catalogue))
        self.decided = None if refused else self._decision(self.cluster, self.candidates)

    def _decision(self, cluster: Subject, candidates: Candidates) -> dict[str, Values] | None:
        found = decide(cluster, list(self.pools.values()), candidates)
        return None if found is None else {CLUSTER: found[0], **found[1]}

    def values(self, name: str) -> Values:
        """Return what is decided for the shared components or a pool."""
        return (self.decided or {})[name]

    def upgrades(self) -> Mapping[str, Values]:
        """Return what `bedplate plan --upgrade` would decide."""
        if self.candidates.previous is None:
            return self.decided or {}
        return self._decision(self.cluster, self._free) or self.decided or {}

    def locked(self, subject: str, component: str, value: str) -> bool:
        """Tell whether the lock has what is decided."""
        costs = self.candidates.costs(subject, Name(component), value)
        locked = any(level in LOCKED and cost == 0 for level, cost in costs)
        return locked and self.candidates.previous is not None

    def asked(self, name: str, subject: str) -> Asked | None:
        """Return the component that a user means, None if nothing like that is decided."""
        for holder in dict.fromkeys((subject, CLUSTER) if self.has_cluster else (subject,)):
            one = self.cluster if holder == CLUSTER else self.pools[holder]
            for component, chosen in sorted(self.values(holder).items()):
                wish = next((w for w in one.wishes if w.asks and w.component == component), None)
                if name in self._names(holder, component, chosen, wish):
                    value = self.candidates.facts[chosen].value
                    return Asked(self._called(name, value), Name(component), one, chosen, wish)
        return None

    @staticmethod
    def _called(name: str, value: Any) -> str:
        """Return the name under which a version is pinned: cri_o, where cri-o is what runs."""
        if name == "cni":
            return name_of(value) or name
        pin = name.replace("-", "_")
        return pin if pin in SHARED_PINS else name

    def _names(self, holder: str, component: str, chosen: str, wish: Wish | None) -> set[str]:
        told = {one.component for one in reasons(holder, {component: chosen}, self.candidates)}
        pins = SHARED_PINS if holder == CLUSTER else POOL_PINS
        told |= {name for name, pinned in pins.items() if pinned == component}
        if wish is not None:
            plain_name = split_named(wish.label)[0]
            told |= {wish.label, plain_name, plain_name.replace("-", "_")}
        return told

    # ---- other versions

    def is_chosen(self, asked: Asked, version: str) -> bool:
        """Tell whether a version is the one that is decided."""
        value = self.candidates.facts[asked.chosen].value
        return version_of(value) == version and self.is_named(asked)

    def is_named(self, asked: Asked) -> bool:
        """Tell whether what is decided is what the user named: not flannel, asked for cilium."""
        value = self.candidates.facts[asked.chosen].value
        names = {pin for pin, component in SHARED_PINS.items() if component == asked.component}
        return asked.name not in names or name_of(value) in {None, asked.name}

    def versions(self, asked: Asked) -> list[str]:
        """Return every known version of a component, newest first."""
        found = dict.fromkeys(version_of(value) for value in self._known(asked))
        return sorted(found, key=lambda text: (parts(text), text), reverse=True)

    def meant(self, asked: Asked, version: str) -> str:
        """Return the newest version of a branch; what is none is returned as it is."""
        known = [one for one in self.versions(asked) if begins(one, version)]
        return version if version in known or not known else known[0]

    def _known(self, asked: Asked) -> list[Any]:
        facts = self.candidates.facts
        if asked.wish is not None:
            return [facts[one].value for one in self.candidates.of_asked(asked.wish)]
        values = self.candidates.of(asked.holder, asked.component, wide=True)
        pin = asked.wished("")
        return [facts[str(v)].value for v in values if self.candidates.could_be(pin, str(v))]

    def alternatives(self, asked: Asked, versions: Sequence[str]) -> Iterator[Alternative]:
        """Yield why each of some versions is not chosen.

        One goes if the site would be planned with a wish for it; what a pool has for itself is
        asked under the shared choice as it is. Else the first pool that cannot live with it tells.
        """
        wishes = [asked.wished(version) for version in versions]
        programs: dict[str, tuple[Program, list[Wish]]] = {}
        for position, (version, wish) in enumerate(zip(versions, wishes, strict=True)):
            other = self._with(asked, wish)
            if other is not None:
                yield Alternative(version, self._unpreferred(asked, wish, other))
            else:
                yield self._refused(asked, wishes, position, version, programs)

    def _with(self, asked: Asked, wish: Wish) -> str | None:
        """Return what would be decided with another wish; None if the site would be refused."""
        holder, component = asked.instead(wish), str(asked.component)
        if holder.name == CLUSTER:
            decision = self._decision(holder, self.candidates)
            return None if decision is None else decision[CLUSTER][component]
        decider = Decider(self.candidates, self.cluster, [holder], self.values(CLUSTER))
        found = decider.decide([holder.name])
        return None if found is None else found[holder.name][component]

    def _unpreferred(self, asked: Asked, wish: Wish, other: str) -> str:
        fact = self.candidates.facts[other]
        if asked.wish is not None and not self.candidates.fits(asked.wish, fact.value):
            return f"possible where {wish.label} is requested"
        where = (asked.holder.name, asked.component)
        costs = dict(self.candidates.costs(*where, asked.chosen))
        for level, cost in sorted(self.candidates.costs(*where, other), reverse=True):
            if cost != costs[level]:
                worse = cost > costs[level]
                return f"possible, and {prefer.meaning(level) if worse else OTHERS}"
        return f"possible, and {OTHERS}"

    def _refused(
        self,
        asked: Asked,
        options: Sequence[Wish],
        position: int,
        version: str,
        programs: dict[str, tuple[Program, list[Wish]]],
    ) -> Alternative:
        holder = asked.holder.name
        for pool in (CLUSTER, *self.pools) if holder == CLUSTER else (holder,):
            if pool not in programs:
                programs[pool] = self._wide(asked, pool, options)
            program, wishes = programs[pool]
            first = len(wishes) - len(options)
            kept = [i for i in range(first) if wishes[i] is not asked.wish]
            order = [*sorted(kept, key=lambda i: (-wishes[i].weight, i)), first + position]
            conflict = program.conflict(order)
            if conflict is not None:
                return self._told(version, program, wishes, conflict, first + position)
        shared = asked.instead(options[position])
        apart = shrunk(
            list(self.pools.values()),
            lambda some: decide(shared, some, self.candidates) is None,
        )
        names = ", ".join(pool.name for pool in apart)
        return Alternative(version, f"{names}: each goes with it alone, but not together")

    def _wide(self, asked: Asked, pool: str, options: Sequence[Wish]) -> tuple[Program, list[Wish]]:
        of = [] if pool == CLUSTER else [self.pools[pool]]
        fixed = None if asked.holder.name == CLUSTER else self.values(CLUSTER)
        return Search(self.candidates, self.cluster, of, fixed=fixed).with_options(options)

    def _told(
        self,
        version: str,
        program: Program,
        wishes: Sequence[Wish],
        conflict: tuple[list[int], list[str]],
        option: int,
    ) -> Alternative:
        members, rules = conflict
        others = [wishes[i] for i in members if i != option]
        shared = wishes[option].subject == CLUSTER
        told = ", ".join(
            f"{spelt(wish.path)} {wish.label}"
            + (f" of {wish.subject}" if shared and wish.subject != CLUSTER else "")
            for wish in others
        )
        nothing = "it contradicts what is requested" if told else "nothing brings it"
        # Of several rules, one that is about more than holding alternatives together.
        rule = min(rules, key=lambda one: one in STRUCTURAL) if rules else None
        what = WHAT[rule] if rule else nothing
        leaning = leaning_on(program, members, rule) if rule else ()
        facts = [self.candidates.facts.get(one) for one in leaning]
        sources = dict.fromkeys(fact.source.url for fact in facts if fact is not None)
        return Alternative(version, what + (f" — with {told}" if told else ""), tuple(sources))
