"""DRA's classes of devices: whole GPUs, shares by memory, and the guard that limits shares.

A share is counted by the scheduler. Limited it is where nodes have cgroup v2, a driver with
`nvmlDeviceSetMemoryLimits` and a DRA driver whose CDI edits carry the container toolkit's hook for
it (1.20.1): the hook takes the limit from the container's environment, and these admission policies
alone write it there. The DRA driver 0.5.0 has the toolkit's 1.20.0, without the hook: a plan with
*limited* shares is not installed until a newer one does. Off unless the lock says *limited*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import pulumi

from bedplate.common import cel
from bedplate.components.cluster.manifest import token
from bedplate.components.refs import MANAGED
from bedplate.portable.dra import DRIVER, IMPLICIT
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from bedplate.lock import Lock

#: Whole GPUs, by claims and by the extended resource of existing manifests.
WHOLE = "gpu.nvidia.com"
#: Shares of a GPU by memory. Another class than that of whole GPUs: Kueue counts a class by devices
#: or by its capacity, and not by both.
SHARE = "gpu-memory.nvidia.com"
EXTENDED_RESOURCE = "nvidia.com/gpu"
#: What the container toolkit's hook reads, in MiB.
LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
SOFT_LIMIT = "NVIDIA_GPU_MEMORY_REQUEST"
#: Who makes claims for pods: by templates, and for the extended resource.
CLAIM_MAKERS = (
    "system:serviceaccount:kube-system:resource-claim-controller",
    "system:kube-controller-manager",
    "system:kube-scheduler",
)
_SIZE = "-[0-9]+[gm]i$"
_SELECTOR = (
    f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"  # no MIG device
)


class DraArgs(TypedDict):
    """Inputs of a Dra."""

    limited: bool
    """Whether admission writes and guards the memory limit of a container's share."""


