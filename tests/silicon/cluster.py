"""A cluster of one node on a machine with a real GPU, from the real programs on the path.

`python -m tests.silicon.cluster OUT [PART …]`: etcd, API server, scheduler, kubelet, containerd
and NVIDIA's device plugin with the configuration that the product's role renders. Kubernetes'
programs run as processes. There is no network of pods: they are in the host's.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jinja2

from bedplate.portable.host import Host
from bedplate.portable.runtime import cdi
from tests.silicon.containers import IMAGE, WORK, Runtime
from tests.silicon.measure import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVER = "https://127.0.0.1:6443"
TOKEN, NODE = "silicon", "silicon"
#: The node's address, for machines without a network: kubelet wants one that is no loopback's.
ADDRESS = "10.97.99.1"
RESOURCE = "nvidia.com/gpu"
REPLICAS = 4
ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "roles/nvidia_device_plugin/templates/device-plugin-config.yaml.j2"
ROOTS = Path("/driver-root")
HOOK = shutil.which("nvidia-cdi-hook") or "/usr/local/bin/nvidia-cdi-hook"
#: ioctls of Linux for an interface's address and its mask.
SET_ADDRESS, SET_MASK = 0x8916, 0x891C
LOOK = "nvidia-smi -L; ls /dev | grep nvidia; env | grep NVIDIA; true"


def address(wanted: str) -> None:
    """Give the loopback interface another address, without a program for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, suppress(OSError):
        for request, value in ((SET_ADDRESS, wanted), (SET_MASK, "255.255.255.255")):
            words = (b"lo:silicon", socket.AF_INET, bytes(2), socket.inet_aton(value), bytes(8))
            fcntl.ioctl(asked, request, struct.pack("16sH2s4s8s", *words))


