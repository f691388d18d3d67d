"""A real control plane as processes on loopback: etcd, API server, controllers and scheduler."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import yaml

from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.certificates import Authority
from tests.schedulers.processes import Process, free_port
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ADMINISTRATORS: Final = "system:masters"
# There are no kubelets: nobody renews the nodes' leases or removes the taint of a new node.
WITHOUT_KUBELETS: Final = ("node-ipam-controller", "node-lifecycle-controller")


class Limits(NamedTuple):
    """What bounds the requests of controllers and scheduler.

    Attributes:
        controllers: flags of kube-controller-manager.
        scheduler: fields of the scheduler's connection.
        api: flags of kube-apiserver.
    """

    controllers: tuple[str, ...] = ()
    scheduler: Mapping[str, int] = {}
    api: tuple[str, ...] = ()


CONNECTION: Final = {"qps": 2000, "burst": 4000}
FAST: Final = Limits(
    ("--kube-api-qps=2000", "--kube-api-burst=4000"),
    CONNECTION,
    ("--enable-priority-and-fairness=false",),
)
#: The programs' own limits: what kubeadm leaves, and the cluster stack with it.
OWN: Final = Limits()


def tool(name: str) -> Path:
    """Return the folder of a tool's programs. Raises FileNotFoundError with the command to run."""
    folder = build.path(build.tools()[name]) / "bin"
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{name} is not built — {folder} — run tests/substrate/tools/build.py {name}"
        )
    return folder


