"""GPUs by claim in real pods: shares by memory, restarts, a reboot, a fault, and who owns them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from bedplate.components.schedulers.dra import LIMIT, SHARE, WHOLE, objects
from bedplate.portable.dra import DRIVER, UNIT
from tests.mixes.living import Mix, installed, living
from tests.mixes.pods import Pods, mode, play
from tests.schedulers.dra import template
from tests.site.cluster import allocatable, ready, unwrapped, wait_for
from tests.site.hosts import boot_id, on_host
from tests.substrate.commands import BIN
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

HOST = "one"
CLAIMS = Mix(
    "claims-mix",
    "10.213.15.128/25",
    [HOST],
    [HOST],
)


def published(site: SiteCommands) -> dict[str, list[str]]:
    """Return the taints of each GPU of the cluster's slices, by its name."""
    listed = json.loads(site.kubectl("get", "resourceslices", "-o", "json").stdout)["items"]
    devices = [one for of in listed for one in of["spec"].get("devices", [])]
    return {one["name"]: [taint["key"] for taint in one.get("taints", [])] for one in devices}


@pytest.mark.prove
def test_gpus_by_claim(tmp_path: Path) -> None:
    with living(CLAIMS, tmp_path) as site:
        mode(site, mode="dra")
        installed(site)
        assert published(site) == {"gpu-0": [], "gpu-1": []}
        assert allocatable(site) == {}, "no device plugin has ever been there"
        pods = Pods(site)
        pods.apply(*objects(limited=False), template("default", "whole", None, WHOLE))
        pods.apply(
            *(template("default", f"share-{n}gi", f"{n}Gi", SHARE) for n in (1, 2, 5, 8, 40))
        )
        site.playbook("playbooks/verify.yml")
        whole_gpus(pods)
        shares(pods)
        guard(pods)
        what_restarts(site, pods)
        fault(site, pods)
        owners(site, pods)


def whole_gpus(pods: Pods) -> None:
    """Each claim has a GPU alone, and its pod sees no other whatever it says."""
    pods.start("w1", "whole", NVIDIA_VISIBLE_DEVICES="all")
    pods.start("w2")  # nvidia.com/gpu: 1, as in manifests that know no claims
    seen = [pods.seen("w1"), pods.seen("w2")]
    assert {uuid for uuid, _ in seen} == set(uuids(pods.site))
    assert {device for _, device in seen} == {"nvidia0", "nvidia1"}
    pods.kept(HOST, "w1", "w2")
    pods.delete("w1", "w2")


def uuids(site: SiteCommands) -> list[str]:
    """Return the UUIDs of the host's GPUs."""
    query = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
    return on_host(site, HOST, query).split()


def shares(pods: Pods) -> None:
    """Sizes lie beside each other on a GPU until it is full; the next waits, and takes what is
    released."""
    for size in (2, 8, 40):
        pods.start(f"s{size}", f"share-{size}gi")
    assert pods.seen("s2") == pods.seen("s8")
    pods.waits("s40")
    pods.delete("s40")
    pods.start("s5", "share-5gi")
    pods.start("w1", "whole")
    assert pods.seen("s5") == pods.seen("s2")
    assert pods.seen("w1") != pods.seen("s2")
    pods.start("s1", "share-1gi")
    pods.waits("s1")
    pods.delete("s5")
    assert pods.seen("s1") == pods.seen("s2")
    pods.delete("w1")


def guard(pods: Pods) -> None:
    """Where shares are limited, a pod has the limit of its share and cannot say another.

    This driver's claims do not have the container start with the hook that sets the limit, which is
    why the plan has limited shares and says that they cannot be installed.
    """
    policies = objects(limited=True)[2:]
    pods.apply(*policies)
    own = pods.made("own", "share-2gi", **{LIMIT: "15360"})
    right = pods.made("right", "share-2gi")
    wait_for("the limit is written", lambda: not pods.refused(right), 120)
    wait_for("no other is taken", lambda: "says its own GPU memory limit" in pods.refused(own), 120)
    pods.apply(right)
    pods.running("right")
    assert pods.site.kubectl("exec", "right", "--", "printenv", LIMIT).stdout.strip() == "2048"
    hook = "apply-cuda-memory-limits"
    assert hook in on_host(pods.site, HOST, "cat /etc/cdi/*.yaml"), "the toolkit has it"
    of_claims = on_host(pods.site, HOST, "cat /var/run/cdi/*")
    assert "nvidia-cdi-hook" in of_claims
    assert hook not in of_claims
    pods.delete("right")
    pods.withdraw(*policies)


