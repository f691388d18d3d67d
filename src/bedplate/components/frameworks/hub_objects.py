"""What the hub is in the cluster, as documents. Pure functions of the lock."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import bedplate.pods.hub
from bedplate.common import cel
from bedplate.components.refs import MANAGED
from bedplate.components.schedulers.kueue.objects import ABOUT, HUB_ACCOUNT, TEAM_LABEL
from bedplate.components.schedulers.topology import HOST
from bedplate.pods.hub import magic, notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]

NAMESPACE: Final = "bedplate-hub"
HUB: Final = "hub"
PROXY: Final = "proxy"
PUBLIC: Final = "proxy-public"
SECRETS: Final = "hub"
#: The hub's account as the API server names it; only it makes students' pods.
ACCOUNT: Final = HUB_ACCOUNT
RBAC: Final = "rbac.authorization.k8s.io/v1"
ADMISSION: Final = "admissionregistration.k8s.io/v1"
HUB_PORT: Final = 8081
PROXY_API: Final = 8001
SHARES_PORT: Final = 8082
SHARES: Final = "bedplate-shares"
SHARES_URL: Final = f"http://{SHARES}.{NAMESPACE}:{SHARES_PORT}"
MAGIC_MOUNT: Final = {"name": "shares", "mountPath": "/etc/bedplate/python", "readOnly": True}
#: Where a notebook's Jupyter finds the extension that shows notices.
JUPYTER: Final = "/etc/bedplate/python/jupyter"
PROXY_PORT: Final = 8000
#: Where the proxy sends users of plain HTTP to TLS.
PLAIN_PORT: Final = 8080
NOTEBOOK_PORT: Final = 8888
#: The user of the upstream images, and of students' notebooks.
USER: Final = 1000
STUDENTS: Final = {"component": "singleuser-server"}
PYTHON: Final = "/etc/bedplate/python"
STATE: Final = "/srv/jupyterhub"
STATE_SIZE: Final = "1Gi"
CONTROL: Final = "node-role.kubernetes.io/control-plane"
#: JupyterHub ends where nobody listens yet: at its start it asks the proxy again only after an
#: answer with a status of 500 or more (5.5.4, `ConfigurableHTTPProxy.api_request`).
WAIT_FOR_PROXY: Final = f"""\
import socket, time
while True:
    try:
        socket.create_connection(("proxy-api", {PROXY_API}), 5).close()
        break
    except OSError:
        time.sleep(0.5)
