"""What is wrong with a job before anything of it is made: all of it at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bedplate.common.errors import Problem
from bedplate.common.nearest import nearest
from bedplate.components.frameworks.jobs import placing
from bedplate.components.frameworks.jobs.model import FORMS
from bedplate.lock.builds import FOR_CPUS, notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bedplate.components.frameworks.jobs.args import JobPool, JobsArgs
    from bedplate.components.frameworks.jobs.model import Request
    from bedplate.lock.model import Quota

#: With `-` and a number behind it, a pod's name is its host name too.
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
NEEDS: Final = {"JobSet": "jobset", "VolcanoGang": "volcano"}
#: Modes in which a GPU is several of the pool's resource.
SHARED: Final = ("time-slicing", "mps", "mig", "hami")
SEVERAL: Final = ("MPI", "torchrun")


def names(
    job: str, given: Iterable[str], known: Iterable[str], needed: Iterable[str]
) -> list[Problem]:
    """Return which inputs of a job are called as none is, and which are missing."""
    allowed, had = list(known), list(given)
    found = []
    for one in had:
        if one not in allowed:
            close = nearest(one, allowed)
            fix, said = f"write {close}" if close else "remove it", ", ".join(allowed)
            found.append(Problem("unknown input of a job", key=job, got=one, allowed=said, fix=fix))
    for one in needed:
        if one not in had:
            missing = "input of a job is missing"
            found.append(Problem(missing, key=job, got="nothing", allowed=one, fix=f"write {one}"))
    return found


def problems(args: JobsArgs, request: Request) -> list[Problem]:
    """Return what is wrong with a job on a cluster; none is a job that can run."""
    found = [*_itself(request), *_form(args, request)]
    teams = args.teams
    if request.team not in teams:
        what, add = "unknown team", "add it to bedplate_teams of the site"
        if not teams:
            return [*found, _wrong(request, "team", what, request.team, "none: no team", add)]
        return [*found, _unknown(request, "team", what, request.team, teams)]
    own = teams[request.team].namespaces
    if request.namespace is not None and request.namespace not in own:
        what = "namespace belongs to another team, or to no team"
        found.append(_unknown(request, "namespace", what, request.namespace, own))
    pools = placing.pools_with_offers(args)
    if request.pool is not None and request.pool not in pools:
        found.append(_unknown(request, "pool", "unknown pool", request.pool, pools))
        return found
    return [*found, *_image(args, request), *_place(args, request)]


def _itself(request: Request) -> Iterator[Problem]:
    if not NAME.fullmatch(request.name):
        allowed = "at most 52 of a-z, 0-9 and -, a letter first"
        fix = "choose another name: its pods' host names begin with it"
        yield _wrong(request, "name", "not a name of pods", request.name, allowed, fix)
    if request.gpus and request.shares:
        got = f"gpus: {request.gpus} and shares: {request.shares}"
        yield _wrong(request, "shares", "GPUs and shares at once", got, "one of them", "remove one")
    for key in ("pods", "processes", "seconds"):
        value = getattr(request, key)
        if value is not None and value < 1:
            yield _wrong(request, key, "not a number of anything", str(value), "1 or more", "")
    for key in ("gpus", "shares"):
        if (value := getattr(request, key)) < 0:
            yield _wrong(request, key, "not a number of anything", str(value), "0 or more", "")
    if not request.image and request.framework is None:
        fix = "name an image by its digest, or a framework of the pool"
        yield _wrong(request, "image", "nothing to run", "neither", "image or framework", fix)
    if request.form in SEVERAL and not request.command:
        fix = "write what each process runs"
        yield _wrong(request, "command", "nothing to run", "no command", "a command", fix)
    places = [volume.at for volume in request.volumes]
    for place in places:
        if not place.startswith("/") or places.count(place) > 1:
            allowed = "an absolute path, and each once"
            yield _wrong(request, "data", "not a place of a volume", place, allowed, "")


def _form(args: JobsArgs, request: Request) -> Iterator[Problem]:
    if request.form not in FORMS:
        yield _unknown(request, "form", "unknown form of a job", request.form, FORMS)
    needed = NEEDS.get(request.form)
    if needed is not None and needed not in args.addons:
        possible = [form for form in FORMS if NEEDS.get(form) in {None, *args.addons}]
        fix = f"choose another form, or add {needed} to bedplate_schedulers of the site"
        what = f"form needs the add-on {needed}"
        yield _wrong(request, "form", what, request.form, ", ".join(possible), fix)


def _image(args: JobsArgs, request: Request) -> Iterator[Problem]:
    """Yield what is wrong with the image's name: one of the site's, or any by digest."""
    known = placing.images(args)
    if not request.image or "@sha256:" in request.image:
        return
    if request.image not in known:
        names = ", ".join(known) or "none is in bedplate_images"
        allowed = f"IMAGE@sha256:DIGEST, or one of the site: {names}"
        fix = "name it by its digest, or add it to bedplate_images of the site"
        yield _wrong(request, "image", "unknown image", request.image, allowed, fix)
        return
    if (reason := args.refused.get(request.image)) is not None:
        what, allowed = f"image is refused: {reason}", "an image that runs in its pool"
        fix = "correct the image, and run bedplate mirror resolve SITE"
        yield _wrong(request, "image", what, request.image, allowed, fix)
    allowed = known[request.image]
    if request.pool is not None and request.pool != allowed:
        fix = f"write pool: {allowed}, or choose another image"
        yield _wrong(request, "pool", "image is for another pool", request.pool, allowed, fix)


def _place(args: JobsArgs, request: Request) -> Iterator[Problem]:
    """Yield what is wrong with pool, framework and number of GPUs; the team is known."""
    pool = placing.pool(args, request)
    usable = placing.pools_with_quota(args, request.team)
    if pool is None:
        if request.framework is not None:
            yield _no_framework(args, request, usable)
        elif request.devices:
            got = "no pool" if usable else f"team {request.team} without a quota"
            allowed = ", ".join(usable) or "a team with a quota of some pool"
            fix = "write pool" if usable else "give the team GPUs in bedplate_teams of the site"
            yield _wrong(request, "pool", "pool is not clear", got, allowed, fix)
        return
    build = placing.build(args, request)
    if request.framework is not None and build is None:
        yield _no_framework(args, request, [pool])
    if build is not None and not request.image and build.identity not in args.built:
        allowed = f"a framework whose image {notebook(build)} is in the bill"
        fix = (
            "build it from the files of bedplate frameworks SITE --output FOLDER, take it by "
            "bedplate mirror add, and run bedplate mirror resolve SITE"
        )
        what, got = "no image of this framework", str(request.framework)
        yield _wrong(request, "framework", what, got, allowed, fix)
    if not request.devices:
        return
    if build is not None and build.cuda is None:
        key, name = "gpus" if request.gpus else "shares", build.name.removesuffix(FOR_CPUS)
        got, allowed = f"{key}: {request.devices} with {request.framework}", f"no {key}"
        fix = f"remove it, or write framework: {name}"
        yield _wrong(request, key, "build for CPUs uses no GPU", got, allowed, fix)
    if pool not in usable:
        fix = f"choose a pool of the team's, or give it some of {pool} in bedplate_teams"
        allowed = ", ".join(usable) or "none: the team has no quota"
        yield _wrong(request, "pool", "team has no quota of this pool", pool, allowed, fix)
        return
    found = args.pools[pool].offers
    if request.resource is not None and request.resource not in found:
        what = "pool does not offer this resource"
        yield _unknown(request, "resource", what, request.resource, found)
        return
    yield from _numbers(args, request, pool)


def _numbers(args: JobsArgs, request: Request, pool: str) -> Iterator[Problem]:
    key = "gpus" if request.gpus else "shares"
    resource = placing.resource(args, request, pool)
    mode = args.pools[pool].mode
    if (wrong := _mode(request, args.pools[pool], pool)) is not None:
        yield wrong
        return
    if mode == "mps" and request.devices > 1:
        fix = "ask for one, or choose a pool with larger shares"
        what = "a pod gets one share of MPS"
        yield _wrong(request, key, what, str(request.devices), "1", fix)
        return
    node, nodes = args.pools[pool].offers[resource], args.pools[pool].nodes
    if request.devices > node:
        what = f"no node of {pool} has as much {resource} for one pod"
        fix = f"ask for at most {node} in each pod, and for more pods"
        yield _wrong(request, key, what, str(request.devices), f"at most {node}", fix)
        return
    in_all = request.devices * request.pods
    room = request.pods // max(1, node // request.devices) + bool(
        request.pods % max(1, node // request.devices)
    )
    quota = args.teams[request.team].gpus[pool].get(resource)
    most = _most(quota, node * nodes)
    told = f"{request.pods} pods with {request.devices} of {resource}: {in_all}"
    if room > nodes:
        fit = nodes * (node // request.devices)
        what = f"{pool} has no room for all pods of the job at once"
        fix = f"ask for at most {fit} such pods"
        allowed = f"{nodes} nodes with {node}: {fit} pods"
        yield _wrong(request, "pods", what, told, allowed, fix)
    elif in_all > most:
        what = f"job is larger than what team {request.team} may ever use of {pool}"
        fix = "ask for less, or raise the team's quota in bedplate_teams of the site"
        yield _wrong(request, "pods", what, told, f"at most {most}", fix)


def _mode(request: Request, pool: JobPool, name: str) -> Problem | None:
    """Return the refusal of whole GPUs where they are shared, and of shares where they are not."""
    shared = pool.mode in SHARED
    if request.gpus and shared:
        what = f"{name} has no whole GPUs: it shares them by {pool.mode}"
        fix = f"write shares: {request.gpus}, or choose a pool with mode none"
        return _wrong(request, "gpus", what, str(request.gpus), "shares", fix)
    if request.shares and not shared:
        by = "by claims, which a team's queue does not count" if pool.mode == "dra" else ""
        what = f"{name} has no shares{' but ' + by if by else ': its GPUs are whole'}"
        fix = f"write gpus: {request.shares}, or choose a pool that shares its GPUs"
        return _wrong(request, "shares", what, str(request.shares), "gpus", fix)
    return None


def _most(quota: Quota | None, total: int) -> int:
    """Return how much of a pool's resource a team can ever use."""
    if quota is None:
        return 0
    return total if quota.borrow is None else min(total, quota.guaranteed + quota.borrow)


def _no_framework(args: JobsArgs, request: Request, pools: Iterable[str]) -> Problem:
    has = [
        f"{build.name}-{build.version} of {pool}"
        for pool in pools
        for build in args.pools[pool].frameworks
    ]
    several = [pool for pool in pools if args.pools[pool].build(request.framework)]
    what = "several pools have this framework" if several else "pool does not have this framework"
    allowed = ", ".join(has) or "none: bedplate_frameworks of the site names none for them"
    fix = "write pool" if several else "choose one of them, or add it to bedplate_frameworks"
    return _wrong(request, "framework", what, str(request.framework), allowed, fix)


def _unknown(request: Request, key: str, what: str, got: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    close = names[0] if len(names) == 1 else nearest(got, names)
    fix = f"write {close}" if close else "choose one of them" if names else ""
    return _wrong(request, key, what, got, ", ".join(names) or "none", fix)


def _wrong(request: Request, key: str, what: str, got: str, allowed: str, fix: str) -> Problem:
    place = f"{request.name}.{key}"
    return Problem(what, key=place, got=got, allowed=allowed, fix=fix, rule="training-job")
