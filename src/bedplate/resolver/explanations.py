"""The words of a refusal. Which settings are refused is in the rules, not here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bedplate.common.errors import Problem
from bedplate.common.nearest import meant, models_like, pasted, write_one
from bedplate.common.versions import natural, parts
from bedplate.resolver.conflicts import CONTRADICTION, given_with_mode
from bedplate.resolver.mig_layouts import shapes_of
from bedplate.site.places import spelt
from bedplate.site.sought import elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedplate.resolver.candidates import Candidates
    from bedplate.resolver.conflicts import Conflict
    from bedplate.resolver.wishes import Wish
    from bedplate.site import SiteHost

#: Kinds of wishes that are versions: texts in YAML, also where they look like a number.
VERSIONS = {"kubernetes", "cuda", "branch", "pin"}
WHAT = {
    "accelerator-known": "unknown accelerator, or one among others",
    "addon-driver": "add-on needs a newer driver",
    "addon-excludes": "add-ons exclude each other",
    "addon-known": "unknown add-on",
    "addon-kubernetes": "add-on does not go with this Kubernetes",
    "addon-needs": "add-on needs another one",
    "branch-known": "unknown driver branch",
    "cgroup-v1": "Kubernetes refuses cgroup v1",
    "component-driver": "component needs a newer driver",
    "component-kubernetes": "component does not go with this Kubernetes",
    "configuration-decided": "another setting decides this",
    "configuration-field": "component has no such setting",
    "configuration-value": "component does not take this value",
    "control-plane": "control plane cannot keep a quorum",
    "course-cpu-build": "course has no use for this build for CPUs",
    "course-data": "course has no such data",
    "course-fit": "not all students find room at once",
    "course-image": "no registry has the image of the course's framework",
    "course-own-image": "course cannot start this image",
    "course-pool": "course is in no such pool",
    "course-pools": "course cannot be in all these pools",
    "course-registry": "course's registry needs the hub's certificate",
    "course-share": "pool has no such share",
    "cuda-driver": "driver is too old for this CUDA",
    "cuda-gpu": "CUDA toolkit does not compile for the GPU",
    "cuda-known": "unknown CUDA toolkit",
    "cuda-twice": "two CUDA toolkits in one place",
    "docker-kubernetes": "Docker and Podman run no pods",
    "docker-shares": "Docker gives GPUs to containers whole or by MIG alone",
    "driver-packaged": "no package brings such a driver",
    "endpoint-address": "endpoint is no address that control planes can share",
    "endpoint-is-host": "endpoint is a host outside of the control plane",
    "fabric-packaged": "no package at the driver's version for what the GPUs' fabric needs",
    "framework-driver": "driver is too old for this framework's CUDA",
    "framework-gpu": "framework was not compiled for the GPU",
    "framework-known": "unknown framework",
    "gpu-branch": "driver branch does not drive the GPU",
    "gpu-count": "pool's GPUs cannot be counted",
    "gpu-flavour": "kernel module flavour does not drive the GPU",
    "gpu-known": "unknown GPU",
    "gpu-qualified": "driver is older than the first one for the GPU",
    "guest-os": "system is not supported as a guest",
    "guests": "guests and hosts of pools do not match",
    "hypervisor-bare": "hypervisor and guest are mixed up",
    "image-pool": "image names an unknown pool",
    "image-runs": "image does not run in its pool",
    "iommu-groups": "GPU cannot be passed through alone",
    "isolation": "sharing mode isolates less than asked for",
    "kernel-headers": "kernel has no headers, or no precompiled module",
    "kernel-known": "kernel's name is that of another system",
    "kernel-of-system": "kernel belongs to another system",
    "known-bad": "this combination was reported as broken",
    "kubernetes-known": "unknown Kubernetes version",
    "login-nowhere": "login has no server",
    "login-unencrypted": "login to an address that is not encrypted",
    "mig-geometry": "GPU has no such MIG profile",
    "mirror-half": "mirror needs a server of files and a registry",
    "mirror-two": "mirror has two addresses",
    "mirror-url": "mirror has no address",
    "mps-clients": "too many MPS clients on a GPU",
    "node-address": "node cannot have this address",
    "node-needs": "node's kernel or version of control groups is too old",
    "own-runtime": "container runtime cannot use servers of the site's own",
    "pin-known": "pinned version or component is unknown",
    "port-taken": "another program uses this port",
    "preset-cluster": "preset is for another kind of site",
    "preset-extender": "two schedulers would place shares of GPUs",
    "preset-gang": "no scheduler starts the pods of a workload together",
    "preset-queue": "values of the queue contradict each other",
    "preset-topology": "topology of the hosts is unknown",
    "rdma-path": "GPU and network card have no such path",
    "resource-owner": "GPUs have two owners",
    "runtime-cdi": "container runtime cannot give GPUs to containers by CDI",
    "runtime-kubernetes": "container runtime does not go with this Kubernetes",
    "runtime-packaged": "container runtime is packaged for another system",
    "runtime-unused": "no host of the site gets this container runtime",
    "secure-boot": "Secure Boot does not load an unsigned module",
    "share-divides": "shares do not add up",
    "sharing-cards": "this sharing mode cannot be set for single GPUs",
    "sharing-parameters": "sharing mode and its parameters do not go together",
    "sharing-scheduler": "sharing mode needs its scheduler",
    "slurm-models": "node of Slurm has GPUs of several models",
    "slurm-or-kubernetes": "host is in Slurm and asked to share as in Kubernetes",
    "subnet-family": "addresses are of two IP families",
    "subnet-nodes": "pod network has no room for all nodes",
    "subnet-overlap": "address lies in the cluster's own networks",
    "subnet-size": "subnet cannot be used for a cluster",
    "system-known": "unknown operating system",
    "taints-leave-room": "taints leave no node for the cluster's own pods",
    "team-claims": "team has a quota of GPUs that its scheduler does not see",
    "team-container": "default of a team's containers is above their limit",
    "team-guarantee": "teams are guaranteed more than there is",
    "team-namespace": "namespace is not the team's own",
    "team-person": "nothing counts what one person of a team has",
    "team-pool": "team's quota names an unknown pool",
    "team-queue": "teams have no queue",
    "team-size": "team's quota names a size that the pool does not have",
    "timezone-known": "unknown time zone",
    "topology-nested": "a part of the topology has two parents",
    "upstream-url": "address without a mirror",
    "vgpu-driver": "shares of GPUs need the vGPU guest driver",
    "vgpu-manager": "vGPU manager and guest driver do not go together",
    CONTRADICTION: "settings contradict each other",
}
#: What helps beside changing the blamed wish.
BESIDE = {
    "addon-needs": "add the one that it needs",
    "cgroup-v1": "set bedplate_kubernetes.kubelet.failCgroupV1: false, and add SystemVerification "
    "to bedplate_kubernetes.ignore_preflight",
    "gpu-branch": "give each model a pool of its own",
    "gpu-flavour": "give each model a pool of its own",
    "secure-boot": "enrol a machine owner's key and write module_signing: mok",
    "sharing-scheduler": "add hami to bedplate_schedulers",
}


def refused(
    rule: str,
    host: SiteHost,
    path: Sequence[str | int],
    got: str,
    allowed: str,
    fix: str,
    sources: Iterable[str] = (),
) -> Problem:
    """Return the refusal of a wish, at the wish's place."""
    written: Sequence[str | int] = path
    if path[:1] == ("bedplate_gpu",) and tuple(path[:2]) not in host.places.known:
        written = (path[0], *path[2:])
    place = host.places.of(written)
    return Problem(
        WHAT[rule],
        place.file,
        place.line,
        place.column,
        spelt(written),
        got,
        allowed,
        fix,
        rule,
        tuple(sources),
    )