"""
BASELINE: Final = {"pod-security.kubernetes.io/enforce": "baseline"}


class State(NamedTuple):
    """Where the hub's state lies: its claim, the source of the volume, and the hosts that have it.

    `folder` is a folder of the volume, or empty; `taints` are keys of what those hosts are tainted
    with.
    """

    claim: str
    about: str
    source: Object
    hosts: tuple[str, ...]
    folder: str = ""
    taints: tuple[str, ...] = ()


def _object(
    version: str, kind: str, name: str, about: str, namespace: str | None = NAMESPACE, **more: Any
) -> Object:
    metadata: Object = {"name": name, "labels": dict(MANAGED), "annotations": {ABOUT: about}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def app(name: str) -> dict[str, str]:
    """Return the label of what belongs to a part of the hub."""
    return {"app.kubernetes.io/name": f"bedplate-{name}"}


def files() -> dict[str, str]:
    """Return what is mounted into the hub: by the path below `bedplate`, its text."""
    package = Path(bedplate.pods.hub.__file__).parents[2]
    found = sorted([*package.glob("pods/hub/*.py"), *package.glob("pods/hub/pages/*.html")])
    others = {"portable": ("__init__", "quantities"), "pods": ("__init__", "api", "watching")}
    found += [package / room / f"{name}.py" for room, names in others.items() for name in names]
    return {str(path.relative_to(package)): path.read_text() for path in found}


def rights(courses: Mapping[str, Any]) -> list[Object]:
    """Return the hub's account and its rights: pods in courses' namespaces, and their queues."""
    account = [{"kind": "ServiceAccount", "name": HUB, "namespace": NAMESPACE}]
    names = sorted(courses)
    found = [
        _object("v1", "ServiceAccount", HUB, "Starts students' pods."),
        _object(
            RBAC,
            "ClusterRole",
            f"{NAMESPACE}-queues",
            "May read courses' queues, and hold them between lessons.",
            None,
            rules=[
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["clusterqueues"],
                    "resourceNames": names,
                    "verbs": ["get", "patch"],
                },
                # What a share of a GPU is, for the service that asks for them.
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["resourceflavors"],
                    "verbs": ["get"],
                },
            ],
        ),
        _object(
            RBAC,
            "ClusterRoleBinding",
            f"{NAMESPACE}-queues",
            "The hub.",
            None,
            roleRef=_role("ClusterRole", f"{NAMESPACE}-queues"),
            subjects=account,
        ),
        *_own_pods(names),
    ]
    for course in names:
        found.append(
            _object(
                RBAC,
                "Role",
                NAMESPACE,
                f"The hub makes and deletes pods of students of {course}, and reads their places.",
                course,
                rules=[
                    {
                        "apiGroups": [""],
                        "resources": ["pods"],
                        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                    },
                    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
                    # Shares on request are Jobs; what a cell prints in one is its pod's log.
                    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
                    {
                        "apiGroups": ["batch"],
                        "resources": ["jobs"],
                        "verbs": ["list", "create", "delete"],
                    },
                    {
                        "apiGroups": ["kueue.x-k8s.io"],
                        "resources": ["localqueues", "workloads"],
                        "verbs": ["get", "list"],
                    },
                    {
                        "apiGroups": ["visibility.kueue.x-k8s.io"],
                        "resources": ["localqueues/pendingworkloads"],
                        "verbs": ["get"],
                    },
                ],
            )
        )
        found.append(
            _object(
                RBAC,
                "RoleBinding",
                NAMESPACE,
                "The hub.",
                course,
                roleRef=_role("Role", NAMESPACE),
                subjects=account,
            )
        )
        found.append(_notebooks_policy(course))
        found.append(_magic(course))
    return found


def _magic(course: str) -> Object:
    """Return what notebooks of a course mount: `%load_ext bedplate_share`."""
    about = "The magic %share of notebooks, and what shows the hub's notices in them."
    data = {path.replace("/", "."): text for path, text in mounted().items()}
    return _object("v1", "ConfigMap", SHARES, about, course, data=data)


def mounted() -> dict[str, str]:
    """Return what notebooks mount, by path."""
    script = Path(bedplate.pods.hub.__file__).parent / "pages" / "notice.js"
    return {
        "bedplate_share.py": Path(magic.__file__).read_text(),
        f"{notice.MODULE}.py": Path(notice.__file__).read_text(),
        **notice.files(script.read_text()),
    }


def magic_volume() -> Object:
    """Return the volume of what notebooks mount; without it they start all the same."""
    items = [{"key": path.replace("/", "."), "path": path} for path in mounted()]
    return {"name": "shares", "configMap": {"name": SHARES, "optional": True, "items": items}}


def _role(kind: str, name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def _own_pods(courses: list[str]) -> Iterator[Object]:
    """Yield a policy: what looks like a student's server is made by the hub.

    A hub that starts again takes up pods by name, and trusts the token that is in them.
    """
    name = f"{NAMESPACE}-makes-servers"
    about = "Only the hub makes and changes pods that it would take for a student's server."
    labels = "object.metadata.labels"
    marked = (
        f"has({labels}) && 'component' in {labels} && "
        f"{labels}['component'] == '{STUDENTS['component']}'"
    )
    yield _object(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        name,
        about,
        None,
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": f"!({marked}) || request.userInfo.username == '{ACCOUNT}'",
                    "messageExpression": cel.message(
                        "pod of a student is not made by the hub",
                        "namespace {object.metadata.namespace}",
                        "{request.userInfo.username}",
                        ACCOUNT,
                        "start a notebook in the hub, or leave the label component out",
                    ),
                    "reason": "Forbidden",
                }
            ],
        },
    )
    chosen = {"key": TEAM_LABEL, "operator": "In", "values": courses}
    yield _object(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        name,
        about,
        None,
        spec={
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchExpressions": [chosen]}},
        },
    )


def _from_hub() -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}


def _notebooks_policy(course: str) -> Object:
    return _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        NAMESPACE,
        "Notebooks are reached by the hub and its proxy alone. Flannel does not enforce this.",
        course,
        spec={
            "podSelector": {"matchLabels": STUDENTS},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [_from_hub()], "ports": [_port(NOTEBOOK_PORT)]}],
        },
    )


def _port(number: int) -> Object:
    return {"protocol": "TCP", "port": number}


def network_policies() -> list[Object]:
    """Return who reaches hub and proxy. Flannel does not enforce them."""

    def policy(name: str, about: str, *ingress: Object) -> Object:
        spec = {
            "podSelector": {"matchLabels": app(name)},
            "policyTypes": ["Ingress"],
            "ingress": list(ingress),
        }
        return _object("networking.k8s.io/v1", "NetworkPolicy", name, about, spec=spec)

    students = {"namespaceSelector": {}, "podSelector": {"matchLabels": STUDENTS}}
    hub = {"podSelector": {"matchLabels": app(HUB)}}
    here: Object = {"podSelector": {}}
    return [
        policy(
            HUB,
            "The hub's API, and the service for shares: for its namespace and for notebooks.",
            {"from": [here, students], "ports": [_port(HUB_PORT), _port(SHARES_PORT)]},
        ),
        policy(
            PROXY,
            "All pods reach the proxy; its API is the hub's.",
            {"ports": [_port(PROXY_PORT), _port(PLAIN_PORT)]},
            {"from": [hub], "ports": [_port(PROXY_API)]},
        ),
    ]


def namespace() -> Object:
    """Return the hub's namespace."""
    found = _object("v1", "Namespace", NAMESPACE, "The hub of all courses, and its proxy.", None)
    found["metadata"]["labels"] |= BASELINE
    return found


