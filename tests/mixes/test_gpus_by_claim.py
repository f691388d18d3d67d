"""GPUs by claim in real pods: shares by memory, restarts, a reboot, a fault, and who owns them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.portable.dra import DRIVER, UNIT
from bedplate.schedulers.dra import SHARE, WHOLE, objects
from tests.mixes.living import Mix, installed, living
from tests.schedulers.dra import pod, template
from tests.site.cluster import allocatable, ready, unwrapped, wait_for
from tests.site.hosts import boot_id, on_host
from tests.substrate.commands import BIN, ROOT
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

ADDRESS = "10.213.15.139"
HOST = "one"
CLAIMS = Mix(
    "claims-mix",
    "10.213.15.128/25",
    "10.213.15.129",
    {HOST: ADDRESS},
    [HOST],
    {"control_plane": [HOST]},
    {"endpoint": f"{ADDRESS}:6443"},
)
IMAGE = "docker.io/library/debian:12-slim"
VARIABLES = ROOT / "playbooks/vars/from_lock.yml"
#: Prints the cards that the container sees, by UUID and by device node, and stays.
LOOK = "nvidia-smi -L; ls /dev | grep -E '^nvidia[0-9]+$'; exec sleep 86400"
PENDING = "cannot allocate all claims"


class Pods:
    """Pods that look at their GPUs, in the namespace default."""

    def __init__(self, site: SiteCommands) -> None:
        self.site = site

    def apply(self, *items: dict[str, Any]) -> None:
        """Apply objects."""
        path = self.site.site / ".bedplate" / "tests.yml"
        path.write_text(yaml.safe_dump_all(items))
        done = self.site.kubectl("apply", "-f", str(path))
        assert done.returncode == 0, done.stdout

    def start(self, name: str, *templates: str, **env: str) -> None:
        """Make a pod that has a claim by each template; without one it asks for one GPU."""
        made = pod("default", name, *templates, **env)
        container = made["spec"]["containers"][0]
        container |= {"image": IMAGE, "command": ["sh", "-c", LOOK]}
        if not templates:
            container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        made["spec"]["terminationGracePeriodSeconds"] = 1
        self.apply(made)

    def get(self, name: str) -> dict[str, Any]:
        """Return a Pod object."""
        found: dict[str, Any] = json.loads(
            self.site.kubectl("get", "pod", name, "-o", "json").stdout
        )
        return found

    def running(self, *names: str) -> None:
        """Wait until pods run."""
        for name in names:
            wait_for(
                f"pod {name} runs",
                lambda name=name: self.get(name)["status"].get("phase") == "Running",
            )

    def seen(self, name: str) -> list[str]:
        """Return what a pod sees: UUIDs of its cards, then their device nodes."""
        self.running(name)
        said: list[str] = []

        def told() -> bool:
            said[:] = self.site.kubectl("logs", name, "--tail=2").stdout.splitlines()
            return len(said) == 2

        wait_for(f"pod {name} says what it sees", told, 60)
        return [said[0].partition("(UUID: ")[2].rstrip(")"), said[1]]

    def waits(self, name: str) -> str:
        """Return why the scheduler does not place a pod."""
        reason: list[str] = []

        def told() -> bool:
            of = self.get(name)["status"].get("conditions", [])
            reason[:] = [one.get("message", "") for one in of if one["type"] == "PodScheduled"]
            return bool(reason) and PENDING in reason[0]

        wait_for(f"pod {name} waits with a reason", told, 60)
        return reason[0]

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        self.site.kubectl("delete", "pod", *names, "--timeout=120s")


def play(site: SiteCommands, role: str, entry: str) -> str:
    """Run an entry point of a role on the host and return what was printed."""
    task = {
        "name": "Run it",
        "ansible.builtin.include_role": {"name": f"bedplate.gpu.{role}", "tasks_from": entry},
    }
    book = {"name": "Run it", "hosts": "gpu_pools", "gather_facts": False, "tasks": [task]}
    path = site.site / ".bedplate" / "play.yml"
    path.write_text(yaml.safe_dump([book | {"vars_files": [str(VARIABLES)]}]))
    return unwrapped(site.playbook(str(path), check=False).stdout)


def published(site: SiteCommands) -> dict[str, list[str]]:
    """Return the taints of each GPU of the cluster's slices, by its name."""
    listed = json.loads(site.kubectl("get", "resourceslices", "-o", "json").stdout)["items"]
    devices = [one for of in listed for one in of["spec"].get("devices", [])]
    return {one["name"]: [taint["key"] for taint in one.get("taints", [])] for one in devices}


def mode(site: SiteCommands, name: str) -> None:
    """Have the site share its GPUs another way, and decide it again."""
    settings = site.site / "group_vars/pool_gpu.yml"
    content = yaml.safe_load(settings.read_text())
    settings.write_text(yaml.safe_dump(content | {"bedplate_sharing": {"mode": name}}))
    if (site.site / ".bedplate.lock.yml").exists():
        site.plan()
        site.resolve()


@pytest.mark.prove
def test_gpus_by_claim(tmp_path: Path) -> None:
    with living(CLAIMS, tmp_path) as site:
        mode(site, "dra")
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

    def back() -> bool:
        found = site.kubectl("get", "pod", "s2", "-o", "json")
        if found.returncode != 0:
            return False
        (status,) = json.loads(found.stdout)["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    wait_for("the share's pod runs again", back, 300)
    assert boot_id(site, HOST) == boot
    assert ready(site, HOST)
    assert pods.seen("s2") == before


def fault(site: SiteCommands, pods: Pods) -> None:
    """A GPU with an XID error is tainted: its pods stay, and new claims go elsewhere."""
    description = load(site.description)
    container = description.container(description.host(HOST))
    command = ["python", "-m", "tests.substrate.gpu.replug", container, "--fault"]
    number = pods.seen("s2")[1].removeprefix("nvidia")
    subprocess.run([BIN / command[0], *command[1:], number, "79"], check=True)
    tainted = {f"gpu-{number}": [f"{DRIVER}/xid"]}
    wait_for("the GPU's taint", lambda: tainted.items() <= published(site).items(), 60)
    pods.start("elsewhere", "share-2gi")
    assert pods.seen("elsewhere")[0] != pods.seen("s2")[0]
    pods.delete("elsewhere")
    told = unwrapped(site.playbook("playbooks/verify.yml", check=False).stdout)
    assert "no GPU is tainted" in told


def owners(site: SiteCommands, pods: Pods) -> None:
    """One owner of a host's GPUs, and it goes once no pod has a claim."""
    assert "the GPUs have an owner already" in play(site, "nvidia_device_plugin", "configure")
    claims = site.kubectl("get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.uid}")
    assert claims.stdout.split()
    refused = play(site, "nvidia_dra_driver", "remove")
    assert "pods have claims on the host's GPUs" in refused
    assert all(f"{uid} of pod s" in refused for uid in claims.stdout.split())
    assert on_host(site, HOST, f"systemctl is-active {UNIT}").strip() == "active"

    mode(site, "none")
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
