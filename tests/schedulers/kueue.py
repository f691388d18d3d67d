"""The real Kueue as a process, with the objects of its chart and its webhooks on loopback."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
import yaml

from bedplate.components.schedulers import jobset
from bedplate.components.schedulers.kueue import policies, queues, tenancy, webhooks
from bedplate.components.schedulers.kueue.configuration import configuration, values
from bedplate.components.schedulers.kueue.objects import CONTROLLER, NAMESPACE
from tests.schedulers.api import APPLY, Api, ApiError, eventually
from tests.schedulers.control_plane import FAST, ControlPlane, Limits, tool
from tests.schedulers.locks import nodes_of, queues_of
from tests.schedulers.nodes import add_nodes
from tests.schedulers.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock import Lock
    from tests.schedulers.processes import Process

FOR_PODS = frozenset({"Deployment", "PodDisruptionBudget"})
IMAGE = "registry.k8s.io/addon:v0.0.0@sha256:" + "0" * 64  # never pulled
API = "kueue.x-k8s.io/v1beta2"
LABEL = "kueue.x-k8s.io/queue-name"
#: What makes pods, or Jobs, again and again; owners come before what they own.
MAKERS = (
    ("cronjobs", "batch/v1"),
    ("jobsets", "jobset.x-k8s.io/v1alpha2"),
    *((plural, "apps/v1") for plural in ("deployments", "replicasets")),
    *((plural, "apps/v1") for plural in ("statefulsets", "daemonsets")),
    ("replicationcontrollers", "v1"),
)


def rendered(name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of an add-on's chart with a component's values, as Helm renders them."""
    return [one for one in yaml.load_all(template(name, given), yaml.CSafeLoader) if one]


def template(name: str, given: dict[str, Any]) -> str:
    """Return the same as Helm's text: reading it takes as long as rendering."""
    (chart,) = (tool(name).parent / "share").glob(f"{name}-*.tgz")
    command = [str(tool("helm") / "helm"), "template", name, str(chart), "--include-crds"]
    command += [f"--namespace={name}-system", "--values=-"]
    done = subprocess.run(
        command, input=yaml.safe_dump(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Controller:
    """An add-on's controller as a process, with the objects of its chart.

    What a pod would be for stays out, its Service points to this machine, and the Secret with its
    own certificate is copied to the folder where a kubelet would mount it.
    """

    left_out = FOR_PODS | {"APIService"}

    def __init__(self, plane: ControlPlane, name: str, user: str, given: dict[str, Any]) -> None:
        self.plane, self.api, self.name = plane, plane.api, name
        self.port, self.health, self.visible = free_port(), free_port(), free_port()
        self.folder = plane.folder / name
        self.folder.mkdir()
        self._certificate = plane.authority.issue(user, "system:serviceaccounts")
        self.process: Process | None = None
        plane.namespace(f"{name}-system")
        found = [one for one in rendered(name, given) if one["kind"] not in self.left_out]
        first = [one for one in found if one["kind"] == "CustomResourceDefinition"]
        for one in [*first, *(one for one in found if one not in first)]:
            self._adapted(one, user)
            self.api.apply(one)
            if one["kind"] == "Secret":
                self._secret = one["metadata"]["name"]

    def _adapted(self, one: dict[str, Any], user: str) -> None:
        conversion = one.get("spec", {}).get("conversion", {}).get("webhook")
        for hook in [*one.get("webhooks", []), *([conversion] if conversion else [])]:
            hook["clientConfig"]["service"]["port"] = self.port
        if one["kind"] == "APIService":
            one["spec"]["service"]["port"] = self.visible
        if one["kind"] == "Service":
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if one["kind"].endswith("RoleBinding"):  # who calls has a certificate, not a token
            one["subjects"] = [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            ]

    def _mounted(self) -> bool:
        """Copy the certificate once the controller has made it, whole, as a kubelet would."""
        data = self.api.get("secrets", "v1", f"{self.name}-system", self._secret).get("data", {})
        for name in sorted(data, key=("ca.crt", "ca.key", "tls.key", "tls.crt").index):
            content, path = base64.b64decode(data[name]), self.folder / name
            if not path.exists() or path.read_bytes() != content:
                path.with_suffix(".new").write_bytes(content)
                path.with_suffix(".new").rename(path)
        return bool(data)

    def run(self, config: dict[str, Any]) -> None:
        """Start the program with a configuration, and wait until it answers."""
        whole = config | {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self.port, "certDir": str(self.folder)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": f"{self.name}-webhook-service",
                "webhookSecretName": self._secret,
            },
        }
        path, kubeconfig = self.folder / "config.yml", self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(whole))
        kubeconfig.write_text(yaml.safe_dump(self.plane.as_kubeconfig(self._certificate)))
        command = [str(tool(self.name) / self.name), f"--config={path}"]
        command += [f"--kubeconfig={kubeconfig}", "--zap-log-level=2"]
        self.process = self.plane.add(self.name, command)
        probe = f"http://127.0.0.1:{self.health}/readyz"
        self.process.until(lambda: self._mounted() and answers(probe), 240)


