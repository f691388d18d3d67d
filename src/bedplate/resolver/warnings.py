"""What a reviewer should know of a plan: ends of life, weak facts, what no test has installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.bill.needs import files_of, images_of
from bedplate.common.nearest import pasted
from bedplate.common.versions import last, minor, number
from bedplate.lock.offers import offers
from bedplate.resolver import (
    control_planes,
    course_notices,
    gpu_notices,
    installable,
    locking,
    networks,
    node_marks,
    node_needs,
    rdma_pods,
    sharing_notices,
    team_notices,
)
from bedplate.resolver import preferences as prefer
from bedplate.resolver.node_pods import EQUAL, for_users
from bedplate.resolver.outcome import WEAK, Kind, Notice, Stops
from bedplate.resolver.sharing_words import mode_fact
from bedplate.resolver.wishes import CLUSTER
from bedplate.site.site import CONTROL_PLANE, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date

    from bedplate.catalogue import Catalogue
    from bedplate.lock import Lock
    from bedplate.lock.model import Cluster, Pool, Runtime
    from bedplate.resolver.candidates import Candidates
    from bedplate.site import Site

    type Values = Mapping[str, str]

#: What only a site with nodes of Kubernetes has any use for.
OF_CLUSTERS = ("bedplate_kubernetes", "bedplate_schedulers", "bedplate_operators")
ONE_HOST_FIRST = "install one host first (--limit HOST)"


def of(
    site: Site,
    lock: Lock,
    candidates: Candidates,
    decided: tuple[Values, Mapping[str, Values]],
    today: date,
) -> Iterator[Notice]:
    """Yield the notices of a plan."""
    shared, pools = decided
    taught = {pool for course in lock.courses.values() for pool in course.pools}
    for name, pool in lock.pools.items():
        yield from _driver(name, pool, candidates, today)
        yield from _compatibility(name, pool, candidates)
        yield from sharing_notices.of(name, pool, shared, candidates, courses=name in taught)
        yield from gpu_notices.of(name, pool, candidates.catalogue)
        leans = [*pools[name].values(), *_referred(pool, candidates.catalogue)]
        yield from _weak(name, leans, candidates)
        decision = locking.pool_parts(pool, candidates.catalogue, lock.cluster)
        yield from _untried(name, decision, candidates.catalogue)
    yield from _places(lock, candidates.catalogue)
    systems = {host.wishes.bedplate_host.os for host in site.hosts.values() if host.pool is None}
    if lock.cluster is None:
        others = [("os", system) for system in sorted(systems)]
        yield from _untried("hosts in no pool", others, candidates.catalogue)
        if lock.containers is not None:
            yield from _weak(CLUSTER, shared.values(), candidates)
            decision = locking.containers_parts(lock.containers, lock.sources.mode)
            yield from _untried(CLUSTER, decision, candidates.catalogue)
            yield from _unmirrored(site, lock, locking.runtime_of(lock.containers))
        wishes = next(iter(site.hosts.values())).wishes
        if unused := [key for key in OF_CLUSTERS if getattr(wishes, key)]:
            yield Notice(f"{', '.join(unused)}: not used, since the site has no Kubernetes")
    else:
        yield from _kubernetes(lock.cluster, candidates.catalogue, today)
        yield from _weak("cluster", shared.values(), candidates)
        decision = locking.cluster_parts(lock.cluster, lock.sources.mode, sorted(systems))
        versions = locking.other_versions(lock.cluster, candidates.catalogue)
        yield from _untried("cluster", decision, candidates.catalogue, versions)
        if not any(CONTROL_PLANE in host.groups for host in site.hosts.values()):
            yield Notice(
                "no host in control_plane: hosts are prepared for a cluster made elsewhere"
            )
        yield from control_planes.notices(site)
        yield from node_marks.notices(site, lock)
        yield from networks.notices(site, candidates.catalogue)
        yield from node_needs.notices(site, lock.cluster, candidates.catalogue)
        yield from rdma_pods.notices(lock)
        yield from course_notices.of(lock, candidates.catalogue)
        yield from team_notices.of(lock, candidates.catalogue)
        yield from _unmirrored(site, lock, locking.runtime_of(lock.cluster))
    if users := sorted(host.name for host in site.hosts.values() if not host.root):
        yield Notice(
            f"ansible_user is not root and ansible_become is not set: {', '.join(users)}",
            hint="set ansible_become: true, or start ansible-playbook with --become",
            stops=Stops.SITE_YML,
        )
    if site.outside:
        yield Notice(
            f"in no group of Bedplate's, and get nothing: {', '.join(site.outside)}",
            hint=f"the groups are {', '.join(GROUPS)}",
        )
    if site.bare:
        yield Notice(
            f"named as a setting without bedplate_, and not read: {', '.join(site.bare)}",
            hint="write bedplate_ before it, unless it is a variable of your own",
        )
    if names := sorted(_unproved_addresses(lock, candidates.catalogue)):
        yield Notice(
            "no test of this project has downloaded from the vendors' addresses",
            "cluster",
            Kind.WEAK,
            tuple(names),
        )


def _unproved_addresses(lock: Lock, catalogue: Catalogue) -> Iterator[str]:
    """Name what a lock takes from makers that nobody has fetched it from."""
    if lock.sources.mode != "upstream":
        return
    sure = {fact.value.artifact: fact.sure for fact in catalogue.artifacts.values()}
    yield from (
        name for name, _ in files_of(lock, catalogue) if sure.get(name, "unproved") == "unproved"
    )
    sure = {fact.value.image: fact.sure for fact in catalogue.images.values()}
    named = {needed.needed_by for _, needed in images_of(lock, catalogue)}
    yield from (f"image {name}" for name in named if sure.get(name) == "unproved")


def _untried(
    name: str, decided: Iterable[tuple[str, str]], catalogue: Catalogue, more: Iterable[str] = ()
) -> Iterator[Notice]:
    if unseen := [*locking.not_run(decided, catalogue), *more]:
        text = "no test of this project has installed on real hosts"
        items = tuple(map(installable.described, unseen))
        yield Notice(text, name, Kind.UNTRIED, items, ONE_HOST_FIRST)


def _unmirrored(site: Site, lock: Lock, runtime: Runtime) -> Iterator[Notice]:
    """Report a runtime that no mirror has, where its source was not set."""
    wished = next(iter(site.hosts.values())).wishes.bedplate_container_runtime
    if lock.sources.mode != "mirror" or wished.source is not None:
        return
    if runtime.source == "vendor-repo":
        yield Notice(
            f"{wished.name} {runtime.version} comes from its vendor's repository, which "
            "the mirror does not have",
            "cluster",
            hint="write bedplate_container_runtime.source: archive, or vendor-repo where hosts "
            "reach one",
            stops=Stops.SITE_YML,
        )


def _places(lock: Lock, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield where nodes take fewer pods than they offer shares."""
    shared = {
        name: sum(offers(pool).values())
        for name, pool in lock.pools.items()
        if pool.sharing.mode in EQUAL and pool.expects is not None and pool.expects.by != "slurm"
    }
    if lock.cluster is None or not shared:
        return
    free: dict[str, int] = {}
    for name, one in for_users(lock, catalogue).items():
        pool = lock.hosts[name].pool or ""
        free[pool] = min(free.get(pool, one.pods), one.pods)
    for name, shares in shared.items():
        if shares > free[name]:
            text = f"{shares} shares on a node, which takes {free[name]} pods and the cluster's own"
            hint = "make fewer shares, or write bedplate_kubernetes.kubelet.maxPods"
            yield Notice(text, name, hint=hint)