class Dra(pulumi.ComponentResource):  # type: ignore[misc]
    """The classes by which pods claim GPUs of NVIDIA's DRA driver."""

    def __init__(
        self, name: str, args: DraArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Dra", name, None, opts)
        for found in objects(limited=args["limited"]):
            kind, called = found["kind"].lower(), found["metadata"]["name"]
            below = pulumi.ResourceOptions(parent=self)
            pulumi.CustomResource(token(found), f"{name}-{kind}-{called}", found, below)
        self.register_outputs({})


def dra_args(lock: Lock) -> DraArgs | None:
    """Return what a lock's pools of mode dra need; None without such a pool."""
    pools = [pool for pool in lock.pools.values() if pool.sharing.mode == "dra"]
    if not pools:
        return None
    return {"limited": any(pool.sharing.memory == "limited" for pool in pools)}


def objects(*, limited: bool) -> list[dict[str, Any]]:
    """Return the classes, and with them the policies that limit shares."""
    found = [
        _class(
            WHOLE,
            "Whole GPUs: each claim takes one alone, and so does limits nvidia.com/gpu.",
            extendedResourceName=EXTENDED_RESOURCE,
        ),
        _class(
            SHARE,
            "Shares of a GPU by memory (capacity.requests.memory), of any size side by side.",
        ),
    ]
    return found + (_guard() if limited else [])


def _object(version: str, kind: str, name: str, text: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": dict(MANAGED),
        "annotations": {"kubernetes.io/description": text},
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _class(name: str, text: str, **more: Any) -> dict[str, Any]:
    spec = {"selectors": [{"cel": {"expression": _SELECTOR}}], **more}
    return _object("resource.k8s.io/v1", "DeviceClass", name, text, spec)


# The share's size stands in the name of the template, whose size is that of its name and stays so.
# The CEL of a pod's admission sees the pod alone, and a template may come after its pod, or be
# deleted and made again with another size before the claim is.
_OF_CLAIM = (
    "has(c.resourceClaimTemplateName) ? c.resourceClaimTemplateName :"
    " has(c.resourceClaimName) ? c.resourceClaimName : ''"
)


def _mebibytes(name: str) -> str:
    """CEL: the size that a name ends with, in MiB; such as 8192 of share-8gi."""
    size = f"{name}.find('{_SIZE}').substring(1).replace('gi', 'Gi').replace('mi', 'Mi')"
    return f"quantity({size}).asInteger() / 1048576"


def _sizes(container: str) -> str:
    """CEL: the sizes in MiB of the shares that a container has, one for each of its claims."""
    named = f"{container}.resources.claims.exists(u, u.name == c.name)"
    return (
        f"(has({container}.resources) && has({container}.resources.claims) &&"
        f" has(object.spec.resourceClaims) ?"
        f" object.spec.resourceClaims.filter(c, {named}).map(c, {_OF_CLAIM})"
        f".filter(n, n.matches('{_SIZE}')).map(n, {_mebibytes('n')}) : [])"
    )


def _containers(kind: str) -> str:
    return f"(has(object.spec.{kind}) ? object.spec.{kind} : [])"


def _guard() -> list[dict[str, Any]]:
    return [
        *_writes_limits(),
        *_keeps_limits(),
        *_sized("ResourceClaimTemplate", "spec.spec"),
        *_sized("ResourceClaim", "spec"),
    ]


def _rules(group: str, resource: str) -> dict[str, Any]:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [resource],
    }
    return {"resourceRules": [rule]}


def _bound(kind: str, name: str, text: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a policy and the binding that puts it in force everywhere."""
    version = "admissionregistration.k8s.io/v1"
    binding: dict[str, Any] = {"policyName": name}
    if kind == "ValidatingAdmissionPolicy":
        binding["validationActions"] = ["Deny"]
    return [
        _object(version, kind, name, text, {"failurePolicy": "Fail", **spec}),
        _object(version, f"{kind}Binding", name, text, binding),
    ]


def _writes_limits() -> list[dict[str, Any]]:
    def added(kind: str) -> str:
        """CEL: the containers that have a share and say no limit, each with that limit alone."""
        where = f"Object.spec.{kind}"
        without = f"!has(c0.env) || !c0.env.exists(e, e.name == '{LIMIT}')"
        return (
            f"{kind}: {_containers(kind)}"
            f".filter(c0, {_sizes('c0')}.size() > 0 && ({without}))"
            f".map(c0, {where}{{name: c0.name, env: [{where}.env{{name: '{LIMIT}',"
            f" value: string({_sizes('c0')}[0])}}]}})"
        )

    expression = f"Object{{spec: Object.spec{{{added('containers')}, {added('initContainers')}}}}}"
    return _bound(
        "MutatingAdmissionPolicy",
        "gpu-memory-limit",
        "Writes the memory limit of a container's share of a GPU into its environment.",
        {
            "matchConstraints": _rules("", "pods"),
            "matchConditions": [
                {"name": "claims", "expression": "has(object.spec.resourceClaims)"}
            ],
            "reinvocationPolicy": "IfNeeded",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression},
                }
            ],
        },
    )


def _keeps_limits() -> list[dict[str, Any]]:
    every = f"({_containers('containers')} + {_containers('initContainers')})"
    limits = f"(has(k.env) ? k.env.filter(e, e.name in ['{LIMIT}', '{SOFT_LIMIT}']) : [])"
    sizes = _sizes("k")
    right = (
        f"{limits}.size() == 1 && {limits}[0].name == '{LIMIT}' && has({limits}[0].value)"
        f" && {limits}[0].value == string({sizes}[0])"
    )
    wrong = f"{every}.filter(k, !({sizes}.size() == 0 ? {limits}.size() == 0 : {right}))"
    # Of a share by its class' own resource the scheduler makes the claim, without any size.
    unsized = " || ".join(
        f"'{IMPLICIT}{SHARE}' in k.?resources.?{kind}.orValue({{}})"
        for kind in ("limits", "requests")
    )
    return _bound(
        "ValidatingAdmissionPolicy",
        "gpu-memory-limit",
        "Refuses a pod with a memory limit of its own, or with shares of different or no size.",
        {
            "matchConstraints": _rules("", "pods"),
            "variables": [
                {
                    "name": "wrong",
                    "expression": f"{wrong}.map(k, k.name)",
                },
                {
                    "name": "mixed",
                    "expression": f"{every}.filter(k, {sizes}.exists(s, s != {sizes}[0]))"
                    ".map(k, k.name)",
                },
                {"name": "unsized", "expression": f"{every}.filter(k, {unsized}).map(k, k.name)"},
            ],
            "validations": [
                {
                    "expression": "variables.unsized.size() == 0",
                    "messageExpression": cel.message(
                        "a share of a GPU without a size",
                        "containers {variables.unsized.join(', ')}",
                        f"{IMPLICIT}{SHARE}",
                        "claims, which name their memory",
                        f"name a claim's template, or ask for a whole GPU by {EXTENDED_RESOURCE}",
                    ),
                },
                {
                    "expression": "variables.mixed.size() == 0",
                    "messageExpression": cel.message(
                        "the shares of a container differ in size",
                        "containers {variables.mixed.join(', ')}",
                        None,
                        "shares of one size, for the limit is one",
                        "name templates of one size",
                    ),
                },
                {
                    "expression": "variables.wrong.size() == 0",
                    "messageExpression": cel.message(
                        "a container says its own GPU memory limit",
                        "containers {variables.wrong.join(', ')}",
                        f"{LIMIT} or {SOFT_LIMIT}",
                        "the limit that the share has by its name, which is written automatically",
                        "remove the variables",
                    ),
                },
            ],
        },
    )


def _sized(kind: str, path: str) -> list[dict[str, Any]]:
    """Return the policy by which the name of a claim or template says the size of its shares."""
    devices = f"object.{path}.devices"
    classes = f"['{WHOLE}', '{SHARE}']"
    of_gpus = (
        f"has(r.exactly) ? r.exactly.deviceClassName in {classes} :"
        f" has(r.firstAvailable) && r.firstAvailable.exists(s, s.deviceClassName in {classes})"
    )
    sized = (
        "has(r.exactly.capacity) && has(r.exactly.capacity.requests)"
        " && 'memory' in r.exactly.capacity.requests"
    )
    asked = "quantity(r.exactly.capacity.requests['memory']).asInteger()"
    named = f"object.metadata.name.matches('{_SIZE}')"
    same = f"{named} && {asked} == ({_mebibytes('object.metadata.name')}) * 1048576"
    whole = f"r.exactly.deviceClassName == '{WHOLE}' && !{named}"
    makers = ", ".join(f"'{name}'" for name in CLAIM_MAKERS)
    return _bound(
        "ValidatingAdmissionPolicy",
        f"gpu-memory-of-{kind.lower()}s",
        f"The name of a {kind} ends with the memory of its share, such as -8gi.",
        {
            "matchConstraints": _rules("resource.k8s.io", f"{kind.lower()}s"),
            "matchConditions": [
                {"name": "by-users", "expression": f"!(request.userInfo.username in [{makers}])"}
            ],
            "variables": [
                {
                    "name": "requests",
                    "expression": f"has({devices}) && has({devices}.requests) ?"
                    f" {devices}.requests.filter(r, {of_gpus}) : []",
                }
            ],
            "validations": [
                {
                    "expression": "variables.requests.all(r, has(r.exactly))",
                    "message": problem(
                        "a choice of devices has no one size",
                        "firstAvailable",
                        None,
                        "`exactly`, where shares of GPUs are limited",
                        "ask for one device class",
                    ),
                },
                {
                    "expression": "variables.requests.all(r, has(r.exactly) &&"
                    f" (({sized}) ? ({same}) : ({whole})))",
                    "messageExpression": cel.message(
                        "the name does not say the size of the share",
                        "{object.metadata.name}",
                        None,
                        "a name that ends with the memory that each request asks for, such as"
                        " share-8gi of capacity.requests.memory 8Gi; a whole GPU of class"
                        f" {WHOLE} has a name without a size",
                        "rename it",
                    ),
                },
            ],
        },
    )
