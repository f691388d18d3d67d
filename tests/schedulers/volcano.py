"""The real Volcano as processes: scheduler and controllers, configured as the chart would do it.

Its webhooks don't run: jobs name every field that they would fill in.
"""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml

from bedplate.components.schedulers import volcano_objects
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.control_plane import tool
from tests.schedulers.kubelets import SECONDS
from tests.schedulers.nodes import GPU
from tests.schedulers.processes import free_port
from tests.schedulers.workloads import pod_spec
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.site.presets import Preset
    from tests.schedulers.control_plane import ControlPlane

JOBS: Final = "batch.volcano.sh/v1alpha1"
#: Counts the scheduler's cycles that have ended.
CYCLES: Final = "volcano_e2e_scheduling_latency_milliseconds_count"
CONFIG: Final = "volcano-scheduler.conf"


@cache
def rendered(values: str, *templates: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of the unmodified chart with these values, by the real Helm."""
    own = build.tools()["volcano"]
    chart = tool("volcano").parent / "share" / build.chart_name(own)
    only = [part for name in templates for part in ("--show-only", f"templates/{name}.yaml")]
    done = subprocess.run(
        [tool("helm") / "helm", "template", "volcano", chart, "--values", "-", *only],
        input=values,
        capture_output=True,
        text=True,
        check=True,
    )
    # In C: the definitions are 30,000 lines.
    return tuple(one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one)


class Volcano:
    """Volcano of one control plane; its scheduler takes the configuration of a preset."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self.api = control_plane.api
        self.text = ""
        crds = [one for one in rendered("{}") if one["kind"] == "CustomResourceDefinition"]
        self.api.create_all(crds)
        for crd in crds:
            for version in crd["spec"]["versions"]:
                group = f"{crd['spec']['group']}/{version['name']}"
                eventually(lambda group=group, crd=crd: self._served(group, crd))
        self._start("vc-controller-manager", "--worker-threads=4")

    def _served(self, group: str, crd: Mapping[str, Any]) -> bool:
        try:
            self.api.get(crd["spec"]["names"]["plural"], group)
        except ApiError:
            return False
        return True

    def _start(self, name: str, *flags: str) -> Api:
        """Start a program of Volcano's; return the client of its metrics."""
        port, metrics = free_port(), free_port()
        process = self.control_plane.add(
            name,
            [
                str(tool("volcano") / name),
                f"--kubeconfig={self.control_plane.kubeconfig}",
                "--leader-elect=false",
                "--enable-healthz=true",
                "--kube-api-qps=2000",
                "--kube-api-burst=2000",
                f"--healthz-address=127.0.0.1:{port}",
                f"--listen-address=127.0.0.1:{metrics}",
                "--enable-metrics=true",
                "--logtostderr=true",
                "-v=1",
                *flags,
            ],
        )
        probe = Api(f"http://127.0.0.1:{port}", *self._trust())

        def healthy() -> bool:
            try:
                return probe.call("GET", "/healthz") == "ok"
            except (ApiError, OSError):
                return False

        process.until(healthy)
        return Api(f"http://127.0.0.1:{metrics}", *self._trust())

    def _trust(self) -> tuple[Any, Any]:
        return self.control_plane.authority.path, self.control_plane.admin

    def configure(self, preset: Preset) -> None:
        """Start the scheduler with the configuration that the chart makes for a preset."""
        override = volcano_objects.scheduler_config(preset, [GPU])
        values = yaml.safe_dump({"custom": {"scheduler_config_override": override}})
        (text,) = (
            one["data"][CONFIG]
            for one in rendered(values, "scheduler")
            if one["kind"] == "ConfigMap" and CONFIG in one.get("data", {})
        )
        if text == self.text:
            return
        self.text = text
        if "vc-scheduler" in self.control_plane.processes:
            self.control_plane.processes.pop("vc-scheduler").kill()
        path = self.control_plane.folder / CONFIG
        path.write_text(text)
        self._scheduler = self._start(
            "vc-scheduler",
            f"--scheduler-conf={path}",
            "--disable-default-scheduler-config=true",
            "--schedule-period=200ms",
            f"--cache-dump-dir={self.control_plane.folder}",
        )
        eventually(lambda: self._queue("default") == "Open")

    def cycles(self, count: int = 10) -> None:
        """Wait until the scheduler has been through so many cycles, each begun from now on."""
        began = self._cycles()
        eventually(self._cycles, until=lambda ended: ended > began + count)

    def _cycles(self) -> int:
        lines = self._scheduler.call("GET", "/metrics").splitlines()
        return next((int(float(one.split()[1])) for one in lines if one.startswith(CYCLES)), 0)

    def _queue(self, name: str) -> str:
        try:
            found = self.api.get("queues", volcano_objects.BATCH, name=name)
        except ApiError:
            return ""
        return str(found.get("status", {}).get("state", ""))

    def queues(self, queues: Iterable[dict[str, Any]]) -> None:
        """Apply queues, and wait until they take jobs."""
        for queue in queues:
            self.api.apply(queue)
            name = queue["metadata"]["name"]
            eventually(lambda name=name: self._queue(name) == "Open")

    def pods(self, namespace: str, job: str | None = None) -> list[dict[str, Any]]:
        """Return the pods of a namespace, or of a job."""
        return [
            one
            for one in self.api.get("pods", "v1", namespace)
            if job is None or one["metadata"]["labels"].get("volcano.sh/job-name") == job
        ]

    def nodes(self, namespace: str, job: str | None = None) -> list[str]:
        """Return the nodes of the pods that have one, sorted."""
        pods = self.pods(namespace, job)
        return sorted(one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName"))

    def running(self, namespace: str, job: str) -> int:
        """Return how many pods of a job run."""
        return sum(one["status"]["phase"] == "Running" for one in self.pods(namespace, job))

    def reasons(self, namespace: str, job: str) -> str:
        """Return what Volcano says of a job that does not start."""
        groups = self.api.get("podgroups", volcano_objects.BATCH, namespace)
        said = [
            condition.get("message", "")
            for one in groups
            if one["metadata"]["name"].startswith(f"{job}-")
            for condition in one.get("status", {}).get("conditions", [])
            if condition["type"] == "Unschedulable"
        ]
        return "; ".join(said)

    def waits(self, namespace: str, job: str, words: str = "tasks in gang unschedulable") -> None:
        """Wait until Volcano says of a job, in these words, that it does not start.

        It says others before, of a gang whose pods are not all made yet.
        """
        eventually(lambda: self.reasons(namespace, job), until=lambda said: words in said)


def gang(
    name: str,
    namespace: str,
    *,
    pods: int,
    gpus: int = 1,
    together: int | None = None,
    queue: str = "default",
    priority: str | None = None,
    topology: Mapping[str, Any] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Return a job of Volcano's whose pods start together; a pod that is evicted restarts it."""
    annotations = {SECONDS: str(seconds)} if seconds is not None else {}
    spec = {**pod_spec(gpus), "schedulerName": volcano_objects.SCHEDULER}
    if priority:
        spec["priorityClassName"] = priority
    return {
        "apiVersion": JOBS,
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": volcano_objects.SCHEDULER,
            "queue": queue,
            "minAvailable": pods if together is None else together,
            "maxRetry": 100,
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            **({"priorityClassName": priority} if priority else {}),
            **({"networkTopology": dict(topology)} if topology else {}),
            "tasks": [
                {
                    "name": "pod",
                    "replicas": pods,
                    "template": {"metadata": {"annotations": annotations}, "spec": spec},
                }
            ],
        },
    }