def _driver(name: str, pool: Pool, candidates: Candidates, today: date) -> Iterator[Notice]:
    driver = pool.nvidia_driver
    if driver is None:
        return
    fact = candidates.catalogue.driver_branches[driver.branch]
    end = fact.value.end_of_life
    if end is not None and end < today:
        day = prefer.catalogue_date(candidates.catalogue)
        then = f"; by the catalogue of {day} it was supported" if end >= day else ""
        text = f"driver branch R{driver.branch} reached its end of life on {end}{then}"
        yield Notice(text, name, source=fact.source.url)
    wished = candidates.wished[name]
    # Of the default, which nobody wrote, `--why` says that it gave way.
    if "policy" in wished.model_fields_set and fact.value.type != prefer.POLICIES[wished.policy][0]:
        yield Notice(f"R{driver.branch} is {fact.value.type}, policy is {wished.policy}", name)


def _kubernetes(cluster: Cluster, catalogue: Catalogue, today: date) -> Iterator[Notice]:
    version = minor(cluster.kubernetes.version)
    fact = catalogue.kubernetes_ends.get(version)
    if fact is not None and fact.value.end_of_life < today:
        text = f"Kubernetes {version} reached its end of life on {fact.value.end_of_life}"
        later = [one for one in catalogue.kubernetes if number(minor(one)) > number(version)]
        hint = f"write {pasted(minor(max(later, key=number)))}" if later else ""
        yield Notice(text, "cluster", hint=hint, source=fact.source.url)


