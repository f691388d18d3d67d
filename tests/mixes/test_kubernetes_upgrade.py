"""A cluster goes to the next minor version of Kubernetes while clients write, and loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.mixes.clients import begin, ended, served
from tests.mixes.living import Mix, installed, living
from tests.site.cluster import changed_tasks, node, ready, unwrapped, wait_for
from tests.site.hosts import on_host
from tests.substrate.commands import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

CONTROL_PLANES = ["cp1", "cp2", "cp3"]
WORKERS = ["w1", "w2"]
OLD, NEW = "1.35.6", "1.36.3"
MIX = Mix(
    "newer-mix",
    "10.213.26.0/25",
    CONTROL_PLANES,
    WORKERS,
    kubernetes={"version": OLD},
)
SMALL = Mix(
    "killed-mix",
    "10.213.27.0/25",
    ["cp1"],
    ["w1"],
    kubernetes={"version": OLD},
)
SECONDS = 240.0
#: What the cluster is made with; only this test needs it.
OLDER = ("kubernetes-1.35", "etcd-for-1.35", "etcd-tools-for-1.35", "coredns-for-1.35")
BUILD = [sys.executable, str(ROOT / "tests/substrate/tools/build.py"), *OLDER]


def versions(site: SiteCommands) -> dict[str, set[str]]:
    """Return the versions that the cluster runs: of kubelets, and of images of its own pods."""
    nodes = json.loads(site.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    found = {"kubelet": {one["status"]["nodeInfo"]["kubeletVersion"] for one in nodes}}
    listed = site.kubectl("-n", "kube-system", "get", "pods", "-o", "json").stdout
    for pod in json.loads(listed)["items"]:
        for one in pod["spec"]["containers"]:
            name, _, tag = one["image"].rpartition("/")[2].partition(":")
            found.setdefault(name, set()).add(tag)
    return found


def moved(version: str, etcd: str, dns: str) -> dict[str, set[str]]:
    """Return what `versions` is to find."""
    own = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
    return {name: {f"v{version}"} for name in own} | {"etcd": {etcd}, "coredns": {dns}}


def planned(site: SiteCommands) -> None:
    """Have the site's lock ask for the newer version."""
    settings = site.site / "group_vars/all.yml"
    settings.write_text(settings.read_text().replace(OLD, NEW))
    site.plan()
    site.resolve()


def killed(site: SiteCommands, host: str, *tasks: str, seconds: float = 0.0) -> None:
    """Run the upgrade; kill it so long after tasks have begun on a host, one after the other."""
    command = ["ansible-playbook", "-i", str(site.site), "bedplate.gpu.upgrade", "--forks=1"]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        env=site.environment() | {"NO_COLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "default"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    left, lines = [f": [{host}", *(f"{task}] " for task in tasks)], []
    assert run.stdout is not None
    for line in run.stdout:
        lines.append(line)
        left = left[1:] if left[0] in line else left
        if not left:
            break
    else:
        pytest.fail(f"{left[0]} was never seen:\n{''.join(lines)[-6000:]}")
    time.sleep(seconds)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def nothing_is_left(site: SiteCommands, mix: Mix) -> None:
    """A second run changes nothing, Pulumi notes the version, and all is as the lock says."""
    again = site.playbook("bedplate.gpu.upgrade")
    changed = {name: changed_tasks(again.stdout, name) for name in mix.hosts}
    assert not any(changed.values()), changed
    site.up("cluster")
    site.pulumi("cluster", "preview", "--expect-no-changes")
    site.playbook("playbooks/verify.yml")


@pytest.mark.prove
def test_a_minor_version_comes_while_clients_write(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    before, after = moved(OLD, "3.6.6-0", "v1.13.1"), moved(NEW, "3.6.8-0", "v1.14.2")
    subprocess.run(BUILD, check=True)
    with living(MIX, tmp_path) as site:
        installed(site)
        for name in MIX.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        assert versions(site).items() >= before.items()
        begin(site, "w1", MIX, served(site))

        planned(site)
        refused = site.pulumi("cluster", "preview", check=False)
        assert refused.returncode != 0
        assert "bedplate.gpu.upgrade" in unwrapped(refused.stdout)

        waves = ["-e", json.dumps({"upgrade_waves": [1]})]
        looked = site.playbook("bedplate.gpu.upgrade", *waves, "--check")
        assert "kube-apiserver: v1.35.6 -> v1.36.3" in unwrapped(looked.stdout)
        assert versions(site).items() >= before.items()

        began = time.monotonic()
        site.playbook("bedplate.gpu.upgrade", *waves)
        figures["a minor version of Kubernetes, 3 + 2 hosts"] = {
            "seconds": time.monotonic() - began
        }
        wait_for("the new versions", lambda: versions(site).items() >= after.items(), SECONDS)
        for name in MIX.hosts:
            assert ready(site, name)
        said = ended(site, "w1")
        there = site.kubectl("-n", "written", "get", "configmaps", "-o", "name").stdout
        kept = set(re.findall(r"w-\d+", there))
        print({kind: (len(one["done"]), one["failed"]) for kind, one in said.items()})
        figures["requests while it came"] = {
            f"{kind}, {what}": float(len(one[what]))
            for kind, one in said.items()
            for what in ("done", "failed")
        }
        assert min(len(one["done"]) for one in said.values()) > 500
        assert set(said["api"]["done"]) <= kept
        assert all(len(one["failed"]) <= 1 for one in said.values()), said

        nothing_is_left(site, MIX)


#: Between them a kubelet runs that is no longer the one on the path.
SWITCHED = (
    "Switch to the new version",
    "Configure crictl, and the unit that kubeadm will start, at every boot too",
)


@pytest.mark.prove
def test_runs_that_are_killed_are_finished_by_the_next(tmp_path: Path) -> None:
    """While a control plane's static pods, its kubelet and a worker's are replaced."""
    after = moved(NEW, "3.6.8-0", "v1.14.2")
    subprocess.run(BUILD, check=True)
    with living(SMALL, tmp_path) as site:
        installed(site)
        for name in SMALL.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        planned(site)
        killed(site, "cp1", "Have kubeadm upgrade it", seconds=12.0)
        # The program on the host goes on, and its lock with it: the next run is refused until then.
        on_host(site, "cp1", "while pgrep -f 'kubeadm upgrade' > /dev/null; do sleep 1; done")
        killed(site, "cp1", *SWITCHED)
        assert node(site, "cp1")["spec"]["unschedulable"]
        killed(site, "w1", *SWITCHED)
        assert node(site, "w1")["spec"]["unschedulable"]
        site.playbook("bedplate.gpu.upgrade")
        wait_for("the new versions", lambda: versions(site).items() >= after.items(), SECONDS)
        for name in SMALL.hosts:
            assert ready(site, name)
            assert "unschedulable" not in node(site, name)["spec"]
        nothing_is_left(site, SMALL)
