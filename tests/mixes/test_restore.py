"""All control planes are lost, and come back from a backup: workers run on meanwhile."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import encryption_keys
from tests.mixes.living import Mix, installed, living
from tests.site.cluster import node_names, ready, unwrapped, wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

CONTROL_PLANES = ["cp1", "cp2", "cp3"]
MIX = Mix(
    "lost-mix",
    "10.213.14.0/25",
    CONTROL_PLANES,
    ["w1"],
)
SECONDS = 180.0
PAUSE = "registry.k8s.io/pause:3.10.2"
#: As after a reboot, which takes the links of the pods' network away.
WIPED = """
kubeadm reset --force >/dev/null 2>&1
rm -rf /etc/cni/net.d
for link in cni0 flannel.1; do ip link delete $link 2>/dev/null; done
true
"""
#: Who is no root, as on most sites.
OPS = """
useradd --create-home --shell /bin/bash ops
install -d -o ops -g ops -m 700 /home/ops/.ssh
install -o ops -g ops -m 600 /root/.ssh/authorized_keys /home/ops/.ssh/authorized_keys
echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops
"""
SECRET = "planted-2f61c0"


def runs(site: SiteCommands, name: str, *, gpu: bool = False) -> None:
    """Have a pod that only waits, on the worker."""
    resources = {"limits": {"nvidia.com/gpu": 1}} if gpu else {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "waits", "image": PAUSE, "resources": resources}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    path = site.description.parent / f"{name}.json"
    path.write_text(json.dumps(pod))
    done = site.kubectl("apply", "-f", str(path))
    assert done.returncode == 0, done.stdout


def containers(site: SiteCommands) -> dict[str, str]:
    """Return the containers that run on the worker, by pod, as its runtime knows them."""
    found = json.loads(on_host(site, "w1", "crictl ps -o json"))["containers"]
    pods = {one["labels"]["io.kubernetes.pod.name"]: one["id"] for one in found}
    return {name: at for name, at in pods.items() if name in {"before", "after"}}


def phase(site: SiteCommands, name: str) -> Any:
    """Return what the API says of a pod; nothing where it knows none."""
    done = site.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.prove
def test_three_lost_control_planes_come_back_and_pods_run_on(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    key, certificate = tmp_path / "backup.key", tmp_path / "backup.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=backup", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    with living(MIX, tmp_path) as site:
        installed(site)
        wait_for("the worker", lambda: ready(site, "w1"), SECONDS)
        for name in CONTROL_PLANES:
            on_host(site, name, OPS)
        variables = site.site / "group_vars"
        (variables / "control_plane.yml").write_text("ansible_user: ops\n")
        with (variables / "all.yml").open("a") as file:
            file.write("ansible_become: true\n")
        site.plan()
        site.resolve()
        runs(site, "before", gpu=True)
        wait_for("a pod", lambda: phase(site, "before") == "Running", SECONDS)
        site.kubectl("create", "secret", "generic", "planted", f"--from-literal=word={SECRET}")

        said = unwrapped(
            site.playbook("playbooks/backup.yml", "-e", f"backup_certificate={certificate}").stdout
        )
        assert "keys of etcd at revision" in said
        (saved,) = (site.site / ".bedplate/backups").glob("*.cms")
        for name in CONTROL_PLANES:
            assert not on_host(site, name, "ls -d /var/lib/bedplate/backup 2>/dev/null || true")

        runs(site, "after")
        wait_for("another pod", lambda: phase(site, "after") == "Running", SECONDS)
        before = containers(site)
        assert before.keys() == {"before", "after"}
        arguments = ["-e", f"restore_from={saved}", "-e", f"restore_key={key}"]
        refused = site.playbook("playbooks/restore.yml", *arguments, check=False)
        assert refused.returncode != 0
        assert "a control plane of the cluster is left" in unwrapped(refused.stdout)
        # Each asked alone would say so of itself; those that are named as gone may still serve.
        on_host(site, "cp1", WIPED)
        gone = ["-e", "restore_gone=cp2,cp3"]
        wait_for("the others", lambda: site.kubectl("get", "--raw", "/readyz").stdout == "ok", 60)
        refused = site.playbook("playbooks/restore.yml", *arguments, *gone, check=False)
        assert "a cluster answers at the endpoint" in unwrapped(refused.stdout)
        limited = site.playbook("playbooks/restore.yml", *arguments, "--limit", "cp1", check=False)
        assert "asks each control plane whether it is left" in unwrapped(limited.stdout)

        for name in CONTROL_PLANES[1:]:
            on_host(site, name, WIPED)
        began = time.monotonic()
        site.playbook("playbooks/site.yml", "--limit", "control_plane")
        prepared = time.monotonic()
        site.playbook("playbooks/restore.yml", *arguments)
        restored = time.monotonic()
        site.pulumi("cluster", "refresh", "--yes", "--skip-preview")
        site.up("cluster")
        joined = time.monotonic()
        figures["all control planes lost: seconds until"] = {
            "hosts are prepared": prepared - began,
            "the API answers": restored - began,
            "all three are members": joined - began,
        }
        assert node_names(site) == {*MIX.hosts}
        wait_for("all nodes", lambda: all(ready(site, name) for name in MIX.hosts), SECONDS)
        # What ran is the same container; what the backup does not know has ended.
        wait_for("one pod", lambda: containers(site) == {"before": before["before"]}, SECONDS)
        assert phase(site, "before") == "Running"
        assert phase(site, "after") == ""
        word = site.kubectl("get", "secret", "planted", "-o", "jsonpath={.data.word}").stdout
        assert base64.b64decode(word).decode() == SECRET
        for name in CONTROL_PLANES:
            key = on_host(site, name, f"sha256sum < {encryption_keys.FILE}")
            assert key == on_host(site, "cp1", f"sha256sum < {encryption_keys.FILE}"), name
        # A new pod is scheduled and gets its GPU: controllers and kubelets hear of changes.
        runs(site, "new", gpu=True)
        wait_for("a new pod", lambda: phase(site, "new") == "Running", SECONDS)
        etcd = site.kubectl(
            "-n", "kube-system", "get", "pods", "-l", "component=etcd", "-o", "name"
        )
        assert len(etcd.stdout.split()) == 3
        site.pulumi("cluster", "preview", "--expect-no-changes")
        site.playbook("playbooks/verify.yml")