def unknown(
    rule: str, host: SiteHost, path: Sequence[str | int], got: str, known: Iterable[str]
) -> Problem:
    """Return the refusal of a name that the catalogue does not have."""
    names = sorted(set(known), key=natural)
    close = meant(got, names)
    shown = ", ".join(names[:MANY]) + (
        f" and {len(names) - MANY} more" if len(names) > MANY else ""
    )
    fix = write_one(got, close or names) if names else "remove it"
    if rule in {"addon-known", "framework-known"}:
        bare = re.sub(r"-[\d.]+$", "", got)  # a name may carry a version
        named = None if close else elsewhere(bare)
        fix = named[2] if named and named[0] else fix
        fix = f"write {bare}: {NEWEST}" if close and close[0].startswith(f"{bare}-") else fix
    elif close and rule in {"branch-known", "pin-known"} and parts(got)[:1] != parts(close[0])[:1]:
        fix = f"remove it: {NEWEST}"
    return refused(rule, host, path, got, shown or "none is known", fix)


def unknown_accelerator(
    host: SiteHost, path: Sequence[str | int], got: str, models: Iterable[str]
) -> Problem:
    """Return the refusal of an accelerator that its maker has not: never other hardware."""
    names = sorted(models)
    begun = [name for name in names if name.startswith(got) or name.endswith(f"-{got}")]
    close = models_like(got, names) or begun
    fix = write_one(got, close) if close else "use one of these"
    allowed = ", ".join(close or names)
    return refused("accelerator-known", host, path, got, allowed, fix)