def what_restarts(site: SiteCommands, pods: Pods) -> None:
    """Pods run on under restarts of the driver and of kubelet, and come back after a reboot."""
    before = pods.seen("s2")
    for unit in (UNIT, "kubelet.service"):
        on_host(site, HOST, f"systemctl restart {unit}")
        pods.start("new", "share-2gi")
        pods.running("new")
        pods.delete("new")
        (status,) = pods.get("s2")["status"]["containerStatuses"]
        assert status["restartCount"] == 0
    assert pods.seen("s2") == before

    site.substrate("reboot", HOST)
    boot = boot_id(site, HOST)

    wait_for("the share's pod runs again", lambda: restarts(site, "s2") == 1, 300)
    assert boot_id(site, HOST) == boot
    assert ready(site, HOST)
    assert pods.seen("s2") == before


def restarts(site: SiteCommands, name: str) -> int | None:
    """Return how often a pod's container has started again, None while it doesn't run."""
    found = site.kubectl("get", "pod", name, "-o", "json")
    if found.returncode != 0:
        return None
    (status,) = json.loads(found.stdout)["status"]["containerStatuses"]
    return int(status["restartCount"]) if "running" in status["state"] else None


def fault(site: SiteCommands, pods: Pods) -> None:
    """A GPU with an XID error is tainted: its pods stay, and new claims go elsewhere."""
    description = load(site.description)
    container = description.container(description.host(HOST))
    command = ["python", "-m", "tests.substrate.gpu.replug", container, "--fault"]
    number = pods.seen("s2")[1].removeprefix("nvidia")
    subprocess.run([BIN / command[0], *command[1:], number, "79"], check=True)
    tainted = {f"gpu-{number}": [f"{DRIVER}/xid"]}
    wait_for("the GPU's taint", lambda: tainted.items() <= published(site).items())
    pods.start("elsewhere", "share-2gi")
    assert pods.seen("elsewhere")[0] != pods.seen("s2")[0]
    pods.delete("elsewhere")
    told = unwrapped(site.playbook("playbooks/verify.yml", check=False).stdout)
    assert "no GPU is tainted" in told
    # The fault lasts until a reboot; the GPU is then whole for the device plugin too.
    site.substrate("reboot", HOST)
    wait_for("the share's pod runs once more", lambda: restarts(site, "s2") == 2, 300)
    wait_for("no taint", lambda: published(site) == {"gpu-0": [], "gpu-1": []}, 120)


def owners(site: SiteCommands, pods: Pods) -> None:
    """One owner of a host's GPUs, and it goes once no pod has a claim."""
    assert "the GPUs have an owner already" in play(site, "nvidia_device_plugin", "configure")
    claims = site.kubectl("get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.uid}")
    assert claims.stdout.split()
    refused = play(site, "nvidia_dra_driver", "remove")
    assert "pods have claims on the host's GPUs" in refused
    assert all(f"{uid} of pod s" in refused for uid in claims.stdout.split())
    assert on_host(site, HOST, f"systemctl is-active {UNIT}").strip() == "active"

    mode(site, mode="none")
    # Its evidence names the plugin that is not there yet.
    told = unwrapped(site.playbook(check=False).stdout)
    change = "the GPUs go from the DRA driver to the device plugin"
    assert f"deferred until the node is drained: {change}" in told
    pods.running("s2")
    bare = "-e upgrade_delete_bare_pods=true -e upgrade_failure_budget=0"
    site.playbook("playbooks/upgrade.yml", *bare.split())
    wait_for("the device plugin's GPUs", lambda: allocatable(site) == {HOST: 2})
    wait_for("no slice", lambda: published(site) == {}, 120)
    assert "gpu-kubelet-plugin" not in on_host(site, HOST, "ls /usr/local/bin")
    site.playbook("playbooks/verify.yml")