def state_volume(state: State) -> list[Object]:
    """Return the volume of the hub's own state, and the claim of it."""
    common: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    rule = {"key": HOST, "operator": "In", "values": list(state.hosts)}
    volume = _object(
        "v1",
        "PersistentVolume",
        state.claim,
        state.about,
        None,
        spec={
            **common,
            "capacity": {"storage": STATE_SIZE},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": state.claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
            **state.source,
        },
    )
    requests = {"requests": {"storage": STATE_SIZE}}
    spec = {**common, "volumeName": state.claim, "resources": requests}
    return [volume, _object("v1", "PersistentVolumeClaim", state.claim, state.about, spec=spec)]


def configuration(settings: Mapping[str, Any]) -> Object:
    """Return the hub's program and its settings."""
    keys = {path.replace("/", "."): text for path, text in files().items()}
    data = {"hub.json": json.dumps(settings, indent=1, sort_keys=True), "package": "", **keys}
    return _object("v1", "ConfigMap", HUB, "The hub's settings and program.", data=data)


def digest(*found: Any) -> str:
    """Return a mark of what pods read at their start."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def services(*, encrypted: bool = False, redirected: bool = False) -> list[Object]:
    """Return the addresses: that which users reach first, of the hub, and of the proxy's API."""
    public = 443 if encrypted else 80
    plain = [{"name": "plain", "port": 80, "targetPort": PLAIN_PORT}] if redirected else []

    def service(name: str, part: str, about: str, port: int, target: int, **more: Any) -> Object:
        ports = [{"name": "http", "port": port, "targetPort": target}]
        ports += plain if name == PUBLIC else []
        spec = {"selector": app(part), "ports": ports, **more}
        return _object("v1", "Service", name, about, spec=spec)

    return [
        service(PUBLIC, PROXY, "What users open.", public, PROXY_PORT, type="NodePort"),
        # The classes' service asks the hub while it is not ready yet.
        service(HUB, HUB, "The hub's API.", HUB_PORT, HUB_PORT, publishNotReadyAddresses=True),
        service(SHARES, HUB, "Shares on request.", SHARES_PORT, SHARES_PORT),
        service("proxy-api", PROXY, "Routes, which the hub sets.", PROXY_API, PROXY_API),
    ]