MANY = 24
#: What is proposed in place of a version that is not there, where any other may fit no better.
NEWEST = "the plan takes the newest compatible version"


def explained(conflict: Conflict, candidates: Candidates) -> Problem:
    """Return a conflict as a problem at the wish that is easiest to change."""
    wish = conflict.blamed
    others = [_told(other) for other in conflict.wishes if other != wish]
    got = wish.label + (f" with {', '.join(others)}" if others else "")
    facts = [candidates.facts[one] for one in conflict.facts if one in candidates.facts]
    if conflict.rule == "mig-geometry":
        # The GPU's own fact says nothing about MIG.
        models = [other.model.value.model for other in conflict.wishes if other.model is not None]
        shapes = [shapes_of(model, candidates.catalogue).values() for model in models]
        facts = [shape for some in shapes for shape in some] or facts
    elif conflict.rule == "fabric-packaged" and facts:
        needs = dict.fromkeys(name for fact in facts for name in fact.value.packages)
        got += f", whose fabric needs {', '.join(needs)}"
    elif conflict.rule == "node-needs":
        needs = dict.fromkeys(f"{fact.value.of} needs {fact.value.asks}" for fact in facts)
        got += f": {', '.join(needs)}"
    if reasons := [fact.reason.rstrip(".") for fact in facts if fact.id.startswith("bad/")]:
        got += f" ({'; '.join(reasons)})"
    sources = dict.fromkeys(fact.source.url for fact in facts)
    shown = _short(conflict.allowed) or conflict.instead or "nothing next to the others"
    if wish.kind == "sharing" and shown == "none":
        shown = "mode none, which gives whole GPUs"
    fix = _fix(conflict)
    checks = dict.fromkeys(getattr(fact.value, "check", None) for fact in facts)
    if conflict.rule == "node-needs" and (ignored := ", ".join(filter(None, checks))):
        fix = f"add {ignored} to bedplate_kubernetes.ignore_preflight, or {fix}"
    return refused(conflict.rule, wish.host, wish.path, got, shown, fix, sorted(sources))


def _short(allowed: Sequence[str]) -> str:
    shown = ", ".join(allowed[-MANY:])
    return f"{shown} and {len(allowed) - MANY} others" if len(allowed) > MANY else shown


def _told(wish: Wish) -> str:
    return f"{spelt(wish.path).removeprefix('bedplate_')} {wish.label}"


def _without_sharing(host: SiteHost) -> str:
    """Return how to have whole GPUs: the mode, and which of its settings it has no use for."""
    given = given_with_mode(host)
    if not given:
        return "write mode: none"
    last_ = f"{', '.join(given[:-1])} and {given[-1]}" if given[1:] else given[0]
    return f"write mode: none, and remove {last_}"


def _pasted(wish: Wish, label: str) -> str:
    return pasted(label) if wish.kind in VERSIONS else label


def _fix(conflict: Conflict) -> str:
    wish, rule = conflict.blamed, conflict.rule
    beside = BESIDE.get(rule)
    if wish.kind == "gpu":
        return "give each model a pool of its own" if conflict.wishes[1:] else "remove it"
    if wish.kind == "sharing" and conflict.instead == "none":
        main = _without_sharing(wish.host)
        if conflict.elsewhere is not None:
            other, label = conflict.elsewhere
            written = _pasted(other, label)
            main = f"write {written} for {spelt(other.path)}, or {main.removeprefix('write ')}"
    elif conflict.instead is not None:
        main = f"write {_pasted(wish, conflict.instead)}"
    elif wish.kind == "secure_boot":
        main = "turn Secure Boot off"
    elif conflict.elsewhere is not None:
        other, label = conflict.elsewhere
        main = f"remove it, or write {_pasted(other, label)} for {spelt(other.path)}"
    else:
        main = "remove it"
    one_board = sum(other.kind == "gpu" for other in conflict.wishes) <= 1
    if beside is None or (rule.startswith("gpu-") and one_board):
        return main
    return f"{beside}, or {main}"
