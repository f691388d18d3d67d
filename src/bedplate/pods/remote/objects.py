"""What one claim is on the GPU's side, and what its client gets. Pure functions."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping

    from bedplate.pods.remote.certificates import Bundle
    from bedplate.pods.remote.claims import Claim

Object = dict[str, Any]

PORT: Final = 7443
"""Of every front, in its own pod's network."""
NAMESPACE: Final = "bedplate-remote"
#: Who the controller is to the API server.
CONTROLLER: Final = f"system:serviceaccount:{NAMESPACE}:bedplate-remote"
#: A team's engines run here. Its queue is the team's; its members have no rights in it.
TEAM_NAMESPACE: Final = "remote-{}"
CLAIM_LABEL: Final = "bedplate.io/remote-claim"
PROGRAM: Final = "remote.pyz"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
LONGEST_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
NOBODY: Final = 65532
#: Seconds after the front's own end, after which Kubernetes ends the pod whatever it does.
GRACE: Final = 30
FILES: Final = "/etc/bedplate/claim"
SCRATCH: Final = "/var/run/bedplate"
RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True)
class Settings:
    """What a site's fronts have in common.

    Attributes:
        engine: the engine's image, by digest.
        command: how it is started so that it listens on loopback; empty: the image's own.
        engine_port: where it listens.
        python: an image with Python 3.10 or newer as `python3`.
        teams: by a team's namespace, the name of the team.
        resources: what the queues count; nothing else can be claimed.
    """

    engine: str
    python: str
    teams: Mapping[str, str]
    resources: tuple[str, ...]
    command: tuple[str, ...] = ()
    engine_port: int = 14833

    def place(self, claim: Claim) -> str:
        """Return the namespace in which a claim's engine runs."""
        return TEAM_NAMESPACE.format(self.teams[claim.namespace])

    def host(self, claim: Claim) -> str:
        """Return the name by which a claim's front is reached; its certificate has it."""
        return f"{claim.object}.{self.place(claim)}.svc"


def waiting(claim: Claim, settings: Settings) -> list[Object]:
    """Return what exists from the request on: a Job that the queue starts, and the way to it."""
    return [policy(claim, settings), service(claim, settings), job(claim, settings)]


def service(claim: Claim, settings: Settings) -> Object:
    """Return the front's name and address; it leads nowhere before the pod is ready."""
    spec = {
        "selector": {CLAIM_LABEL: claim.uid},
        "ports": [{"name": "tls", "port": PORT, "targetPort": PORT}],
    }
    return _made("v1", "Service", claim, settings, spec=spec)


def policy(claim: Claim, settings: Settings) -> Object:
    """Return who may reach the pod: the claim's namespace and the controller, at the front's port.

    Without a network plug-in that enforces policies this is a wish; the front's own checks hold.
    """

    def namespace(name: str) -> Object:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    spec = {
        "podSelector": {"matchLabels": {CLAIM_LABEL: claim.uid}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [namespace(claim.namespace), namespace(NAMESPACE)],
                "ports": [{"protocol": "TCP", "port": PORT}],
            }
        ],
        "egress": [],
    }
    return _made("networking.k8s.io/v1", "NetworkPolicy", claim, settings, spec=spec)


def job(claim: Claim, settings: Settings) -> Object:
    """Return the Job of engine and front. The engine is a sidecar: the front's end is its end."""
    seconds = claim.limit - int(claim.status.get("usedSeconds", 0))
    engine: Object = {
        "name": "engine",
        "image": settings.engine,
        "restartPolicy": "Always",
        "resources": {"limits": {claim.resource: str(claim.count)}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if settings.command:
        engine["command"] = list(settings.command)
    front = {
        "name": "front",
        "image": settings.python,
        "command": ["python3", "-B", f"{FILES}/{PROGRAM}", "front"],
        "args": [f"--files={FILES}", f"--kept={SCRATCH}", f"--engine-port={settings.engine_port}"],
        "ports": [{"name": "tls", "containerPort": PORT}],
        # Its last words are the claim's message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 5},
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {**RESTRICTED, "runAsNonRoot": True, "runAsUser": NOBODY},
        "volumeMounts": [
            {"name": "claim", "mountPath": FILES, "readOnly": True},
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    }
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"fsGroup": NOBODY, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [engine],
        "containers": [front],
        "volumes": [
            # It is made after admission: until then the pod's containers can't be started.
            {"name": "claim", "secret": {"secretName": claim.object, "defaultMode": 0o440}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    labels = {QUEUE_LABEL: "default", LONGEST_LABEL: str(seconds + GRACE)}
    found = _made("batch/v1", "Job", claim, settings)
    found["metadata"]["labels"] |= labels
    found["spec"] = {
        "suspend": True,
        "backoffLimit": 3,
        "activeDeadlineSeconds": seconds + GRACE,
        "template": {
            "metadata": {"labels": dict(_labels(claim)), "annotations": _asked(claim)},
            "spec": pod,
        },
    }
    return found


def front_secret(
    claim: Claim, settings: Settings, bundle: Bundle, until: datetime.datetime, program: bytes
) -> Object:
    """Return what the front reads. Only the controller can read it, beside the pod itself."""
    data = {
        "ca.crt": bundle.authority,
        "tls.crt": bundle.front.certificate,
        "tls.key": bundle.front.key,
        "claim": claim.uid.encode(),
        "until": str(int(until.timestamp())).encode(),
        PROGRAM: program,
    }
    return _made("v1", "Secret", claim, settings, data=encoded(data))


def client_secret(claim: Claim, settings: Settings, bundle: Bundle, tunnel: bytes) -> Object:
    """Return what the client's pod mounts; it goes with the claim."""
    data = {
        "ca.crt": bundle.authority,
        "tls.crt": bundle.client.certificate,
        "tls.key": bundle.client.key,
        "address": f"{settings.host(claim)}:{PORT}".encode(),
        "tunnel.py": tunnel,
    }
    found = _made("v1", "Secret", claim, settings, data=encoded(data))
    owner = {
        "apiVersion": "bedplate.io/v1alpha1",
        "kind": "RemoteClaim",
        "name": claim.name,
        "uid": claim.uid,
    }
    found["metadata"] |= {
        "name": claim.secret,
        "namespace": claim.namespace,
        "ownerReferences": [owner],
    }
    return found


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Return a Secret's data."""
    return {name: base64.b64encode(content).decode() for name, content in data.items()}


def _labels(claim: Claim) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "bedplate", CLAIM_LABEL: claim.uid}


def _asked(claim: Claim) -> dict[str, str]:
    return {
        "bedplate.io/claim": f"{claim.namespace}/{claim.name}",
        "bedplate.io/user": claim.user,
    }


def _made(version: str, kind: str, claim: Claim, settings: Settings, **content: Any) -> Object:
    metadata = {
        "name": claim.object,
        "namespace": settings.place(claim),
        "labels": _labels(claim),
        "annotations": _asked(claim),
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