class ControlPlane:
    """Starts on entering and ends on leaving, whole or half started.

    Attributes:
        scheduler_config: fields of KubeSchedulerConfiguration (profiles, extenders); the client's
            connection and leader election are set here.
        gates: feature gates of all programs.
        aggregates: whether other API servers, such as Kueue's, learn who asks them.
        limits: how many requests controllers and scheduler may send, and whether the API server
            puts them in order.
        api: an administrator's client.
        kubeconfig: an administrator's kubeconfig.
    """

    def __init__(
        self,
        folder: Path,
        scheduler_config: Mapping[str, Any] | None = None,
        gates: Mapping[str, bool] | None = None,
        api_flags: Sequence[str] = (),
        *,
        aggregates: bool = False,
        limits: Limits = FAST,
    ) -> None:
        self.folder = folder
        self._limits = limits
        self.scheduler_config = dict(scheduler_config or {})
        self.gates = dict(gates or {})
        self.authority = Authority(folder)
        self._api_flags = [*api_flags, *(self._front_proxy() if aggregates else [])]
        self.kubeconfig = folder / "kubeconfig"
        self.processes: dict[str, Process] = {}
        self.server = f"https://127.0.0.1:{free_port()}"
        self.admin = self.authority.issue("admin", ADMINISTRATORS)
        self.kubeconfig.write_text(yaml.safe_dump(self.as_kubeconfig(self.admin)))
        self.api = Api(self.server, self.authority.path, self.admin)

    def _front_proxy(self) -> list[str]:
        certificate, key = self.authority.issue("front-proxy-client")
        return [
            f"--requestheader-client-ca-file={self.authority.path}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={certificate}",
            f"--proxy-client-key-file={key}",
        ]

    def _kubeconfig_of(self, program: str) -> Path:
        """Return a kubeconfig of a program by its own name, which admission policies may know."""
        path = self.folder / f"{program}.kubeconfig"
        certificate = self.authority.issue(f"system:{program}", ADMINISTRATORS)
        path.write_text(yaml.safe_dump(self.as_kubeconfig(certificate)))
        return path

    def as_kubeconfig(self, certificate: tuple[Path, Path]) -> dict[str, Any]:
        """Return the kubeconfig of who has a certificate."""
        cluster = {"server": self.server, "certificate-authority": str(self.authority.path)}
        user = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }

    def __enter__(self) -> Self:
        try:
            self._start_api()
            self._start_controllers()
            self.start_scheduler()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, the last started first."""
        for process in reversed(self.processes.values()):
            process.kill()  # nothing of theirs is kept

    def add(self, name: str, command: Sequence[str], **environment: str) -> Process:
        """Start another program that ends with the control plane; its log is FOLDER/NAME.log."""
        process = Process(command, self.folder / f"{name}.log", {**os.environ, **environment})
        self.processes[name] = process
        process.start()
        return process

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Run kubectl as administrator and return what it printed, errors with it."""
        command = [str(tool("kubernetes") / "kubectl"), f"--kubeconfig={self.kubeconfig}"]
        done = subprocess.run(
            [*command, *arguments], input=given, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + done.stderr

    def _healthy(self, path: str = "/readyz") -> bool:
        try:
            return self.api.call("GET", path) == "ok"
        except (ApiError, OSError):
            return False

    def _gates(self) -> list[str]:
        named = ",".join(f"{name}={str(on).lower()}" for name, on in self.gates.items())
        return [f"--feature-gates={named}"] if named else []

    def _start_api(self) -> None:
        etcd, peers = free_port(), free_port()
        self.add(
            "etcd",
            [
                str(tool("etcd") / "etcd"),
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
        )
        certificate, key = self.authority.issue("kube-apiserver")
        tokens = self.authority.service_account_key()
        api = self.add(
            "kube-apiserver",
            [
                str(tool("kubernetes") / "kube-apiserver"),
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                f"--secure-port={self.server.rpartition(':')[2]}",
                "--bind-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/16",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--client-ca-file={self.authority.path}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={tokens}",
                f"--service-account-signing-key-file={tokens}",
                "--authorization-mode=Node,RBAC",
                "--disable-admission-plugins=TaintNodesByCondition",
                "--allow-privileged=true",
                "--request-timeout=10m",  # a busy machine's lists end in the middle after one
                *self._limits.api,
                *self._gates(),
                *self._api_flags,
            ],
        )
        api.until(self._healthy)

    def _serving(self, name: str) -> list[str]:
        certificate, key = self.authority.issue(name)
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--kubeconfig={self._kubeconfig_of(name)}",
        ]

    def _start_controllers(self) -> None:
        controllers = self.add(
            "kube-controller-manager",
            [
                str(tool("kubernetes") / "kube-controller-manager"),
                *self._serving("kube-controller-manager"),
                f"--root-ca-file={self.authority.path}",
                f"--cluster-signing-cert-file={self.authority.path}",
                f"--cluster-signing-key-file={self.authority.key_file()}",
                f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
                f"--controllers={','.join(['*', *(f'-{name}' for name in WITHOUT_KUBELETS)])}",
                *self._limits.controllers,
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                *self._gates(),
            ],
        )
        where = Api.path("serviceaccounts", "v1", "default", "default")

        def account() -> bool:
            try:
                return bool(self.api.call("GET", where))
            except ApiError:
                return False

        controllers.until(account)

    def start_scheduler(self, config: Mapping[str, Any] | None = None) -> None:
        """Start the scheduler, or start it again with another configuration."""
        if "kube-scheduler" in self.processes:
            self.processes["kube-scheduler"].stop()
        if config is not None:
            self.scheduler_config = dict(config)
        path = self.folder / "scheduler.yml"
        kubeconfig = str(self._kubeconfig_of("kube-scheduler"))
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig, **self._limits.scheduler},
            "leaderElection": {"leaderElect": False},
            **self.scheduler_config,
        }
        path.write_text(yaml.safe_dump(whole))
        serving = [flag for flag in self._serving("kube-scheduler") if "kubeconfig" not in flag]
        command = [str(tool("kubernetes") / "kube-scheduler"), f"--config={path}", *serving]
        process = self.add("kube-scheduler", [*command, *self._gates()])
        port = next(flag for flag in serving if "secure-port" in flag).rpartition("=")[2]
        probe = Api(f"https://127.0.0.1:{port}", self.authority.path, self.admin)

        def healthy() -> bool:
            try:
                return probe.call("GET", "/readyz") == "ok"
            except (ApiError, OSError):
                return False

        process.until(healthy)

    def namespace(self, name: str, **labels: str) -> str:
        """Make a namespace and wait for its service account, which pods need."""
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }
        )
        eventually(lambda: self.api.get("serviceaccounts", "v1", name))
        return name

    def clear(self, namespace: str, *more: tuple[str, str]) -> None:
        """Delete Jobs, Pods and `more` (plural, version) of a namespace; wait until all are gone.

        Nobody is there to end a bound pod with grace.
        """
        for plural, version in (("jobs", "batch/v1"), *more):
            self.api.delete(Api.path(plural, version, namespace))

        def gone() -> bool:
            self.api.delete(Api.path("pods", "v1", namespace), gracePeriodSeconds=0)
            kinds = (("jobs", "batch/v1"), ("pods", "v1"), *more)
            return not any(self.api.get(plural, version, namespace) for plural, version in kinds)

        eventually(gone, 120, pause=0.3)
