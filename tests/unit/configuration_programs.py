"""The real kubelet and kube-proxy, asked whether they take a configuration.

kubelet has no way to check one alone. It is started over an unused API server and a container
runtime that only answers who it is, in namespaces of its own, and stops at a sysctl that no kernel
has: the last thing that it looks at before it does anything.
"""

from __future__ import annotations

import subprocess
from concurrent import futures
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import yaml

from bedplate.portable.node_reserve import RESERVED
from tests.schedulers.control_plane import tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LAST = "last.of.all"
#: What kubelet says when it has taken everything before that.
TAKEN = f'the sysctls \\"{LAST}\\" are not known to be namespaced'
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "current-context": "none",
    "users": [{"name": "none", "user": {}}],
}
#: What it would write lies in file systems that go with it.
STARTED = "mount -t tmpfs none /var/lib && mount -t tmpfs none /var/log && exec "


class _Runtime(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A container runtime that says who it is, and nothing else."""

    def service(self, handler_call_details: Any) -> Any:
        """Answer Version, and everything else with an empty message."""
        name = handler_call_details.method.rpartition("/")[2]
        texts = enumerate(("0.1.0", "double", "2.0.0", "v1"), 1)
        version = b"".join(bytes([n << 3 | 2, len(text)]) + text.encode() for n, text in texts)

        def answer(_: bytes, context: Any) -> bytes:
            if name == "RuntimeConfig":
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "kubelet's own setting counts")
            return version if name == "Version" else b""

        return grpc.unary_unary_rpc_method_handler(answer)


class Programs:
    """Asks the programs of a release. `socket` is where the runtime listens."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self._folder, self._socket = folder, socket
        (folder / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))

    def refusal(self, document: str, name: str, values: Mapping[str, Any]) -> str | None:
        """Return why a program refuses a configuration, None if it takes it."""
        ask = self._kubelet if document == "kubelet" else self._kube_proxy
        return ask(self._folder / f"{document}-{name}.yaml", values)

    def _kubelet(self, file: Path, values: Mapping[str, Any]) -> str | None:
        own: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            # This machine's, not the configuration's.
            "failCgroupV1": False,
            "failSwapOn": False,
        }
        if not any(values.get(name) for name in RESERVED):
            own["kubeReserved"] = {"cpu": "100m", "memory": "512Mi"}  # as the role does it
        sysctls = {"allowedUnsafeSysctls": [*(values.get("allowedUnsafeSysctls") or []), LAST]}
        file.write_text(yaml.safe_dump({**own, **values, **sysctls}))
        flags = {
            "config": file,
            "kubeconfig": self._folder / "kubeconfig",
            "root-dir": "/var/lib/k",
        }
        flags |= {"cert-dir": "/var/lib/pki", "hostname-override": "node"}
        command = [str(tool("kubernetes") / "kubelet"), *(f"--{k}={v}" for k, v in flags.items())]
        said = self._said(["unshare", "--mount", "--net", "sh", "-c", STARTED + " ".join(command)])
        return None if TAKEN in said else said

    def _kube_proxy(self, file: Path, values: Mapping[str, Any]) -> str | None:
        own = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
        file.write_text(yaml.safe_dump({**own, **values}))
        out = file.with_suffix(".out")
        said = self._said(
            [str(tool("kubernetes") / "kube-proxy"), f"--config={file}", f"--write-config-to={out}"]
        )
        return None if out.exists() else said

    def _said(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        errors = [line for line in done.stderr.splitlines() if "command failed" in line]
        # One that stops otherwise has panicked, as kubelet does over an unknown gate.
        return "\n".join(errors) or done.stderr[-2000:]


@contextmanager
def programs(folder: Path) -> Iterator[Programs]:
    """Yield the programs, with a runtime for kubelet."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_Runtime(),))
    server.add_insecure_port(f"unix:{folder}/cri.sock")
    server.start()
    try:
        yield Programs(folder, folder / "cri.sock")
    finally:
        server.stop(None).wait()
