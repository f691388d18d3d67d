"""The real JobSet controller as a process, with the objects of its chart and a certificate of ours.

With its own certificates it would only look for them in one folder of the whole machine.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.components.schedulers import jobset
from tests.schedulers.control_plane import tool
from tests.schedulers.kueue import FOR_PODS, IMAGE, answers, rendered
from tests.schedulers.processes import free_port

if TYPE_CHECKING:
    from tests.schedulers.control_plane import ControlPlane

VERSION = "jobset.x-k8s.io/v1alpha2"


def start(plane: ControlPlane) -> None:
    """Start the controller on a control plane, and wait until it answers."""
    port, health = free_port(), free_port()
    folder = plane.folder / "jobset"
    folder.mkdir()
    plane.authority.issue("jobset", folder=folder)
    trusted = base64.b64encode(plane.authority.path.read_bytes()).decode()
    plane.namespace(jobset.NAMESPACE)
    found = [one for one in rendered("jobset", jobset.values(IMAGE)) if one["kind"] not in FOR_PODS]
    for one in sorted(found, key=lambda one: one["kind"] != "CustomResourceDefinition"):
        plane.api.apply(_adapted(one, f"https://127.0.0.1:{port}", trusted))
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    path, kubeconfig = folder / "config.yml", folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    user = plane.authority.issue(jobset.CONTROLLER, "system:serviceaccounts")
    kubeconfig.write_text(yaml.safe_dump(plane.as_kubeconfig(user)))
    command = [str(tool("jobset") / "jobset"), f"--config={path}", f"--kubeconfig={kubeconfig}"]
    process = plane.add("jobset", command)
    process.until(lambda: answers(f"http://127.0.0.1:{health}/readyz"), 240)


def _adapted(one: dict[str, Any], server: str, trusted: str) -> dict[str, Any]:
    """Return an object of the chart for a process: where its webhooks are, and who it is."""
    for hook in one.get("webhooks", []):
        at = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"{server}{at}", "caBundle": trusted}
    if one["kind"].endswith("RoleBinding"):
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": jobset.CONTROLLER}
        one["subjects"] = [user]
    return one