class Api:
    """An administrator of the API server."""

    def __init__(self) -> None:
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(SERVER + path, data, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:  # noqa: S310
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is true; return the last that it was."""
    end = time.monotonic() + seconds
    while True:
        found = None
        with suppress(urllib.error.URLError, OSError, KeyError):
            found = true()
        if found or time.monotonic() > end:
            return found
        time.sleep(0.3)


class Cluster:
    """The processes; they end on leaving."""

    def __init__(self, folder: Path, snapshotter: str) -> None:
        self.folder, self.api = folder, Api()
        self.stack, self.snapshotter = ExitStack(), snapshotter
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str | Path) -> None:
        """Start a program; its log is FOLDER/NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        self.processes[name] = process

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        address(ADDRESS)
        # What the role mounts into the plugin's pod.
        ROOTS.mkdir(exist_ok=True)
        subprocess.run(["mount", "--rbind", "/", ROOTS], check=True)
        subprocess.run(["mount", "--make-rslave", ROOTS], check=True)
        self.stack.enter_context(Runtime(self.snapshotter))
        self._control_plane()
        self._kubelet()
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.end(name)
        self.stack.close()
        subprocess.run(["umount", "--lazy", "--recursive", ROOTS], check=False)
        address("0.0.0.0")  # noqa: S104 takes it away

    def _control_plane(self) -> None:
        keys = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", keys, "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        etcd = "http://127.0.0.1:2379"
        self.start(
            "etcd", "etcd", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}", "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync", "--log-level=error",
        )  # fmt: skip
        self.start(
            "kube-apiserver", "kube-apiserver", f"--etcd-servers={etcd}", "--secure-port=6443",
            "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none",
            f"--advertise-address={ADDRESS}",
            "--service-cluster-ip-range=10.96.0.0/16", f"--cert-dir={self.folder}/certificates",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys}", f"--service-account-signing-key-file={keys}",
            "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
            "--enable-priority-and-fairness=false", "--allow-privileged=true",
        )  # fmt: skip
        assert until(lambda: self.api.call("GET", "/readyz") == "ok"), "the API server is not ready"
        with suppress(urllib.error.HTTPError):
            names = {"metadata": {"name": "default"}}
            self.api.call("POST", "/api/v1/namespaces", names)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        self.start(
            "kube-scheduler", "kube-scheduler", f"--kubeconfig={self.folder}/kubeconfig",
            "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}/certificates",
        )  # fmt: skip

    def _kubelet(self) -> None:
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/",
            "enforceNodeAllocatable": ["none"],
            "failSwapOn": False,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": f"unix://{WORK}/containerd.sock",
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%",
                             "imagefs.available": "0%", "nodefs.inodesFree": "0%",
                             "imagefs.inodesFree": "0%"},
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "localStorageCapacityIsolation": False,
        }  # fmt: skip
        (self.folder / "kubelet.yaml").write_text(json.dumps(configuration))
        self.start(
            "kubelet", "kubelet", f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.folder}/kubeconfig", f"--hostname-override={NODE}",
            f"--cert-dir={self.folder}/kubelet-certificates",
            f"--node-ip={ADDRESS}",
        )  # fmt: skip
        assert until(lambda: self.node()), "the kubelet made no node"

    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", f"/api/v1/nodes/{NODE}")
        return found

    def offered(self) -> str:
        """Return how many GPUs the node has for pods."""
        return str(self.node()["status"]["allocatable"].get(RESOURCE, "none"))

    def plugin(self, mode: str, replicas: int = 0) -> None:
        """Start NVIDIA's device plugin with the configuration that the role renders."""
        environment = jinja2.Environment(trim_blocks=True, autoescape=False)  # noqa: S701 YAML
        path = self.folder / "device-plugin.yaml"
        path.write_text(
            environment.from_string(TEMPLATE.read_text()).render(
                nvidia_device_plugin_sharing={"mode": mode, "replicas": replicas},
                nvidia_device_plugin_cdi_hook=HOOK,
            )
        )
        if "device-plugin" in self.processes:
            self.end("device-plugin")
        self.start("device-plugin", "nvidia-device-plugin", f"--config-file={path}")

    def pod(self, name: str, script: str, gpus: int, claim: str = "", **environment: str) -> None:
        """Make a pod in the host's network."""
        container: dict[str, Any] = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
            "env": [{"name": key, "value": value} for key, value in environment.items()],
        }
        if gpus:
            container["resources"] = {"limits": {RESOURCE: str(gpus)}}
        if claim:
            container["resources"] = {"claims": [{"name": claim}]}
        spec = {
            "resourceClaims": [{"name": claim, "resourceClaimName": claim}] if claim else [],
            "hostNetwork": True,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        body = {"metadata": {"name": name}, "spec": spec}
        self.api.call("POST", "/api/v1/namespaces/default/pods", body)

    def phase(self, name: str) -> str:
        found: str = self.api.call("GET", f"/api/v1/namespaces/default/pods/{name}")["status"][
            "phase"
        ]
        return found

    def told(self, name: str) -> dict[str, Any]:
        """Return a pod's state, and what it wrote."""
        pod = self.api.call("GET", f"/api/v1/namespaces/default/pods/{name}")
        logs = Path("/var/log/pods").glob(f"default_{name}_*/main/*.log")
        lines = [line for log in logs for line in log.read_text().splitlines()]
        status = pod["status"]
        return {
            "phase": status["phase"],
            "node": pod["spec"].get("nodeName"),
            "wrote": [line.split(" ", 3)[-1] for line in lines],
            "why": [
                one["message"] for one in status.get("conditions", []) if one.get("message")
            ] + [status.get("message", "")],
        }  # fmt: skip

    def gone(self, *names: str) -> None:
        for name in names:
            with suppress(urllib.error.HTTPError):
                path = f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0"
                self.api.call("DELETE", path)


def whole(cluster: Cluster, notes: Notes) -> None:
    """Give a whole GPU to one pod, and to no other."""
    cluster.plugin("none")
    until(lambda: cluster.offered() == "1", 30)
    notes["offered"] = cluster.offered()
    node = cluster.node()
    notes["node"] = {key: node["status"][key] for key in ("allocatable", "nodeInfo", "conditions")}
    cluster.pod("first", LOOK + "; sleep 15", 1)
    until(lambda: cluster.phase("first") != "Pending", 40)
    cluster.pod("second", LOOK, 1)
    cluster.pod("none", LOOK, 0, NVIDIA_VISIBLE_DEVICES="all")
    until(lambda: cluster.phase("none") in ("Succeeded", "Failed"), 30)
    time.sleep(2)
    for name in ("first", "second", "none"):
        notes[name] = cluster.told(name)
    until(lambda: cluster.phase("second") in ("Succeeded", "Failed"), 40)
    notes["second, after the first"] = cluster.told("second")
    cluster.gone("first", "second", "none")


def slices(cluster: Cluster, notes: Notes) -> None:
    """Offer the GPU several times, and have as many pods on it at once."""
    cluster.plugin("time-slicing", REPLICAS)
    until(lambda: cluster.offered() == str(REPLICAS), 30)
    notes["offered"] = cluster.offered()
    names = [f"share-{number}" for number in range(REPLICAS + 1)]
    for name in names:
        cluster.pod(name, LOOK + "; sleep 30", 1)
    until(lambda: [cluster.phase(n) for n in names].count("Running") == REPLICAS, 40)
    time.sleep(2)
    for name in names:
        notes[name] = cluster.told(name)
    cluster.pod("two", LOOK, 2)
    until(lambda: cluster.phase("two") != "Pending", 5)
    notes["two shares"] = cluster.told("two")
    cluster.gone(*names, "two")


def claims(cluster: Cluster, notes: Notes) -> None:
    """Have NVIDIA's DRA driver own the GPU, and pods claim shares of it by memory."""
    from bedplate.components.schedulers.dra import SHARE, WHOLE, objects

    if "device-plugin" in cluster.processes:
        cluster.end("device-plugin")
    for one in objects(limited=False):
        cluster.api.call("POST", "/apis/resource.k8s.io/v1/deviceclasses", one)
    cluster.start(
        "dra-driver", "gpu-kubelet-plugin", f"--node-name={NODE}", "--namespace=kube-system",
        "--image-name=unused", f"--kubeconfig={cluster.folder}/kubeconfig",
        "--nvidia-driver-root=/", "--container-driver-root=/",
        f"--nvidia-cdi-hook-path={HOOK}", "--cdi-root=/var/run/cdi",
        "--feature-gates=ConsumableShares=true,NVMLDeviceHealthCheck=true",
        "--consumable-shares=memory",
    )  # fmt: skip
    path = "/apis/resource.k8s.io/v1/resourceslices"
    notes["slices"] = until(lambda: cluster.api.call("GET", path)["items"], 40)
    wanted = {"small": (SHARE, "2Gi"), "large": (SHARE, "8Gi"), "much": (SHARE, "76Gi")}
    for name, (device_class, memory) in {**wanted, "whole": (WHOLE, "")}.items():
        exactly: dict[str, Any] = {"deviceClassName": device_class}
        if memory:
            exactly["capacity"] = {"requests": {"memory": memory}}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        body = {"metadata": {"name": name}, "spec": spec}
        cluster.api.call("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", body)
        cluster.pod(f"claim-{name}", LOOK + "; sleep 30", 0, claim=name)
        until(lambda name=name: cluster.phase(f"claim-{name}") != "Pending", 15)  # type: ignore[misc]
    time.sleep(2)
    for name in ("small", "large", "much", "whole"):
        notes[name] = cluster.told(f"claim-{name}")
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
        notes[f"{name}: claim"] = cluster.api.call("GET", path).get("status")
    cluster.gone("claim-small", "claim-large", "claim-much", "claim-whole")


PARTS = {"whole": whole, "slices": slices, "claims": claims}


def main(arguments: list[str]) -> int:
    """Start the cluster and try it; the exit status is how many parts failed."""
    out, failed = Path(arguments[0]), 0
    out.mkdir(parents=True, exist_ok=True)
    snapshotter = "overlayfs" if "overlay" in Path("/proc/filesystems").read_text() else "native"
    folder, notes = WORK / "cluster", Notes(out, "cluster")
    cluster = Cluster(folder, snapshotter)
    try:
        cdi.refresh(Host(), cdi.SPECIFICATION, HOOK)
    except cdi.CdiError as error:
        notes["specification"] = str(error)
    try:
        with cluster:
            began = time.monotonic()
            for part in [PARTS[name] for name in arguments[1:] or PARTS]:
                mine = Notes(out, f"cluster-{part.__name__}")
                try:
                    part(cluster, mine)
                except Exception:
                    mine["failed"] = traceback.format_exc()
                    failed += 1
            notes["seconds"] = time.monotonic() - began
    except Exception:
        notes["failed"] = traceback.format_exc()
        cluster.__exit__()
        failed += 1
    for log in [*folder.glob("*.log"), WORK / "containerd.log"]:
        (out / f"cluster-{log.name}").write_bytes(log.read_bytes()[-300000:])
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