def _compatibility(name: str, pool: Pool, candidates: Candidates) -> Iterator[Notice]:
    driver, catalogue = pool.nvidia_driver, candidates.catalogue
    if driver is None:
        return
    for version in pool.cuda_toolkit:
        floor = catalogue.cuda_toolkits[version].value.driver_from
        if number(driver.version) < number(floor):
            major = catalogue.cuda_majors[version.split(".")[0]].value.driver_from
            how = "minor-version" if number(driver.version) >= number(major) else "forward"
            yield Notice(
                f"CUDA {version} runs on driver {driver.version} by {how} compatibility only",
                name,
                hint=f"all its features need {floor}",
            )
    for build in pool.frameworks:
        if build.cuda is None:
            continue
        major = catalogue.cuda_majors[build.cuda.split(".")[0]].value.driver_from
        if number(driver.version) < number(major):
            yield Notice(
                f"{build.name} {build.version} needs the forward compatibility package of "
                f"CUDA {build.cuda} on driver {driver.version}",
                name,
            )


def _referred(pool: Pool, catalogue: Catalogue) -> Iterator[str]:
    """Yield the ids of the facts that a pool's choices rely on, in addition to their own."""
    for gpu in pool.gpu:
        model = catalogue.gpu_models[gpu.model]
        yield model.id
        yield catalogue.architectures[model.value.architecture].id
    if pool.nvidia_fabric is not None:
        yield catalogue.fabrics[pool.nvidia_fabric.kind].id
    if pool.accelerator is not None:
        yield catalogue.accelerators[pool.accelerator.model].id
    models = {gpu.model for gpu in pool.gpu}
    profiles = {pool.sharing.profile, *(one for cut in pool.sharing.layout for one in cut.profiles)}
    for shape in catalogue.mig_geometries.values() if pool.sharing.mode == "mig" else ():
        if shape.value.profile in profiles and models & set(shape.value.models):
            yield shape.id
    driver = pool.nvidia_driver
    if driver is None:
        return
    branch = catalogue.driver_branches[driver.branch]
    yield branch.id
    mode = mode_fact(pool.sharing.mode, driver.branch, catalogue, limits=_limits(pool))
    if mode is not None:
        yield mode.id
    for limit in catalogue.mps_limits.values() if pool.sharing.mode == "mps" else ():
        value = limit.value
        if value.by == "driver":
            first, end, asked = value.cuda_from, value.cuda_upto, [branch.value.cuda]
        elif pool.expects is not None and pool.expects.by == "cluster":
            boards = (catalogue.gpu_models[gpu.model].value for gpu in pool.gpu)
            first, end = value.capability_from, value.capability_upto
            asked = [board.compute_capability for board in boards]
        else:
            continue
        if any(
            number(first or "0") <= number(one) and (end is None or number(one) <= last(end))
            for one in asked
        ):
            yield limit.id
    for version in pool.cuda_toolkit:
        floor = catalogue.cuda_toolkits[version].value.driver_from
        if number(driver.version) < number(floor):
            yield from _compatible(driver.version, version, catalogue)
    for build in pool.frameworks:
        if build.cuda is not None:
            yield from _compatible(driver.version, build.cuda, catalogue)


def _limits(pool: Pool) -> bool:
    return pool.sharing.mode == "dra" and pool.sharing.memory == "limited"


def _compatible(driver: str, cuda: str, catalogue: Catalogue) -> Iterator[str]:
    """Yield the id of the fact by which a driver runs what was compiled with a CUDA version."""
    major = catalogue.cuda_majors.get(cuda.partition(".")[0])
    if major is not None and number(driver) >= number(major.value.driver_from):
        yield major.id
    elif (forward := catalogue.forward_compatibility.get(minor(cuda))) is not None:
        yield forward.id


def _weak(name: str, identifiers: Iterable[str], candidates: Candidates) -> Iterator[Notice]:
    found: dict[str, list[str]] = {}
    of_site = {*candidates.catalogue.added, *candidates.catalogue.overridden}
    for one in identifiers:
        fact = candidates.facts.get(one)
        if fact is not None and fact.sure == "site" and fact.id not in of_site:
            continue  # a kernel that the site names, which has a notice of its own
        if fact is not None and fact.sure in WEAK:
            found.setdefault(fact.sure, []).append(fact.id)
    for sure, ids in sorted(found.items()):
        yield Notice(WEAK[sure], name, Kind.WEAK, tuple(sorted(set(ids))))
