"""What can be chosen for each component, what a setting leaves, and what each choice costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bedplate.common.versions import minor
from bedplate.lock.model import Cluster
from bedplate.resolver import preferences as prefer
from bedplate.resolver.conditions import ABOUT, meets
from bedplate.resolver.terms import Name, Term, name
from bedplate.resolver.wishes import (
    CLUSTER,
    DRA_DRIVER,
    IN_KUBERNETES_ONLY,
    Wish,
    begins,
    names_driver,
    shares_of,
    split_named,
)
from bedplate.site.site import SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Condition, Fact
    from bedplate.catalogue.published_facts import FrameworkBuild
    from bedplate.lock import Lock
    from bedplate.resolver.wishes import Subject
    from bedplate.site.hosts import Driver

SHARED = ("cni", "cni_plugins", "cri_tools", "nvidia_container_toolkit", "nvidia_device_plugin")
#: What hosts that run containers by Docker or Podman, without Kubernetes, share.
WITHOUT_CLUSTER = ("runtime", "nvidia_container_toolkit")
CNI = ("flannel", "cilium")
MODES_WITH_REPLICAS = ("time-slicing", "mps", "hami")


class Candidates:
    """All that can be chosen under a catalogue, beside what is locked already."""

    def __init__(self, catalogue: Catalogue, previous: Lock | None) -> None:
        self.catalogue = catalogue
        self.previous = previous
        self.wished: dict[str, Driver] = {}
        self.named: set[str] = set()
        self.mirrored = False
        self.claims = False
        self.without_cluster = False
        self.positions: dict[tuple[str, str], int] = {}
        self._met: dict[str, tuple[tuple[str, int], ...]] = {}

    def know(self, cluster: Subject, pools: Sequence[Subject]) -> None:
        """Learn what preferences depend on: policies, a mirror, the order of what is asked for."""
        self.without_cluster = any(one.host.by_docker or one.host.by_podman for one in pools)
        self.claims = any(pool.host.wishes.bedplate_sharing.mode == "dra" for pool in pools)
        self.mirrored = cluster.host.wishes.bedplate_sources.mode == "mirror"
        self.wished = {pool.name: pool.host.wishes.bedplate_driver for pool in pools}
        self.named = {pool.name for pool in pools if names_driver(pool.wishes)}
        for subject in (cluster, *pools):
            asked = [wish for wish in subject.wishes if wish.asks and wish.component]
            asked.sort(
                key=lambda wish: (wish.kind, wish.kind != "cuda" and split_named(wish.label)[0])
            )
            for position, wish in enumerate(asked):
                self.positions.setdefault((subject.name, str(wish.component)), position)

    @cached_property
    def facts(self) -> dict[str, Fact[Any]]:
        """Every fact by its id."""
        return {
            fact.id: fact for table in self.catalogue.tables().values() for fact in table.values()
        }

    @cached_property
    def _conditions(self) -> dict[str, list[tuple[str, int, Condition]]]:
        """The conditions of known-bad combinations, by the prefix of what they are about."""
        found: dict[str, list[tuple[str, int, Condition]]] = {}
        for bad in self.catalogue.known_bad.values():
            for index, condition in enumerate(bad.value.all):
                for prefix in ABOUT.get(condition.dimension, ()):
                    found.setdefault(prefix, []).append((bad.id, index, condition))
        return found

    def conditions_met(self, identifier: str) -> tuple[tuple[str, int], ...]:
        """Return the conditions of known-bad combinations that a thing meets."""
        if identifier not in self._met:
            value = self.facts[identifier].value
            told = self._conditions.get(identifier.partition("/")[0], ())
            self._met[identifier] = tuple(
                (bad, index) for bad, index, condition in told if meets(condition, value)
            )
        return self._met[identifier]

    def words_met(self, condition: Condition) -> list[str]:
        """Return the words that meet a condition about something that is no fact."""
        return (
            [condition.equal]
            if condition.dimension in {"sharing", "kind"} and condition.equal
            else []
        )

    # ---- choices

    def shared_components(self, _subject: Subject) -> tuple[str, ...]:
        """Return what is decided for all hosts in any case."""
        if self.without_cluster:
            return WITHOUT_CLUSTER
        return ("kubernetes", "runtime", *SHARED, *([DRA_DRIVER] if self.claims else []))

    def pool_components(self, subject: Subject) -> list[Name]:
        """Return what is decided for a pool or for hosts without GPUs in any case."""
        wished = {wish.component for wish in subject.wishes}
        found = [Name("os"), Name("kind"), Name("kernel")]
        if subject.host.wishes.bedplate_host.kind != "hypervisor":
            if any(wish.model for wish in subject.wishes):
                found.append(Name("driver"))
            found += [
                Name(key) for key in ("sharing", "replicas", "profile") if Name(key) in wished
            ]
        return found

    def of(self, subject: Subject, component: Name, *, wide: bool) -> Sequence[Term]:
        """Return what can be chosen; unless *wide*, only what the wishes leave."""
        values = self._all(subject, component, wide=wide)
        if wide:
            return values
        for wish in subject.wishes:
            if wish.component == component and wish.subject == subject.name and not wish.asks:
                allowed = set(self.allowed(wish))
                values = [value for value in values if value in allowed]
        return values

    def _all(self, subject: Subject, component: Name, *, wide: bool) -> Sequence[Term]:
        catalogue, wished = self.catalogue, subject.host.wishes
        system = wished.bedplate_host.os
        systems = sorted(catalogue.systems) if wide else [system]
        match component:
            case "kubernetes":
                return [fact.id for fact in catalogue.kubernetes.values()]
            case "runtime":
                # No kubelet works with Podman, so its facts are no reason about another runtime.
                facts = catalogue.container_runtimes.values()
                return [
                    fact.id
                    for fact in facts
                    if self.without_cluster or fact.value.runtime != "podman"
                ]
            case "cni":
                return self._components(*CNI)
            case "os":
                return [catalogue.systems[os].id for os in systems if os in catalogue.systems]
            case "kind":
                given = wished.bedplate_host.kind
                # A hypervisor is one by its group: nothing else could be written for its kind.
                others = ("bare-metal", "passthrough") if wide and given != "hypervisor" else ()
                return [name(kind) for kind in dict.fromkeys((given, *others))]
            case "kernel":
                return self._kernels(systems, wished.bedplate_host.kernel)
            case "driver":
                return [identifier for os in systems for identifier in self._drivers.get(os, ())]
            case "sharing":
                return self._modes(subject, wide=wide)
            case "replicas":
                return self._replicas(subject, wide=wide)
            case "profile":
                shapes = catalogue.mig_geometries.values()
                known = {shape.value.profile for shape in shapes} | {
                    wished.bedplate_sharing.profile or ""
                }
                return sorted(known - {""}) if wide else [wished.bedplate_sharing.profile or ""]
        return self._components(component)

    @cached_property
    def _drivers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for fact in self.catalogue.driver_packages.values():
            found.setdefault(fact.value.os, []).append(fact.id)
        return found

    def _components(self, *names: str) -> list[str]:
        facts = self.catalogue.components.values()
        return [fact.id for fact in facts if fact.value.component in names]

    def _kernels(self, systems: Sequence[str], wished: str | None) -> list[str]:
        found = []
        for fact in self.catalogue.kernels.values():
            kernel = fact.value
            usual = self.catalogue.systems[kernel.os].value.kernel
            if kernel.os in systems and kernel.kernel in {usual, wished}:
                found.append(fact.id)
        if wished is None or len(systems) > 1:
            return found
        return [one for one in found if self.facts[one].value.kernel == wished]

    def _modes(self, subject: Subject, *, wide: bool) -> list[Name]:
        sharing = subject.host.wishes.bedplate_sharing
        if not wide:
            return [name(sharing.mode)]
        # Those that the other parameters go with, and none, which takes them out too.
        if sharing.mode == "dra":
            return [name("dra"), name("none")]
        if sharing.profiles or sharing.parts:
            return [name("mig"), name("none")]
        if shares_of(subject.host) is not None:
            barred = IN_KUBERNETES_ONLY if SLURM in subject.host.groups else ()
            barred = MODES_WITH_REPLICAS if subject.host.by_docker else barred
            modes = [mode for mode in (*MODES_WITH_REPLICAS, "none") if mode not in barred]
            # Of a mode that has no shares the setting of shares is refused, not the mode.
            return [name(mode) for mode in dict.fromkeys((*modes, sharing.mode))]
        return [name("mig"), name("none")] if sharing.profile is not None else [name("none")]

    def _replicas(self, subject: Subject, *, wide: bool) -> list[int]:
        wished = shares_of(subject.host) or 1
        found = {wished}
        if wide:
            found |= {fact.value.clients for fact in self.catalogue.mps_limits.values()}
            caps = (fact.value.mps_clients for fact in self.catalogue.architectures.values())
            found |= {cap for cap in caps if cap is not None}
            seats = subject.host.wishes.bedplate_sharing.seats
            cards = subject.hosts * sum(wish.number for wish in subject.wishes if wish.model)
            if seats and cards:
                found.add(-(-seats // cards))
        return sorted(found)

    def of_asked(self, wish: Wish) -> list[str]:
        """Return every candidate of a component that is decided only because of a wish."""
        asked = split_named(wish.label)[0]
        match wish.kind:
            case "cuda":
                return [fact.id for fact in self.catalogue.cuda_toolkits.values()]
            case "framework":
                builds = self.catalogue.frameworks.values()
                return [fact.id for fact in builds if fact.value.framework == asked]
            case "addon":
                return [f.id for f in self.catalogue.addons.values() if f.value.addon == asked]
            case "rdma":
                return [fact.id for fact in self.catalogue.rdma_paths.values()]
        raise AssertionError(wish)

    def allowed(self, wish: Wish) -> list[Term]:
        """Return what a wish leaves of its component's candidates."""
        if wish.kind in {"sharing", "kind"}:
            return [name(wish.label)]
        if wish.kind == "replicas":
            return [wish.number]
        if wish.kind == "profile":
            return [wish.label]
        return [one for one in self._about(wish) if self.fits(wish, self.facts[one].value)]

    def _about(self, wish: Wish) -> list[str]:
        catalogue = self.catalogue
        tables: dict[str, Mapping[str, Fact[Any]]] = {
            "os": catalogue.systems,
            "kernel": catalogue.kernels,
            "driver": catalogue.driver_packages,
            "kubernetes": catalogue.kubernetes,
            "runtime": catalogue.container_runtimes,
            "rdma": catalogue.rdma_paths,
            "cuda": catalogue.cuda_toolkits,
            "framework": catalogue.frameworks,
            "addon": catalogue.addons,
        }
        component = str(wish.component).partition("(")[0]
        return [fact.id for fact in tables.get(component, catalogue.components).values()]

    @staticmethod
    def fits(wish: Wish, value: Any) -> bool:
        """Tell whether a candidate is what a wish says."""
        asked, version = split_named(wish.label)
        match wish.kind:
            case "pin":
                return _pinned(wish, value)
            case "kubernetes" | "cuda":
                return begins(value.version, wish.label)
            case "framework":
                fine = value.framework == asked and begins(value.version, version)
                return fine and all(compiled(value, gpu) for gpu in wish.gpus)
            case "addon":
                return value.addon == asked and begins(value.version, version)
            case "cni":
                return bool(value.component == wish.label)
            case "runtime":
                field = "source" if wish.path[-1] == "source" else "runtime"
                return bool(getattr(value, field) == wish.label)
            case "rdma":
                return bool(value.stack == wish.label)
        return bool(getattr(value, wish.kind) == wish.label)

    def could_be(self, wish: Wish, value: str) -> bool:
        """Tell whether a wish of this kind, in other words, could mean a candidate."""
        if wish.kind != "pin":
            return True
        return self.fits(
            replace(wish, label=self.facts[value].value.version), self.facts[value].value
        )

    def label(self, wish: Wish, value: str) -> str:
        """Return how a candidate is written in a wish of this kind."""
        if value not in self.facts:
            if wish.path[-1] == "share":
                return f"{10000 // int(value) / 10000:g}"
            return value.replace("_", "-") if wish.kind in {"sharing", "kind"} else value
        content = self.facts[value].value
        match wish.kind:
            case "pin":
                return str(content.version)
            case "kubernetes" | "cuda":
                return str(content.version) if wish.label.count(".") > 1 else minor(content.version)
            case "framework":
                return f"{content.framework}-{minor(content.version)}"
            case "addon":
                return f"{content.addon}-{content.version}"
            case "cni":
                return str(content.component)
            case "runtime":
                return str(content.source if wish.path[-1] == "source" else content.runtime)
            case "rdma":
                return str(content.stack)
        return str(getattr(content, wish.kind))

    # ---- preferences

    @cached_property
    def _driver_ranks(self) -> tuple[dict[str, int], dict[str, int], Any]:
        drivers = [fact.value for fact in self.catalogue.driver_packages.values()]
        names = sorted(f"{d.os} {d.source} {d.version} {d.flavour}" for d in drivers)
        return (
            prefer.newest(drivers, lambda driver: driver.version),
            {one: rank for rank, one in enumerate(names)},
            prefer.catalogue_date(self.catalogue),
        )

    @cached_property
    def _build_ranks(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        builds = [fact.value for fact in self.catalogue.frameworks.values()]
        variants = sorted({build.variant for build in builds})
        return (
            prefer.newest(builds, lambda build: build.version),
            prefer.newest(builds, lambda build: build.cuda or prefer.NO_CUDA),
            {one: rank for rank, one in enumerate(variants)},
        )

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Rank of every version of a table among its own; ties, by other fields, by name."""
        found: dict[str, int] = {}
        for table in ("kubernetes", "container_runtimes", "components", "addons", "cuda_toolkits"):
            facts = getattr(self.catalogue, table).values()
            ranks = prefer.newest(facts, lambda fact: fact.value.version)
            ordered = sorted(facts, key=lambda fact: (ranks[fact.value.version], fact.id))
            found |= {fact.id: rank for rank, fact in enumerate(ordered)}
        return found

    def costs(self, subject: str, component: Name, value: Term) -> Iterator[tuple[int, int]]:
        """Yield what a choice costs, as level and cost."""
        kind = component.partition("(")[0]
        if kind == "driver":
            fact = self.facts[str(value)]
            branch = self.catalogue.driver_branches[fact.value.branch].value
            yield from prefer.driver_costs(
                fact,
                branch,
                (self.wished[subject].policy, subject in self.named),
                self._locked_driver(subject),
                self._driver_ranks,
            )
        elif kind == "framework":
            fact = self.facts[str(value)]
            locked = self._locked_build(subject, fact.value.framework, component)
            position = self.positions[subject, component]
            yield from prefer.build_costs(fact, locked, self._build_ranks, position)
        elif kind == "cuda":
            version = self.facts[str(value)].value.version
            yield prefer.CUDA_LOCKED, int(version not in self._locked_cuda(subject))
            yield prefer.CUDA - self.positions[subject, component], self._ranks[str(value)]
        elif kind == "rdma":
            yield prefer.RDMA, prefer.RDMA_METHODS.index(self.facts[str(value)].value.method)
        elif subject == CLUSTER:
            yield prefer.LOCKED_SHARED, int(not self._locked_shared(component, str(value)))
            if component == "runtime":
                theirs = self.facts[str(value)].value.source == "vendor-repo"
                yield prefer.MIRRORED, int(self.mirrored and theirs)
            elif component.startswith("addon("):
                yield prefer.ADDON_RUN, int(self.facts[str(value)].sure != "tested")
            yield self._shared_level(component), self._ranks[str(value)]

    def _shared_level(self, component: Name) -> int:
        if component in SHARED:
            return prefer.SHARED - SHARED.index(component)
        if component.startswith("addon("):
            return prefer.ADDON - self.positions[CLUSTER, component]
        if component == DRA_DRIVER:
            return prefer.SHARED - len(SHARED)
        return {"kubernetes": prefer.KUBERNETES, "runtime": prefer.RUNTIME}[component]

    def _locked_driver(self, subject: str) -> tuple[str, str] | None:
        pool = self.previous.pools.get(subject) if self.previous else None
        driver = pool.nvidia_driver if pool else None
        return (driver.version, driver.flavour) if driver else None

    def _locked_build(
        self, subject: str, framework: str, component: Name
    ) -> tuple[str, str] | None:
        pool = self.previous.pools.get(subject) if self.previous else None
        version = split_named(component.partition('"')[2].rstrip('")'))[1]
        for one in pool.frameworks if pool else ():
            if one.name == framework and begins(one.version, version):
                return one.version, one.variant
        return None

    def _locked_cuda(self, subject: str) -> Sequence[str]:
        pool = self.previous.pools.get(subject) if self.previous else None
        return pool.cuda_toolkit if pool else ()

    def _locked_shared(self, component: Name, value: str) -> bool:
        before = self.previous and (self.previous.cluster or self.previous.containers)
        if before is None:
            return False
        content = self.facts[value].value
        if component.startswith("addon("):
            return isinstance(before, Cluster) and any(
                (one.name, one.version) == (content.addon, content.version) for one in before.addons
            )
        field = content.runtime.replace("-", "_") if component == "runtime" else component
        locked = getattr(before, field, None)
        if locked is None or locked.version != content.version:
            return False
        return bool(component != "cni" or locked.name == content.component)


def compiled(build: FrameworkBuild, gpu: str) -> bool:
    """Tell whether a build has code for a compute capability, as `framework-gpu` does."""
    known = [tuple(map(int, one.split("."))) for one in build.compute_capabilities]
    asked = tuple(map(int, gpu.split(".")))
    alike = any(one[0] == asked[0] and one <= asked for one in known)
    return alike or (build.ptx and all(one < asked for one in known))


def _pinned(wish: Wish, value: Any) -> bool:
    if value.version != wish.label:
        return False
    pinned = str(wish.path[-1])
    named = getattr(value, "runtime", None) or getattr(value, "component", None)
    component = str(wish.component)
    if component.startswith("addon("):
        return bool(value.addon == pinned.replace("_", "-"))
    if component.startswith("framework("):
        return bool(value.framework == pinned.replace("_", "-"))
    return named is None or named.replace("-", "_") == pinned
