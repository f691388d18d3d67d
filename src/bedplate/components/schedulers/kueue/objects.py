"""What Kueue's objects have in common: names, labels, and a sentence about each."""

from __future__ import annotations

from typing import Any, Final

from bedplate.components.refs import MANAGED

Object = dict[str, Any]

API: Final = "kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "kueue-system"
#: Who the controller is to the API server: only it may admit.
CONTROLLER: Final = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
#: Who makes the pods of Jobs.
JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
#: The hub, which makes students' pods.
HUB_ACCOUNT: Final = "system:serviceaccount:bedplate-hub:hub"
COHORT: Final = "bedplate"
#: Kueue gives the queue of this name to what names none, so that manifests stay as they are.
QUEUE: Final = "default"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
TEAM_LABEL: Final = "bedplate.io/team"
ABOUT: Final = "bedplate.io/about"


def made(
    kind: str,
    name: str,
    about: str,
    *,
    version: str = API,
    namespace: str | None = None,
    labels: dict[str, str] | None = None,
    **content: Any,
) -> Object:
    """Return an object with our label and a sentence that `kubectl describe` shows."""
    metadata: Object = {
        "name": name,
        "labels": {**MANAGED, **(labels or {})},
        "annotations": {ABOUT: about},
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