class RunningKueue(Controller):
    """Kueue for a lock on a control plane; the lock's objects are applied by `configure`.

    Places in its queues are served where the control plane aggregates.
    """

    def __init__(self, plane: ControlPlane, lock: Lock, *, places: bool = False) -> None:
        self.places = places
        if places:
            self.left_out = FOR_PODS
        super().__init__(plane, "kueue", CONTROLLER, values(queues_of(lock), IMAGE))
        self._applied: list[dict[str, Any]] = []
        self.start(lock)

    def know_jobsets(self) -> None:
        """Let the API server have JobSets, of the real chart; no controller makes jobs of them."""
        for one in rendered("jobset", jobset.values(IMAGE)):
            if one["kind"] == "CustomResourceDefinition":
                self.api.apply(one)

    def start(self, lock: Lock) -> None:
        """Start the controller with a lock's configuration, and wait until it answers."""
        self.lock = lock
        served: dict[str, Any] = {"featureGates": {"VisibilityOnDemand": False}}
        if self.places:
            served = {"visibilityServer": {"bindPort": self.visible}}
        self.run(configuration(queues_of(lock)) | {"namespace": NAMESPACE} | served)

    def restart(self, lock: Lock) -> None:
        """Start the controller again with another lock's configuration."""
        assert self.process is not None
        self.process.stop()
        self.start(lock)

    def configure(self, lock: Lock) -> None:
        """Apply the objects of a lock; those of the lock before that are not in it are deleted."""
        of = queues_of(lock)
        self.ask(webhooks.patch(of))
        wanted = [*tenancy.objects(of), *queues.objects(of), *policies.objects(of)]
        for one in wanted:
            eventually(lambda one=one: self._apply(one), pause=0.3)
        paths = {self.api.path_of(one) for one in wanted}
        for one in self._applied:
            if self.api.path_of(one) not in paths:
                self.api.delete(self.api.path_of(one))
        self._applied = wanted
        names = [one["metadata"]["name"] for one in wanted if one["kind"] == "ClusterQueue"]
        eventually(lambda: all(self.active(name) for name in names))

    def forget(self) -> None:
        """Delete what `configure` has applied; what lies in the namespaces stays, with them."""
        for one in reversed(self._applied):
            if one["kind"] != "Namespace":
                self.api.delete(self.api.path_of(one))
        self._applied = []

    def ask(self, patch: dict[str, Any]) -> None:
        """Change what the webhooks are asked about, as another manager than the chart's."""
        query = {"fieldManager": "pulumi", "force": "true"}
        path = self.api.path_of(patch)
        self.api.call("PATCH", path, patch, content_type=APPLY, params=query)

    def _apply(self, one: dict[str, Any]) -> bool:
        try:
            return bool(self.api.apply(one))
        except ApiError as error:
            if error.status == 500:  # its webhook does not answer yet
                return False
            raise

    def active(self, queue: str) -> bool:
        """Tell whether a ClusterQueue admits, as it is now: with the order that it has now, too."""
        found = self.api.get("clusterqueues", API, None, queue)
        return any(
            one["type"] == "Active"
            and one["status"] == "True"
            and one.get("observedGeneration") == found["metadata"]["generation"]
            for one in found.get("status", {}).get("conditions", [])
        )

    def stays(self, queue: str) -> bool:
        """Tell whether a ClusterQueue is there and nobody has asked for its end."""
        found = self.api.get("clusterqueues", API)
        return any(
            one["metadata"]["name"] == queue and "deletionTimestamp" not in one["metadata"]
            for one in found
        )

    def workloads(self, *namespaces: str) -> list[dict[str, Any]]:
        """Return the Workloads of namespaces."""
        return [one for name in namespaces for one in self.api.get("workloads", API, name)]

    def clear(self, *namespaces: str) -> None:
        """Delete all work in namespaces, whoever would make it again."""
        for name in namespaces:
            for plural, version in MAKERS:
                self.api.delete(self.api.path(plural, version, name))
            self.plane.clear(name)
            eventually(lambda name=name: self._forgotten(name), pause=0.5)

    def _forgotten(self, namespace: str) -> bool:
        """Tell whether no Workload is left; what waits for a garbage collector is let go here."""
        left = self.workloads(namespace)
        for one in left:
            path = self.api.path("workloads", API, namespace, one["metadata"]["name"])
            with contextlib.suppress(ApiError):
                self.api.patch(path, {"metadata": {"finalizers": None}})
            self.api.delete(path)
        return not left


