"""The packing extender beside a real scheduler, as the containers of its pod are."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.packing.shares import GPUS, RESOURCE
from bedplate.packing.state import LABEL
from bedplate.schedulers.packing_config import NAME, NAMESPACE, configuration
from tests.schedulers.api import eventually
from tests.schedulers.control_plane import FAST, tool
from tests.schedulers.nodes import node
from tests.schedulers.processes import free_port
from tests.schedulers.workloads import IMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.schedulers.control_plane import ControlPlane
    from tests.schedulers.processes import Process

LEASE = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
"""Shorter than in a cluster, so that a follower takes over within a test's patience."""


@dataclass
class Packing:
    """A kube-scheduler and its extender, each with the host name of one pod."""

    plane: ControlPlane
    host: str
    port: int = field(default_factory=free_port)
    health: int = field(default_factory=free_port)

    def start(self) -> None:
        """Start both; wait until the extender answers."""
        self.start_extender()
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.plane.kubeconfig), **FAST},
            **configuration(port=self.port),
        }
        config["leaderElection"] = {**config["leaderElection"], **LEASE}
        path = self.plane.folder / f"{self.host}.yml"
        path.write_text(yaml.safe_dump(config))
        program = str(tool("kubernetes") / "kube-scheduler")
        self.plane.add(
            f"{self.host}-scheduler",
            [
                *("unshare", "--uts", "sh", "-c", f'hostname {self.host}; exec "$@"', "sh"),
                *(program, f"--config={path}", f"--secure-port={free_port()}"),
                f"--cert-dir={self.plane.folder / self.host}",
            ],
        )

    def start_extender(self) -> None:
        """Start the extender, or start it again with nothing in memory."""
        certificate, key = self.plane.admin
        extender = self.plane.add(
            f"{self.host}-extender",
            [
                *(sys.executable, "-m", "bedplate.packing", "--identity", self.host),
                *("--server", self.plane.server, "--ca", str(self.plane.authority.path)),
                *("--certificate", str(certificate), "--key", str(key)),
                *("--port", str(self.port), "--health-port", str(self.health)),
                *("--health-address", "127.0.0.1"),
            ],
        )
        extender.until(lambda: self.page("/healthz") == "ok\n")

    def process(self, part: str) -> Process:
        """Return its `scheduler` or its `extender`."""
        return self.plane.processes[f"{self.host}-{part}"]

    def leads(self) -> None:
        """Wait until it decides."""
        eventually(lambda: self.page("/readyz") == "ok\n")

    def page(self, path: str) -> str:
        """Return a page of the extender, also with an error's status; empty while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=5) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    def metric(self, name: str) -> float:
        """Return a metric's value, 0 where it isn't counted yet."""
        lines = (line.rpartition(" ") for line in self.page("/metrics").splitlines())
        return next((float(value) for key, _, value in lines if key == name), 0.0)


def packed_node(name: str, gpus: int, **resources: str) -> dict[str, Any]:
    """Return a node whose GPUs the extender counts. It writes their thousandths itself."""
    return node(name, labels={LABEL: str(gpus)}, resources=resources)


def pod(
    name: str, namespace: str, amount: int, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a pod that asks the packing scheduler for so many thousandths."""
    asked = {"cpu": "100m", **({RESOURCE: str(amount)} if amount else {})}
    container = {
        "name": "main",
        "image": IMAGE,
        "resources": {"requests": asked, "limits": asked},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": NAME,
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
        },
    }


def place(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a pod's node and GPUs, or None while it is nowhere."""
    node_name = pod["spec"].get("nodeName")
    return (node_name, pod["metadata"]["annotations"].get(GPUS, "")) if node_name else None


__all__ = ["LABEL", "NAMESPACE", "Packing", "packed_node", "place", "pod"]