def hub_deployment(image: str, mark: str, state: State) -> Object:
    """Return the hub. It is one; a second one would write the same database."""
    folder = {"subPath": state.folder} if state.folder else {}
    mounts = [
        {"name": "state", "mountPath": STATE, **folder},
        {"name": "program", "mountPath": PYTHON, "readOnly": True},
        {"name": "settings", "mountPath": "/etc/bedplate/settings", "readOnly": True},
        {"name": "secrets", "mountPath": "/etc/bedplate/secrets", "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
    ]
    environment = {
        "PYTHONPATH": PYTHON,
        "BEDPLATE_HUB": "/etc/bedplate/settings/hub.json",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": STATE,
    }
    program = f"{PYTHON}/bedplate/pods/hub"
    items = [{"key": "package", "path": "bedplate/__init__.py"}]
    items += [{"key": path.replace("/", "."), "path": f"bedplate/{path}"} for path in files()]
    settings = [{"key": "hub.json", "path": "hub.json"}]
    health = {"httpGet": {"path": "/hub/health", "port": HUB_PORT}}
    return deployment(
        HUB,
        "JupyterHub, with its service for classes.",
        mark,
        serviceAccountName=HUB,
        initContainers=[
            owner(image, {"name": "state", "mountPath": STATE, **folder}),
            {
                "name": "wait-for-proxy",
                "image": image,
                "command": ["python3", "-c", WAIT_FOR_PROXY],
                "securityContext": restricted(),
            },
        ],
        containers=[
            {
                "name": HUB,
                "image": image,
                "command": ["jupyterhub", "--config", f"{program}/jupyterhub_config.py"],
                "workingDir": STATE,
                "env": [{"name": key, "value": value} for key, value in environment.items()],
                "ports": [
                    {"name": "http", "containerPort": HUB_PORT},
                    {"name": "shares", "containerPort": SHARES_PORT},
                ],
                "readinessProbe": {**health, "periodSeconds": 2, "failureThreshold": 1000},
                "livenessProbe": {**health, "initialDelaySeconds": 300, "timeoutSeconds": 10},
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                "securityContext": restricted(),
                "volumeMounts": mounts,
            }
        ],
        volumes=[
            {"name": "state", "persistentVolumeClaim": {"claimName": state.claim}},
            {"name": "program", "configMap": {"name": HUB, "items": items}},
            {"name": "settings", "configMap": {"name": HUB, "items": settings}},
            {"name": "secrets", "secret": {"secretName": SECRETS, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
        tolerations=tolerations(state),
    )


def owner(image: str, mount: Object) -> Object:
    """Return the container that gives a folder to the hub's user."""
    may = {"drop": ["ALL"], "add": ["CHOWN"]}
    security = {**restricted(), "runAsUser": 0, "runAsNonRoot": False, "capabilities": may}
    run = {"command": ["chown", f"{USER}:{USER}", mount["mountPath"]], "volumeMounts": [mount]}
    return {"name": "owner", "image": image, "securityContext": security, **run}


def tolerations(state: State) -> list[Object]:
    """Return what lets a pod on the hosts that have the hub's state."""
    common = {"operator": "Exists", "effect": "NoSchedule"}
    return [{"key": key, **common} for key in (CONTROL, *state.taints)]


def restricted() -> Object:
    """Return what a container of the hub may not do."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def deployment(name: str, about: str, mark: str, **spec: Any) -> Object:
    """Return a Deployment of one pod, whose mark changes with what it reads."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return _object(
        "apps/v1",
        "Deployment",
        name,
        about,
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": app(name)},
            "template": {
                "metadata": {
                    "labels": {**MANAGED, **app(name)},
                    "annotations": {"bedplate.io/configuration": mark},
                },
                "spec": {"enableServiceLinks": False, "securityContext": security, **spec},
            },
        },
    )
