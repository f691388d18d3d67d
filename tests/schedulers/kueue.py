"""The real Kueue as a process: its chart's own objects, webhooks on loopback.

The chart is rendered by Helm with the component's values. What a pod would be for stays out, its
Service points to this machine, and the Secret with Kueue's own certificate is copied to the folder
where a kubelet would mount it.
"""

from __future__ import annotations

import base64
import subprocess
from typing import TYPE_CHECKING, Any

import requests
import yaml

from bedplate.schedulers.kueue import policies, queues, tenancy
from bedplate.schedulers.kueue.configuration import configuration, values
from bedplate.schedulers.kueue.objects import CONTROLLER, NAMESPACE
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.control_plane import tool
from tests.schedulers.processes import free_port

if TYPE_CHECKING:
    from bedplate.lock import Lock
    from tests.schedulers.control_plane import ControlPlane
    from tests.schedulers.processes import Process

FOR_PODS = frozenset({"Deployment", "APIService", "PodDisruptionBudget"})
CERTIFICATE = "kueue-webhook-server-cert"
API = "kueue.x-k8s.io/v1beta2"
LABEL = "kueue.x-k8s.io/queue-name"


def rendered(lock: Lock) -> list[dict[str, Any]]:
    """Return the objects of the chart with the component's values, as Helm renders them."""
    (chart,) = (tool("kueue").parent / "share").glob("kueue-*.tgz")
    command = [str(tool("helm") / "helm"), "template", "kueue", str(chart)]
    command += [f"--namespace={NAMESPACE}", "--values=-"]
    given = yaml.safe_dump(values(lock, "registry.k8s.io/kueue/kueue:v0.0.0@sha256:" + "0" * 64))
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]


class RunningKueue:
    """Kueue for a lock on a control plane; the lock's objects are applied by `configure`."""

    def __init__(self, plane: ControlPlane, lock: Lock) -> None:
        self.plane, self.api = plane, plane.api
        self._port, self._health = free_port(), free_port()
        self._folder = plane.folder / "kueue"
        self._folder.mkdir()
        self._applied: list[dict[str, Any]] = []
        plane.namespace(NAMESPACE)
        self._install(lock)
        self._certificate = plane.authority.issue(CONTROLLER, "system:serviceaccounts")
        self.process: Process | None = None
        self.start(lock)

    def _install(self, lock: Lock) -> None:
        found = [one for one in rendered(lock) if one["kind"] not in FOR_PODS]
        first = [one for one in found if one["kind"] == "CustomResourceDefinition"]
        for one in [*first, *(one for one in found if one not in first)]:
            conversion = one.get("spec", {}).get("conversion", {}).get("webhook")
            for hook in [*one.get("webhooks", []), *([conversion] if conversion else [])]:
                hook["clientConfig"]["service"]["port"] = self._port
            if one["kind"] == "Service":
                one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            if one["kind"].endswith("RoleBinding"):  # who calls has a certificate, not a token
                one["subjects"] = [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": CONTROLLER}
                ]
            self.api.apply(one)

    def _mounted(self) -> bool:
        """Copy the certificate once Kueue has made it, as a kubelet would."""
        data = self.api.get("secrets", "v1", NAMESPACE, CERTIFICATE).get("data", {})
        for name, content in data.items():
            (self._folder / name).write_bytes(base64.b64decode(content))
        return bool(data)

    def start(self, lock: Lock) -> None:
        """Start the controller with a lock's configuration, and wait until it answers."""
        config = configuration(lock)
        config |= {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._port,
                "certDir": str(self._folder),
            },
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": "kueue-webhook-service",
                "webhookSecretName": CERTIFICATE,
            },
            "namespace": NAMESPACE,
            "featureGates": {"VisibilityOnDemand": False},
        }
        path = self._folder / "config.yml"
        path.write_text(yaml.safe_dump(config))
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(self.plane.as_kubeconfig(self._certificate)))
        command = [str(tool("kueue") / "kueue"), f"--config={path}", f"--kubeconfig={kubeconfig}"]
        self.process = self.plane.add("kueue", [*command, "--zap-log-level=2"])
        probe = f"http://127.0.0.1:{self._health}/readyz"
        self.process.until(lambda: self._mounted() and answers(probe))

    def restart(self, lock: Lock) -> None:
        """Start the controller again with another lock's configuration."""
        assert self.process is not None
        self.process.stop()
        self.start(lock)

    def configure(self, lock: Lock) -> None:
        """Apply the objects of a lock; those of the lock before that are not in it are deleted."""
        wanted = [*tenancy.objects(lock), *queues.objects(lock), *policies.objects(lock)]
        for one in wanted:
            eventually(lambda one=one: self._apply(one), 30, pause=0.3)
        paths = {self.api.path_of(one) for one in wanted}
        for one in self._applied:
            if self.api.path_of(one) not in paths:
                self.api.delete(self.api.path_of(one))
        self._applied = wanted
        names = [one["metadata"]["name"] for one in wanted if one["kind"] == "ClusterQueue"]
        eventually(lambda: all(self.active(name) for name in names), 30)

    def _apply(self, one: dict[str, Any]) -> bool:
        try:
            return bool(self.api.apply(one))
        except ApiError as error:
            if error.status == 500:  # its webhook does not answer yet
                return False
            raise

    def active(self, queue: str) -> bool:
        """Tell whether a ClusterQueue admits."""
        status = self.api.get("clusterqueues", API, None, queue).get("status", {})
        return any(
            one["type"] == "Active" and one["status"] == "True"
            for one in status.get("conditions", [])
        )

    def workloads(self, *namespaces: str) -> list[dict[str, Any]]:
        """Return the Workloads of namespaces."""
        return [one for name in namespaces for one in self.api.get("workloads", API, name)]

    def clear(self, *namespaces: str) -> None:
        """Delete all work in namespaces."""
        for name in namespaces:
            self.plane.clear(name)
            eventually(lambda name=name: not self.workloads(name), 60, pause=0.3)


def answers(url: str) -> bool:
    """Tell whether an address answers with success."""
    try:
        return requests.get(url, timeout=2).ok
    except requests.RequestException:
        return False


def condition(workload: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of a Workload, empty if it has none of this type."""
    conditions = workload.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def holds(workload: dict[str, Any], kind: str) -> bool:
    """Tell whether a condition of a Workload is true."""
    return condition(workload, kind).get("status") == "True"


def jobs(api: Api, *namespaces: str) -> list[dict[str, Any]]:
    """Return the Jobs of namespaces."""
    return [one for name in namespaces for one in api.get("jobs", "batch/v1", name)]


def running(api: Api, *namespaces: str) -> list[str]:
    """Return the names of the Jobs that are started and not done."""
    return sorted(
        one["metadata"]["name"]
        for one in jobs(api, *namespaces)
        if not one["spec"].get("suspend") and not one["status"].get("completionTime")
    )
