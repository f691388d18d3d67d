"""Settings and facts to one plan or one refusal. A pure function: no host, no network, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.common.errors import in_order
from bedplate.lock import Lock
from bedplate.lock import model as locked
from bedplate.resolver import (
    configuration,
    control_planes,
    course_fit,
    course_notebooks,
    course_pools,
    courses,
    hpc_tools,
    images,
    installable,
    kernels,
    locking,
    plain,
    rdma_pods,
    teams,
    warnings,
)
from bedplate.resolver.answer import Plan, Refusal
from bedplate.resolver.candidates import Candidates
from bedplate.resolver.conflicts import search
from bedplate.resolver.encoding import Encoding
from bedplate.resolver.explanations import explained
from bedplate.resolver.solving import Program
from bedplate.resolver.subjects import subjects, without
from bedplate.resolver.wishes import CLUSTER, Subject

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.site import Site

type Values = Mapping[str, str]


def resolve(
    site: Site, catalogue: Catalogue, today: date, previous_lock: Lock | None = None
) -> Plan | Refusal:
    """Decide every version of a site.

    Args:
        site: the wishes.
        catalogue: the facts.
        today: touches warnings only.
        previous_lock: what is locked already is kept where it still satisfies the wishes.

    Returns:
        A plan with its lock, or all reasons why there is none.
    """
    unknown = list(kernels.notices(site, catalogue))
    catalogue = kernels.with_unknown(site, catalogue)
    problems = list(plain.check(site, catalogue))
    candidates = Candidates(catalogue, previous_lock)
    cluster, pools = subjects(site, catalogue)
    candidates.know(cluster, pools)
    if not problems:
        decided = decide(cluster, pools, candidates)
        if decided is not None:
            plan = _plan(site, candidates, (cluster, pools), decided, today)
            plan = replace(plan, notices=(*plan.notices, *unknown))
            over = in_order(
                [
                    *configuration.problems(site, plan.lock, catalogue),
                    *teams.guarantees(site, plan.lock),
                    *teams.containers(site, plan.lock, catalogue),
                    *teams.persons(site, plan.lock, catalogue),
                    *course_pools.problems(site, plan.lock, catalogue),
                    *course_fit.problems(site, plan.lock, catalogue),
                    *images.problems(site, plan.lock, catalogue),
                ]
            )
            if not over:
                return plan
            return Refusal(tuple(in_order([*over, *plan.not_installable])), ())
    cluster, pools = without(cluster, pools, problems)
    conflicts = search(candidates, cluster, pools)
    problems += [explained(conflict, candidates) for conflict in conflicts]
    return Refusal(tuple(in_order(problems)), tuple(conflicts))


def decide(
    cluster: Subject, pools: Sequence[Subject], candidates: Candidates
) -> tuple[Values, dict[str, Values]] | None:
    """Walk the shared choices, best first, to the one that every pool can live with."""
    hard: list[str] = []
    names: dict[Hashable, Subject] = {}
    shapes = {pool.name: names.setdefault(_shape(pool, candidates), pool).name for pool in pools}
    distinct = list(names.values())
    while True:
        asked = [pool for pool in distinct if pool.name in hard]
        shared = Decider(candidates, cluster, asked, None).decide(hard)
        if shared is None:
            return None
        fixed = shared[CLUSTER]
        decider = Decider(candidates, cluster, distinct, fixed)
        found: dict[str, Values] = {}
        for pool in distinct:
            one = decider.decide([pool.name])
            if one is None:
                if pool.name in hard:
                    # Both programs have the same rules: one of them is encoded wrongly.
                    raise AssertionError(f"{pool.name} goes with a shared choice, and does not")
                hard.append(pool.name)
                break
            found[pool.name] = one.get(pool.name, {})
        else:
            return fixed, {name: found[shape] for name, shape in shapes.items()}


class Decider:
    """A program with the shared components, still to choose or *fixed*, and some pools."""

    def __init__(
        self,
        candidates: Candidates,
        cluster: Subject,
        pools: Sequence[Subject],
        fixed: Values | None,
    ) -> None:
        encoding = Encoding(candidates.catalogue, candidates, wide=False)
        encoding.cluster(cluster, fixed)
        encoding.kubelet(cluster.host)
        for pool in pools:
            encoding.pool(pool)
        problem = encoding.finish()
        self.program = Program(problem.facts.text(), len(problem.wishes), kept=True)
        self.pools = [pool.name for pool in pools]

    def decide(self, active: Sequence[str]) -> dict[str, dict[str, str]] | None:
        """Return the best values of the cluster and the active pools, None if there are none."""
        model = self.program.decided(self.pools, active)
        if model is None:
            return None
        found: dict[str, dict[str, str]] = {}
        for (subject, component), value in model.values.items():
            found.setdefault(subject, {})[component] = value
        return found


def _shape(pool: Subject, candidates: Candidates) -> Hashable:
    """Return what makes pools be decided alike, however many hosts they have."""
    wishes = pool.host.wishes
    before = candidates.previous.pools.get(pool.name) if candidates.previous else None
    counted = pool.hosts if any(wish.kind == "seats" for wish in pool.wishes) else 0
    return (
        # A label is not the board: one device id is several boards by subsystem.
        tuple((w.path, w.label, w.number, w.model and w.model.id, w.gpus) for w in pool.wishes),
        pool.host.is_node,
        pool.host.runs_containers,
        wishes.bedplate_driver.policy,
        wishes.bedplate_forward_compatibility,
        wishes.bedplate_host,
        wishes.bedplate_sharing.model_dump_json(),
        counted,
        before.model_dump_json() if before else None,
    )


def _plan(
    site: Site,
    candidates: Candidates,
    asked: tuple[Subject, Sequence[Subject]],
    decided: tuple[Values, dict[str, Values]],
    today: date,
) -> Plan:
    (cluster, subjects_), (shared, values) = asked, decided
    catalogue = candidates.catalogue
    mode = cluster.host.wishes.bedplate_sources.mode
    systems = [one.host.wishes.bedplate_host.os for one in subjects_ if one.host.pool is None]
    part, elsewhere = None, locking.not_built([("os", one) for one in systems], catalogue)
    if site.nodes:
        part = locking.cluster(cluster, shared, candidates, control_planes.untainted(site))
        lacking = locking.not_built(locking.cluster_parts(part, mode, systems), catalogue)
        part, elsewhere = part.model_copy(update={"not_yet": lacking}), []
    alone = None
    if candidates.without_cluster:
        alone = locking.containers(shared, candidates)
        lacking = locking.not_built(locking.containers_parts(alone, mode), catalogue)
        alone = alone.model_copy(update={"not_yet": lacking})
    pools = {one.name: one for one in subjects_ if one.name in site.pools}
    locked_pools = {}
    for name in site.pools:
        pool = locking.pool(pools[name], values[name], candidates)
        lacking = locking.not_built(locking.pool_parts(pool, catalogue, part), catalogue)
        lacking += locking.unconfirmed(name, values[name], candidates)
        locked_pools[name] = pool.model_copy(update={"not_yet": lacking})
    if part is not None:
        classes = courses.decided(site, locked_pools, catalogue)
        shared_by = {
            "preset": teams.preset(cluster.host),
            "teams": teams.decided(site, locked_pools) | courses.teams(classes),
            "courses": classes,
            "hub": courses.hub(site),
            "storage": courses.storage(site),
            "images": images.decided(site),
            "rdma_device_plugin": rdma_pods.plugin(locked_pools.values(), catalogue),
        }
        part = part.model_copy(update=shared_by)
        further = []
        if part.preset and part.preset.placement.extender:  # no pool's GPUs are the extender's yet
            further.append("part extender")
        part = part.model_copy(update={"not_yet": [*part.not_yet, *further]})
    wished = cluster.host.wishes.bedplate_sources
    url = wished.url.rstrip("/") if wished.url else None
    lock = Lock(
        format=locked.FORMAT,
        catalogue=catalogue.digest,
        site_digest=site.digest,
        sources=locked.Sources(
            mode=wished.mode,
            url=url,
            files=wished.files.rstrip("/") if wished.files else None,
            registry=wished.registry,
            ca=wished.ca,
            packages=wished.packages,
            keys=wished.keys or {},
            pip=wished.pip,
            conda=wished.conda.rstrip("/") if wished.conda else None,
        ),
        cluster=part,
        containers=alone,
        hosts={
            name: locked.Host(
                **host.connection.model_dump(exclude={"name"}),
                pool=host.pool,
                groups=list(host.groups),
                guests=locking.guests(host),
                topology=locking.topology(host),
                **locking.marks(host),
            )
            for name, host in sorted(site.hosts.items())
        },
        pools=locked_pools,
        not_yet=elsewhere,
    )
    lock = course_notebooks.decided(site, lock, catalogue)
    lock = course_pools.decided(site, lock, catalogue)
    decided_here = site.nodes or alone is not None
    reasons = list(locking.reasons(CLUSTER, shared, candidates)) if decided_here else []
    reasons += control_planes.reasons(site)
    for name in site.pools:
        reasons += locking.reasons(name, values[name], candidates)
        reasons += hpc_tools.reasons(name, locked_pools[name].hpc_tools)
    notices = dict.fromkeys(warnings.of(site, lock, candidates, (shared, values), today))
    missing = installable.problems(site, lock, catalogue)
    return Plan(lock, tuple(reasons), tuple(notices), missing)
