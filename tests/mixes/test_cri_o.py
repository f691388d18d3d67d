"""CRI-O below a real kubelet: one machine from bare host to GPU pods, and what it lives through.

Hosts that are containers need two things that a machine has by itself: `prepare` says which.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.mixes import runc_in_a_container
from tests.mixes.living import Mix, installed, living
from tests.mixes.moves import go_on, upgraded
from tests.mixes.pods import Pods, mode
from tests.schedulers.nodes import GPU
from tests.site.cluster import allocatable, await_boot, node, recap, wait_for
from tests.site.hosts import boot_id, on_host
from tests.substrate.commands import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

HOST = "one"
CRI_O = Mix(
    "crio-mix",
    "10.213.21.0/25",
    [HOST],
    [HOST],
    settings={"bedplate_container_runtime": {"name": "cri-o", "source": "archive"}},
)


#: systemd shares the mounts of a machine, and not those of a container.
SHARED = """[Unit]
DefaultDependencies=no
Before=crio.service
[Service]
Type=oneshot
ExecStart=/bin/mount --make-rshared /
[Install]
WantedBy=sysinit.target
"""


def prepare(site: SiteCommands) -> None:
    """Have mounts shared, which CRI-O asks of a pod that mounts `/`; and give CRI-O its runc."""
    unit = "/etc/systemd/system/tests-shared.service"
    on_host(site, HOST, f"cat > {unit} <<'END'\n{SHARED}END\nsystemctl enable --now tests-shared")
    to = f"bedplate-{CRI_O.name}-{HOST}:/usr/local/sbin/runc"
    subprocess.run(["podman", "cp", runc_in_a_container.__file__, to], check=True)


@pytest.mark.prove
def test_cri_o_below_a_kubelet(tmp_path: Path) -> None:
    """Two pods have a GPU each, which they keep when kubelet and CRI-O start again; a reboot."""
    build = [sys.executable, "tests/substrate/tools/build.py", "cri-o"]
    subprocess.run(build, cwd=ROOT, check=True)
    with living(CRI_O, tmp_path) as site:
        prepare(site)
        installed(site)
        runtime = node(site, HOST)["status"]["nodeInfo"]["containerRuntimeVersion"]
        assert runtime.startswith("cri-o://")
        wait_for("the GPUs", lambda: allocatable(site) == {HOST: 2})
        each_its_own(site, Pods(site))
        rows = recap(site.playbook().stdout)
        assert rows[HOST]["changed"] == 0
        site.playbook("playbooks/verify.yml")
        rebooted(site, Pods(site))
        shared(site, Pods(site))
        site.up("cluster")
        site.pulumi("cluster", "preview", "--expect-no-changes")
        site.pulumi("cluster", "destroy", "--yes", "--skip-preview")
        left = "find /etc/kubernetes -name '*.conf' -o -path '*/manifests/kube-*'"
        wait_for("the machine has left its cluster", lambda: not on_host(site, HOST, left))
        assert on_host(site, HOST, "crictl pods --quiet") == ""


def each_its_own(site: SiteCommands, pods: Pods) -> None:
    """Each pod sees its own GPU alone, whatever it says, and a third waits with the reason."""
    for name in ("a", "b"):
        pods.start(name, NVIDIA_VISIBLE_DEVICES="all")
    seen = {name: pods.seen(name) for name in ("a", "b")}
    assert sorted(len(one) for one in seen.values()) == [2, 2]
    assert {card for _, card in seen.values()} == {"nvidia0", "nvidia1"}
    assert len({uuid for uuid, _ in seen.values()}) == 2
    pods.start("c")
    pods.waits("c", f"Insufficient {GPU}")
    pods.kept(HOST, "a", "b")
    on_host(site, HOST, "systemctl restart crio.service kubelet.service")
    answers = ("exec", "a", "--", "true")
    wait_for("the kubelet answers", lambda: site.kubectl(*answers).returncode == 0)
    wait_for("the GPUs", lambda: allocatable(site) == {HOST: 2})
    pods.kept(HOST, "a", "b")
    go_on(site, ("a", "b"))
    pods.delete("a")
    assert pods.seen("c") == seen["a"]
    pods.delete("b", "c")


def rebooted(site: SiteCommands, pods: Pods) -> None:
    """The node is back after a reboot, with its GPUs, and a pod has one."""
    site.substrate("reboot", HOST)
    served = ("get", "--raw=/readyz")
    wait_for("the API server", lambda: site.kubectl(*served).returncode == 0)
    await_boot(site, HOST, boot_id(site, HOST), {HOST: 2})
    pods.start("after")
    assert len(pods.seen("after")) == 2
    pods.delete("after")


def shared(site: SiteCommands, pods: Pods) -> None:
    """The pool goes to time-slicing by an upgrade, which drains the node."""
    mode(site, mode="time-slicing", replicas=2)
    site.playbook(check=False)  # its evidence is of the new mode, which the node does not have yet
    upgraded(site, HOST)
    wait_for("the shares", lambda: allocatable(site) == {HOST: 4})
    for name in ("d", "e", "f"):
        pods.start(name)
    assert len({tuple(pods.seen(name)) for name in ("d", "e", "f")}) == 2
    pods.delete("d", "e", "f")