@contextlib.contextmanager
def kueue_of(
    lock: Lock, *, jobsets: bool = False, places: bool = False, limits: Limits = FAST
) -> Iterator[RunningKueue]:
    """Start a control plane with a lock's nodes, Kueue, and the queues of the lock's teams.

    `jobsets`: the API server has JobSets too; `places`: Kueue serves places in its queues;
    `limits`: those of the control plane's own programs.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-kueue-") as folder,
        ControlPlane(Path(folder), aggregates=places, limits=limits) as plane,
    ):
        started = RunningKueue(plane, lock, places=places)
        if jobsets:
            started.know_jobsets()
        add_nodes(plane.api, nodes_of(lock))
        started.configure(lock)
        yield started


def next_second() -> None:
    """Wait until what is created now is later for Kueue, which knows whole seconds only."""
    time.sleep(1.1)


def evictions(workload: dict[str, Any]) -> int:
    """Return how often a Workload was evicted."""
    stats = workload.get("status", {}).get("schedulingStats", {})
    return sum(one["count"] for one in stats.get("evictions", []))


def answers(url: str) -> bool:
    """Tell whether an address answers with success."""
    try:
        return requests.get(url, timeout=10).ok
    except requests.RequestException:
        return False


def condition(workload: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of a Workload, empty if it has none of this type."""
    conditions = workload.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def holds(workload: dict[str, Any], kind: str) -> bool:
    """Tell whether a condition of a Workload is true."""
    return condition(workload, kind).get("status") == "True"


def workload_of(kueue: RunningKueue, namespace: str, name: str) -> dict[str, Any]:
    """Return the Workload of a job or pod, empty while there is none."""
    for one in kueue.workloads(namespace):
        if one["metadata"]["ownerReferences"][0]["name"] == name:
            return one
    return {}


def said(kueue: RunningKueue, namespace: str, name: str) -> str:
    """Return what Kueue says about a job's quota now."""
    return str(condition(workload_of(kueue, namespace, name), "QuotaReserved").get("message", ""))


def reason(kueue: RunningKueue, namespace: str, name: str, words: str) -> str:
    """Wait until Kueue says, in these words, why a job has no quota; return all that it says.

    What it said before may be about another moment, such as a race for a node that was lost.
    """
    return eventually(lambda: said(kueue, namespace, name), until=lambda told: words in told)


def reserved(api: Api, queue: str) -> tuple[str, str, str]:
    """Return a queue's resource, what it holds of it, and what of that is borrowed, as of now.

    Kueue writes this after it has admitted, in a pass of its own.
    """
    status = api.get("clusterqueues", API, None, queue)["status"]["flavorsReservation"]
    (used,) = status[0]["resources"]
    return used["name"], used["total"], used["borrowed"]


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
