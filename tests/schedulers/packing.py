"""The packing extender beside a real scheduler, as the containers of its pod are."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.components.schedulers.packing_config import NAME, NAMESPACE, configuration
from bedplate.components.schedulers.packing_objects import ARCHIVE, archive, objects
from bedplate.pods.packing.shares import GPUS, RESOURCE
from bedplate.pods.packing.state import LABEL
from tests.schedulers.api import Api, eventually
from tests.schedulers.control_plane import CONNECTION, tool
from tests.schedulers.nodes import node
from tests.schedulers.processes import free_port
from tests.schedulers.workloads import IMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.schedulers.control_plane import ControlPlane
    from tests.schedulers.processes import Process


@dataclass
class Packing:
    """A kube-scheduler and its extender, each with the host name of one pod."""

    plane: ControlPlane
    host: str
    token: Path | None = None
    """Of the service account whose rights both have; without it they are administrators."""
    lease: Mapping[str, str] = field(default_factory=dict)
    """Other times of the Lease than kube-scheduler's: nobody starts one again that lost it."""
    port: int = field(default_factory=free_port)
    health: int = field(default_factory=free_port)

    def start(self) -> None:
        """Start both; wait until the extender answers."""
        self.start_extender()
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig()), **CONNECTION},
            **configuration(port=self.port),
        }
        config["leaderElection"] = {**config["leaderElection"], **self.lease}
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
        program = self.plane.folder / ARCHIVE
        if not program.exists():
            program.write_bytes(archive())
        certificate, key = self.plane.admin
        who = ["--certificate", str(certificate), "--key", str(key)]
        if self.token:
            who = ["--token", str(self.token)]
        extender = self.plane.add(
            f"{self.host}-extender",
            [
                *(sys.executable, "-I", "-B", str(program), "--identity", self.host),
                *("--server", self.plane.server, "--ca", str(self.plane.authority.path), *who),
                *("--port", str(self.port), "--health-port", str(self.health)),
                *("--health-address", "127.0.0.1"),
            ],
        )
        extender.until(lambda: self.page("/healthz") == "ok\n")

    def _kubeconfig(self) -> Path:
        if self.token is None:
            return self.plane.kubeconfig
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"tokenFile": str(self.token)}
        path = self.plane.folder / f"{self.host}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

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


def install(plane: ControlPlane) -> tuple[list[dict[str, Any]], Path]:
    """Apply packing's documents without its Deployment; return them and its account's token."""
    found = [one for one in objects("scheduler", "python") if one["kind"] != "Deployment"]
    for one in found:
        plane.api.apply(one)
    path = Api.path("serviceaccounts", "v1", NAMESPACE, NAME)
    ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.folder / "packing.token"
    answer = plane.api.call("POST", f"{path}/token", ask)
    token.write_text(answer["status"]["token"])
    return found, token


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
