"""Ways to a device: those that a team's queue counts, and the others, which are refused.

Kueue counts the resources that its queues name, and ignores every other name, also next to one that
it counts (`quotaCheckStrategy: IgnoreUndeclared`). But Kubernetes 1.36 has several names for one
GPU: of k8s.io/api see `ResourceDeviceClassPrefix` and `DeviceClassSpec.ExtendedResourceName` in
resource/v1. docs/sharing.md lists every way. The policy of pods is the one that protects; those of
templates give who submits the same answer at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bedplate.common import cel
from bedplate.components.schedulers import jobset
from bedplate.components.schedulers.dra import CLAIM_MAKERS
from bedplate.components.schedulers.kueue import claims
from bedplate.components.schedulers.kueue.admission import BOTH, CREATE, NAMESPACE, policy
from bedplate.components.schedulers.kueue.objects import (
    CONTROLLER,
    HUB_ACCOUNT,
    JOB_CONTROLLER,
    QUEUE,
    TEAM_LABEL,
    Object,
)
from bedplate.components.schedulers.kueue.users import SYSTEM
from bedplate.portable.dra import IMPLICIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.components.schedulers.kueue.args import QueuesArgs

#: Every kind that has specifications of pods, each as (API group, versions, resources), and in CEL
#: the list of them. A test compares it with what the API server and the charts define.
TEMPLATES: Final = (
    ("", (("", "v1", ("pods",)),), "[{0}.spec]"),
    (
        "-of-templates",
        (
            ("batch", "v1", ("jobs",)),
            ("apps", "v1", ("deployments", "statefulsets", "replicasets", "daemonsets")),
            ("", "v1", ("replicationcontrollers",)),
        ),
        "[{0}.spec.template.spec]",
    ),
    ("-of-pod-templates", (("", "v1", ("podtemplates",)),), "[{0}.template.spec]"),
    (
        "-of-cron-jobs",
        (("batch", "v1", ("cronjobs",)),),
        "[{0}.spec.jobTemplate.spec.template.spec]",
    ),
    (
        "-of-job-sets",
        (("jobset.x-k8s.io", "*", ("jobsets",)),),
        "{0}.spec.?replicatedJobs.orValue([]).map(j, j.template.spec.template.spec)",
    ),
    (
        "-of-volcano-jobs",
        (("batch.volcano.sh", "*", ("jobs",)),),
        "{0}.spec.?tasks.orValue([]).map(t, t.template.spec)",
    ),
)
#: GPUs' names by NVIDIA's device plugin and by packing: a queue counts those that a pool offers.
_GPU: Final = r"^(nvidia[.]com/(gpu|mig-)|bedplate[.]io/gpu-milli$)"
_CONTAINERS: Final = "({0}.?containers.orValue([]) + {0}.?initContainers.orValue([]))"
_SIDECARS: Final = (
    "{0}.?initContainers.orValue([]).filter(c, c.?restartPolicy.orValue('') == 'Always')"
)
#: Devices by annotation, which CRI-O and NVIDIA's runtime read.
_BY_ANNOTATION: Final = "cdi.k8s.io/"
#: What a specification asks for.
_ASKED: Final = (
    "s.?resourceClaims",
    *(f"s.?{one}.orValue([]).map(c, c.?resources)" for one in ("containers", "initContainers")),
)
#: A Job that waits may be given more pods; of other kinds each pod is judged.
_GROWS: Final = "object.spec.?parallelism.orValue(1) > oldObject.spec.?parallelism.orValue(1)"
#: Who may change queues may use them: administrators, and no member of a team.
_ADMINISTERS: Final = (
    "authorizer.group('kueue.x-k8s.io').resource('clusterqueues').check('update').allowed()"
)
_KIND: Final = "{request.kind.kind.lowerAscii()}"
_BY_CLASS: Final = f"{_KIND} asks for devices by a device class"
_INSTEAD: Final = f"ask for GPUs by the resource, which the queue {QUEUE} counts"


def gpus(spec: str, args: QueuesArgs) -> str:
    """Return the expression that says whether a pod's specification asks for GPUs.

    Claims count where courses have some; elsewhere they are refused.
    """
    domains = sorted({resource.partition("/")[0] for resource in args.resources})
    one = " || ".join(f"r.startsWith('{domain}/')" for domain in domains) or "false"
    claimed = f" || {claims.asks(spec)}" if args.claiming else ""
    return f"{_asks(_CONTAINERS.format(spec), one)}{claimed}"


def _asks(containers: str, name: str) -> str:
    """CEL: whether containers ask for a resource `r` of which `name` is true."""
    return f"{containers}.exists(c, {_asking(name)})"


def _asking(name: str) -> str:
    """CEL: whether a container `c` does. Of names in kubernetes.io requests need no limits."""
    return " || ".join(
        f"c.?resources.?{kind}.orValue({{}}).exists(r, {name})" for kind in ("limits", "requests")
    )


def objects(args: QueuesArgs) -> Iterator[Object]:
    """Yield the policies: what no queue counts is refused in pods and in every template of them."""
    names = args.resources
    for suffix, kinds, path in TEMPLATES:
        of_pods = not suffix
        new, old = path.format("object"), path.format("oldObject")
        same = " && ".join(f"{old}.map(s, {one}) == {new}.map(s, {one})" for one in _ASKED)
        # What was there before goes on: controllers have to be able to end it.
        more = f" || {_GROWS}" if args.courses else ""
        conditions = {"asks-for-something-else": f"oldObject == null || !({same}){more}"}
        yield from policy(
            f"bedplate-counted-devices{suffix}",
            "Devices are asked for by the resources that the team's queue counts.",
            kinds,
            CREATE if of_pods else BOTH,
            {
                **_claims(args, of_pods=of_pods),
                **_of_courses(args),
                **_names(names),
                **(_annotated() if of_pods else {}),
            },
            variables={"specs": new},
            conditions={} if of_pods else conditions,
        )
        # Classes have names of resources in the releases of Kubernetes that have the other API.
        if args.mutating_api is not None:
            yield from policy(
                f"bedplate-counted-classes{suffix}",
                "Of the resources that a class of devices declares, the queue counts each.",
                kinds,
                CREATE if of_pods else BOTH,
                _of_class(names),
                variables={"specs": new, "name": "params.spec.?extendedResourceName.orValue('')"},
                conditions={} if of_pods else conditions,
                params={"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"},
            )
    yield from policy(
        "bedplate-made-claims",
        "Claims are made by the cluster, for pods that were counted.",
        (("resource.k8s.io", "*", ("resourceclaims",)),),
        CREATE,
        {
            f"request.userInfo.username in {json.dumps(CLAIM_MAKERS)}": cel.message(
                "a claim that is made by hand",
                NAMESPACE,
                "ResourceClaim {object.metadata.name}",
                ", ".join(names),
                _INSTEAD,
            )
        },
    )


def _claims(args: QueuesArgs, *, of_pods: bool) -> dict[str, str]:
    """Return who may claim: where courses do, the hub for their students, and nothing else.

    Pods of the hub's Jobs are made by the controller, which makes those of anybody's: so Jobs with
    claims are the hub's alone.
    """
    asking = f"variables.specs.filter(s, {claims.asks('s')})"
    allowed, fix = "", "ask for GPUs by the resource: the queue does not count claims"
    if args.claiming:
        makers = json.dumps([HUB_ACCOUNT, *([JOB_CONTROLLER] if of_pods else [])])
        right = f"variables.specs.all(s, {claims.by_template(args, 's')})"
        allowed = f" || (request.userInfo.username in {makers} && {right})"
        fix = "ask for GPUs by the resource, or in the hub: it alone claims, for its students"
    return {
        f"{asking}.size() == 0{allowed}": cel.message(
            f"{_KIND} with resource claims",
            NAMESPACE,
            f"{{{asking}[0].resourceClaims[0].name}}",
            ", ".join(args.resources),
            fix,
        )
    }


def _of_courses(args: QueuesArgs) -> dict[str, str]:
    """Return who asks for GPUs in a course's namespace: the hub, which counts them by person.

    What controllers make follows from what was judged before.
    """
    if not args.courses:
        return {}
    team = f"namespaceObject.metadata.labels[?'{TEAM_LABEL}'].orValue('')"
    known = json.dumps([HUB_ACCOUNT, CONTROLLER, jobset.CONTROLLER])
    user = "request.userInfo.username"
    allowed = (
        f"!({team} in {json.dumps(sorted(args.courses))})",
        f"!variables.specs.exists(s, {gpus('s', args)})",
        f"{user} in {known}",
        f"{user}.startsWith('{SYSTEM}')",
        _ADMINISTERS,
    )
    return {
        " || ".join(allowed): cel.message(
            f"{_KIND} with GPUs of a course is not made by the hub",
            NAMESPACE,
            f"{{{user}}}",
            "the hub, which counts the shares of each person",
            "use a notebook of the course, and %share in it; or submit in a team's namespace",
        )
    }


def _names(names: list[str]) -> dict[str, str]:
    """Return what a resource may not be called: by a class, or a GPU that no pool offers."""
    found = {}
    for what, got, name in (
        (_BY_CLASS, f"{IMPLICIT}…", f"r.startsWith('{IMPLICIT}')"),
        (
            f"{_KIND} asks for GPUs that no pool offers",
            None,
            f"r.matches('{_GPU}') && !(r in {json.dumps(names)})",
        ),
    ):
        asks = _asks(_CONTAINERS.format("s"), name)
        said = cel.message(what, NAMESPACE, got, ", ".join(names), _INSTEAD)
        found[f"!variables.specs.exists(s, {asks})"] = said
    return found


def _annotated() -> dict[str, str]:
    named = f"a.startsWith('{_BY_ANNOTATION}')"
    said = cel.message(
        "pod with devices by annotation", NAMESPACE, f"{_BY_ANNOTATION}…", "no such", _INSTEAD
    )
    return {f"!object.metadata.?annotations.orValue({{}}).exists(a, {named})": said}


def _of_class(names: list[str]) -> dict[str, str]:
    """Return what is refused of the resource that a class declares: `variables.name`.

    Of a sidecar and others with such a resource Kueue 0.19 counts the larger number, where the
    scheduler adds them up (kubernetes-sigs/kueue#15983; read in its source). A sidecar alone is
    counted right.
    """
    name = "r == variables.name"
    every, sidecars = _CONTAINERS.format("s"), _SIDECARS.format("s")
    shared = f"{_asks(sidecars, name)} && {every}.filter(c, {_asking(name)}).size() > 1"
    return {
        f"variables.name in {json.dumps(['', *names])} || "
        f"!variables.specs.exists(s, {_asks(every, name)})": cel.message(
            _BY_CLASS,
            NAMESPACE,
            "{variables.name}",
            ", ".join(names),
            _INSTEAD,
        ),
        f"variables.name == '' || !variables.specs.exists(s, {shared})": cel.message(
            f"{_KIND} has GPUs in a sidecar and in another container",
            NAMESPACE,
            "{variables.name} in an init container with restartPolicy Always",
            "one of them, which the queue counts",
            "give all GPUs to one container",
        ),
    }
