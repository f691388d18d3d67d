"""Settings and the facts that bear on them, as facts of the logic program.

A *close* problem has only what the wishes leave to choose, and is solved in about a millisecond.
A *wide* one has every alternative too, to find out what could be wished instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.common.versions import last, minor, number
from bedplate.portable.package_names import family
from bedplate.resolver import node_needs
from bedplate.resolver.candidates import SHARED
from bedplate.resolver.terms import Facts, Name, Term, name
from bedplate.resolver.wishes import CLUSTER, Wish

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Condition, Fact
    from bedplate.catalogue.hardware_facts import GpuModel
    from bedplate.catalogue.kubernetes_facts import NodeNeed
    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.wishes import Subject
    from bedplate.site import SiteHost


@dataclass
class Problem:
    """A program's facts, with the wishes in the order of their numbers."""

    wishes: list[Wish] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)


class Encoding:
    """Writes the facts of one problem."""

    def __init__(self, catalogue: Catalogue, candidates: Candidates, *, wide: bool) -> None:
        self.catalogue = catalogue
        self.candidates = candidates
        self.wide = wide
        self.problem = Problem()
        self._given: set[str] = set()

    def copy(self) -> Encoding:
        """Return one with the same facts, to which others can be added."""
        other = Encoding(self.catalogue, self.candidates, wide=self.wide)
        other.problem = Problem([*self.problem.wishes], self.problem.facts.copy())
        other._given = {*self._given}
        return other

    def cluster(self, subject: Subject, fixed: Mapping[str, str] | None = None) -> None:
        """Add the shared components, decided already where *fixed* has them."""
        facts = self.problem.facts
        for component in SHARED:
            facts.add("part", Name(component))
        if fixed is not None:
            for component, value in fixed.items():
                self._entity(value)
                facts.add("candidate", CLUSTER, Name(component), value)
                facts.add("decides", CLUSTER, Name(component))
            for wish in subject.wishes:
                if wish.kind == "setting":
                    self._wish(wish)
            return
        for component in self.candidates.shared_components(subject):
            facts.add("decides", CLUSTER, Name(component))
            self._choice(subject, Name(component))
        self._wishes(subject)

    def pool(self, subject: Subject) -> None:
        """Add a pool, or hosts without GPUs."""
        facts, name_ = self.problem.facts, subject.name
        facts.add("pool", name_)
        facts.add("hosts", name_, subject.hosts)
        if subject.host.is_node:
            facts.add("node", name_)
        if subject.host.runs_containers:
            facts.add("contains", name_)
        for component in self.candidates.pool_components(subject):
            facts.add("decides", name_, component)
            self._choice(subject, component)
        wished = subject.host.wishes
        for flag in ("module_signing", "forward_compatibility"):
            holder = wished.bedplate_host if flag == "module_signing" else wished
            key = flag if flag == "module_signing" else f"bedplate_{flag}"
            if getattr(holder, key):
                facts.add("flag", name_, Name(flag))
        if profiles := wished.bedplate_sharing.profiles:
            facts.add("cut", name_, sum(profiles.values()))
        self._wishes(subject)

    def kubelet(self, host: SiteHost) -> None:
        """Add what nodes need for each release under the wished settings of the cluster."""
        kubernetes = host.wishes.bedplate_kubernetes
        settings = kubernetes.kubelet if kubernetes is not None else {}
        for fact in self.catalogue.kubernetes.values():
            field_ = fact.value.cgroup_v1
            if field_ is not None and settings.get(field_.allowed_by) is not False:
                self.problem.facts.add("cgroup_v1_off", fact.id)
        for need in node_needs.refusing(self.catalogue):
            if not need.value.setting and not node_needs.ignored(need.value, host):
                self.problem.facts.add("needed", need.id)
            self._need(need)

    def _need(self, fact: Fact[NodeNeed]) -> None:
        facts, need = self.problem.facts, fact.value
        for release in self.catalogue.kubernetes.values():
            if node_needs.holds_in(need, release.value.version):
                facts.add("needs_in", fact.id, release.id)
        if need.kernel_from is not None:
            facts.add("needs_kernel", fact.id, number(need.kernel_from))
        if need.cgroup is not None:
            facts.add("needs_cgroup", fact.id, need.cgroup)

    def option(self, wish: Wish) -> int:
        """Add what could be written instead of a wish, and return its number."""
        return self._wish(wish)

    def _wishes(self, subject: Subject) -> None:
        for wish in subject.wishes:
            self._wish(wish)

    def _wish(self, wish: Wish) -> int:
        index = len(self.problem.wishes)
        self.problem.wishes.append(wish)
        facts = self.problem.facts
        if wish.model is not None:
            self._entity(wish.model.id)
            facts.add("gives_gpu", index, wish.subject, wish.model.id)
            facts.add("counts_gpu", index, wish.subject, wish.model.id, wish.number)
        elif wish.kind == "secure_boot":
            facts.add("sets", index, wish.subject, Name("secure_boot"))
        elif wish.kind == "setting":
            for need in node_needs.asked_by(wish.path, self.catalogue):
                facts.add("asks_need", index, need.id)
        elif wish.kind == "isolation":
            facts.add("wants_limits", index, wish.subject)
        elif wish.kind == "seats":
            facts.add("wants_seats", index, wish.subject, wish.number)
        elif wish.component is not None:
            if wish.asks:
                facts.add("decides_if", wish.subject, wish.component, index)
                self._asked(wish, wish.component)
            facts.add("restricts", index, wish.subject, wish.component)
            for value in self.candidates.allowed(wish):
                facts.add("allows", index, value)
        return index

    def _asked(self, wish: Wish, component: Name) -> None:
        known = self.candidates.of_asked(wish)
        if not self.wide:
            allowed = set(self.candidates.allowed(wish))
            known = [value for value in known if value in allowed]
        self._candidates(wish.subject, component, known)

    def _choice(self, subject: Subject, component: Name) -> None:
        values: Sequence[Term] = self.candidates.of(subject, component, wide=self.wide)
        self._candidates(subject.name, component, values)

    def _candidates(self, subject: str, component: Name, values: Iterable[Term]) -> None:
        facts = self.problem.facts
        for value in values:
            facts.add("candidate", subject, component, value)
            for level, cost in self.candidates.costs(subject, component, value):
                if cost:
                    facts.add("cost", subject, component, value, level, cost)
            if value in self.candidates.facts:
                self._entity(value)

    def _entity(self, identifier: str) -> None:
        """Add what the rules ask about a thing, once."""
        if identifier in self._given:
            return
        self._given.add(identifier)
        fact = self.candidates.facts[identifier]
        getattr(self, "_" + identifier.partition("/")[0].replace("-", "_"))(fact)
        for bad, index in self.candidates.conditions_met(identifier):
            self.problem.facts.add("meets", bad, index, identifier)

    def _range(self, identifier: str, value: object, stem: str) -> None:
        for end, numbered in (("from", number), ("upto", last)):
            if (text := getattr(value, f"{stem}_{end}", None)) is not None:
                self.problem.facts.add(f"{stem}_{end}", identifier, numbered(text))

    def _gpu(self, fact: Fact[GpuModel]) -> None:
        facts, board, key = self.problem.facts, fact.value, fact.id
        architecture = self.catalogue.architectures[board.architecture]
        facts.add("architecture", key, architecture.id)
        facts.add("capability", key, capability(board.compute_capability))
        for flavour in board.flavours:
            facts.add("board_flavour", key, Name(flavour))
        if board.open_from is not None:
            facts.add("open_from", key, number(board.open_from))
        if board.driver_from is not None:
            facts.add("qualified_from", key, number(board.driver_from))
        if board.fabric_from is not None:
            facts.add("fabric_from", key, board.fabric_from)
        if board.fabric is not None:
            joined_by = self.catalogue.fabrics[board.fabric]
            facts.add("joined_by", key, joined_by.id)
            for package in joined_by.value.packages:
                facts.add("fabric_needs", joined_by.id, package)
        facts.add("market", key, name(board.market))
        if board.market == "data-centre":
            facts.add("data_centre", key)
        for geometry in self.catalogue.mig_geometries.values():
            if board.model in geometry.value.models:
                shape = geometry.value
                facts.add("geometry", key, shape.profile, shape.instances, geometry.id)
        known = architecture.value
        facts.add("first_branch", architecture.id, int(known.first_branch))
        if known.last_branch is not None:
            facts.add("last_branch", architecture.id, int(known.last_branch))
        self._range(architecture.id, known, "cuda")
        if known.mps_clients is not None:
            facts.add("mps_clients", architecture.id, known.mps_clients)
        for bad, index in self.candidates.conditions_met(architecture.id):
            facts.add("meets", bad, index, architecture.id)

    def _driver(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, driver, key = self.problem.facts, fact.value, fact.id
        branch = self.catalogue.driver_branches[driver.branch].value
        facts.add("branch", key, int(driver.branch))
        facts.add("version", key, number(driver.version))
        facts.add("flavour", key, Name(driver.flavour))
        facts.add("source", key, name(driver.source))
        facts.add("packaged", key, self.catalogue.systems[driver.os].id)
        facts.add("driver_cuda", key, number(branch.cuda))
        for package in driver.fabric or ():
            facts.add("fabric", key, family(package))
        if driver.signed:
            facts.add("signed", key)
        for kernel in driver.kernels:
            facts.add("built_for", key, f"kernel/{driver.os}-{kernel}")
        for major in self.catalogue.cuda_majors.values():
            facts.add("major_from", int(major.value.major), number(major.value.driver_from))

    def _system(self, fact: Fact) -> None:  # type: ignore[type-arg]
        self.problem.facts.add("cgroup", fact.id, fact.value.cgroup)
        if fact.value.guest:
            self.problem.facts.add("guest", fact.id)

    def _kernel(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts = self.problem.facts
        facts.add("kernel_of", fact.id, self.catalogue.systems[fact.value.os].id)
        facts.add("version", fact.id, number(fact.value.kernel))
        if fact.value.headers is not None:
            facts.add("headers", fact.id)

    def _cuda(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, version = self.problem.facts, fact.value.version
        facts.add("version", fact.id, number(version))
        facts.add("toolkit_from", fact.id, number(fact.value.driver_from))
        self._cuda_of(fact.id, version)

    def _cuda_of(self, key: str, version: str) -> None:
        facts = self.problem.facts
        facts.add("cuda_major", key, int(version.split(".")[0]))
        compatible = self.catalogue.forward_compatibility.get(minor(version))
        for branch in compatible.value.branches if compatible else ():
            facts.add("forward_branch", key, int(branch))

    def _framework(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, build = self.problem.facts, fact.value
        if build.cuda is None:
            facts.add("for_cpus", fact.id)
        else:
            self._cuda_of(fact.id, build.cuda)
        for compiled in build.compute_capabilities:
            facts.add("build_capability", fact.id, capability(compiled))
        if build.ptx:
            facts.add("ptx", fact.id)

    def _rdma(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, path = self.problem.facts, fact.value
        for flavour in path.flavours:
            facts.add("path_flavour", fact.id, Name(flavour))
        for market in path.markets:
            facts.add("path_market", fact.id, name(market))
        for market in path.only_with:
            facts.add("path_only_with", fact.id, name(market))
        for architecture in path.architectures:
            identifier = self.catalogue.architectures[architecture].id
            facts.add("path_architecture", fact.id, identifier)
        if path.cuda_from is not None:
            facts.add("path_cuda", fact.id, number(path.cuda_from))
        if path.kernel_from is not None:
            facts.add("path_kernel", fact.id, number(path.kernel_from))

    def _kubernetes(self, fact: Fact) -> None:  # type: ignore[type-arg]
        self.problem.facts.add("version", fact.id, number(fact.value.version))

    def _runtime(self, fact: Fact) -> None:  # type: ignore[type-arg]
        self._range(fact.id, fact.value, "kubernetes")
        if fact.value.cdi:
            self.problem.facts.add("cdi", fact.id)
        if fact.value.os is not None:
            system = self.catalogue.systems[fact.value.os].id
            self.problem.facts.add("distribution", fact.id, system)

    def _component(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, part = self.problem.facts, fact.value
        self._range(fact.id, part, "kubernetes")
        # What ran with an older driver than its maker supports is taken, and the plan says so.
        if (floor := part.driver_seen or part.driver_from) is not None:
            facts.add("driver_from", fact.id, number(floor))
        facts.add("version", fact.id, number(part.version))

    def _addon(self, fact: Fact) -> None:  # type: ignore[type-arg]
        facts, addon = self.problem.facts, fact.value
        self._range(fact.id, addon, "kubernetes")
        self._range(fact.id, addon, "driver")
        for resource in addon.owns:
            facts.add("owns", fact.id, resource)
        if addon.owns_in_mode is not None:
            facts.add("owns_in_mode", fact.id, name(addon.owns_in_mode))
        for other in addon.needs:
            facts.add("needs", fact.id, other)
        for other in addon.excludes:
            facts.add("excludes", fact.id, other)

    def finish(self) -> Problem:
        """Add what belongs to no single thing, and return the problem."""
        facts = self.problem.facts
        for limit in self.catalogue.mps_limits.values():
            value = limit.value
            if value.by == "device-plugin":
                lowest = capability(value.capability_from or "0.0")
                highest = capability(value.capability_upto or "999.9")
                facts.add("plugin_limit", limit.id, lowest, highest, value.clients)
                continue
            first = number(value.cuda_from) if value.cuda_from else 0
            end = last(value.cuda_upto) if value.cuda_upto else last("2146")
            facts.add("mps_limit", limit.id, first, end, value.clients)
        for mode in self.catalogue.sharing_modes.values():
            if mode.value.toolkit_from is not None:
                facts.add("limits_toolkit", number(mode.value.toolkit_from))
            if mode.value.cgroup is not None:
                facts.add("limits_cgroup", mode.value.cgroup)
            if mode.value.limits and mode.value.branch_from is not None:
                facts.add("limits_branch", int(mode.value.branch_from))
            if mode.value.mode == "mps" and mode.value.memory == "counted":
                branches = (mode.value.branch_from or "000", mode.value.branch_upto or "999")
                facts.add("mps_counted", *map(int, branches))
        for bad in self.catalogue.known_bad.values():
            facts.add("bad", bad.id)
            for index, condition in enumerate(bad.value.all):
                facts.add("condition", bad.id, index, seen_as(condition))
                for word in self.candidates.words_met(condition):
                    facts.add("meets", bad.id, index, name(word))
        return self.problem


def capability(text: str) -> int:
    """Return a compute capability as the solver counts: 7.5 is 75."""
    return int(text.replace(".", ""))


def seen_as(condition: Condition) -> Name:
    """Return how the program sees what a condition is about."""
    return Name(
        {
            "architecture": "gpu",
            "source": "driver",
            "flavour": "driver",
            "branch": "driver",
            "kubernetes": "cluster",
            "containerd": "cluster",
            "nvidia_container_toolkit": "cluster",
            "nvidia_device_plugin": "cluster",
            "addon": "cluster",
        }.get(condition.dimension, condition.dimension)
    )
