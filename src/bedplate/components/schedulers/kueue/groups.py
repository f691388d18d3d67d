"""Groups of pods: each pod is counted by what it asks for.

Which pods of a group are alike Kueue finds itself, and writes into an annotation of its own. What a
pod has there when it is made is removed before Kueue's webhook reads it, and later nobody but Kueue
changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.common import cel
from bedplate.components.schedulers.kueue import devices
from bedplate.components.schedulers.kueue.admission import (
    CREATE,
    NAMESPACE,
    UPDATE,
    mutation,
    policy,
)
from bedplate.components.schedulers.kueue.objects import CONTROLLER, Object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.components.schedulers.kueue.args import QueuesArgs

NAME: Final = "bedplate-groups-by-pods"
ROLE: Final = "kueue.x-k8s.io/role-hash"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_PODS: Final = (("", "v1", ("pods",)),)
_ROLE_OF: Final = f".metadata.?annotations[?'{ROLE}']"


def objects(args: QueuesArgs) -> Iterator[Object]:
    """Yield the policies. Where the API server changes nothing, GPUs are for single pods."""
    if args.mutating_api is None:
        yield from policy(
            NAME,
            "Pods with GPUs are in no group: here nothing keeps Kueue's annotation for Kueue.",
            _PODS,
            CREATE,
            {
                f"!({devices.gpus('object.spec', args)}) || "
                f"!object.metadata.?labels[?'{GROUP}'].hasValue()": cel.message(
                    "pod with GPUs in a group",
                    NAMESPACE,
                    f"{GROUP}: {{object.metadata.labels['{GROUP}']}}",
                    "single pods, before Kubernetes 1.36",
                    "submit a Job, or a JobSet",
                )
            },
        )
        return
    about = "Which pods of a group are alike is for Kueue to find and to write."
    place = f"/metadata/annotations/{ROLE.replace('/', '~1')}"
    removed = {"expression": f"[JSONPatch{{op: 'remove', path: '{place}'}}]"}
    yield from mutation(
        NAME,
        about,
        _PODS,
        CREATE,
        {"patchType": "JSONPatch", "jsonPatch": removed},
        {"says-it": f"object{_ROLE_OF}.hasValue()"},
        version=args.mutating_api,
    )
    yield from policy(
        NAME,
        about,
        _PODS,
        UPDATE,
        {
            f"request.userInfo.username == '{CONTROLLER}' || "
            f"object{_ROLE_OF} == oldObject{_ROLE_OF}": cel.message(
                "pod {object.metadata.name} changes what Kueue writes",
                NAMESPACE,
                f"another {ROLE}",
                "that of Kueue",
                "leave the annotation as it is",
            )
        },
    )
