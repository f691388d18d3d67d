"""The same cluster by bare kubeadm commands, as an administrator would type them: the yardstick."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bedplate.components.cluster import artifact, flannel
from bedplate.components.cluster.cluster import control_plane_args
from bedplate.components.cluster.wished import cluster_args
from bedplate.lock import load_lock
from bedplate.portable import encryption_keys
from bedplate.provider import kubeadm
from bedplate.provider.model import ControlPlaneInputs, Machine
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

IGNORED = "--ignore-preflight-errors=SystemVerification"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"


def write(site: SiteCommands, host: str, path: str, text: str) -> None:
    """Put a file on a host."""
    on_host(site, host, f"cat > {path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE\n")


def make_cluster(site: SiteCommands) -> float:
    """Initialise, join all at once, wait for the GPUs; return the seconds it took."""
    lock = load_lock(site.site)
    args = cluster_args(lock, artifact.manifest(site.site, lock, "flannel-manifest"), 300)
    (first,) = args["control_planes"]
    inputs = ControlPlaneInputs.model_validate(control_plane_args(args, first))
    name = str(first["name"])
    started = time.monotonic()
    write(site, name, "/root/init.yaml", kubeadm.init_config(inputs))
    on_host(site, name, "mkdir -p /etc/kubernetes/pki")
    write(site, name, encryption_keys.FILE, encryption_keys.for_a_new_cluster())
    on_host(site, name, f"kubeadm init --config /root/init.yaml {IGNORED}")
    write(site, name, "/root/flannel.yml", args["cni_manifest"])
    on_host(site, name, f"{KUBECTL} apply -f /root/flannel.yml")
    line = on_host(site, name, "kubeadm token create --print-join-command")
    invitation = kubeadm.read_invitation(line)

    def join(worker: dict[str, object]) -> None:
        machine = Machine.model_validate(worker)
        config = kubeadm.join_config(machine, inputs.endpoint, invitation)
        write(site, machine.name, "/root/join.yaml", config)
        on_host(site, machine.name, f"kubeadm join --config /root/join.yaml {IGNORED}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(join, [dict(worker) for worker in args["workers"]]))
    for host, gpu in args["gpus"].items():
        wait = f"{KUBECTL} wait node/{host} --timeout=300s --for"
        on_host(site, name, f"{wait}=condition=Ready")
        field = gpu["resource"].replace(".", "\\.")
        on_host(site, name, f"{wait}=jsonpath='{{.status.allocatable.{field}}}'={gpu['count']}")
    return time.monotonic() - started


def assert_same_network(site: SiteCommands) -> None:
    """Fail if the stack changes flannel's manifest so much that the yardstick measures another."""
    lock = load_lock(site.site)
    text = artifact.manifest(site.site, lock, "flannel-manifest")
    subnet = lock.model_dump(mode="json")["cluster"]["kubernetes"]["pod_subnet"]
    kinds = {item["kind"] for item in flannel.objects(text, subnet)}
    assert "DaemonSet" in kinds, kinds
