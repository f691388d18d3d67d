"""A change of mode on a pool of one host: it waits under pods, and the upgrade makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.mixes.pods import Pods, mode
from tests.schedulers.nodes import GPU
from tests.site.cluster import node, unwrapped
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.substrate.commands import SiteCommands

UPGRADE = "playbooks/upgrade.yml"
#: Nothing makes the tests' pods again, and the one host is all that the budget could be of.
ALLOWED = ("-e", "upgrade_delete_bare_pods=true", "-e", "upgrade_failure_budget=0")

LARGE, SMALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
#: Of two A100 of 80 GB, one divided and the other whole, and what a node offers of them.
SLICES = (
    {"mode": "mig", "profiles": {"3g.40gb": 1, "1g.10gb": 2}, "cards": [0]},
    {"mode": "none", "cards": [1]},
)
OFFERED = {LARGE: 1, SMALL: 2, GPU: 1}


def left_pending(
    site: SiteCommands, host: str, names: Sequence[str], *parts: dict[str, Any], **sharing: Any
) -> None:
    """Change the mode under running pods: nobody touches them, and each run says what waits."""
    said = mode(site, *parts, **sharing)
    assert "change sharing" in said
    assert "(drained)" in said
    # Its evidence is of the mode that the node does not have yet.
    told = unwrapped(site.playbook(check=False).stdout)
    assert f"pending: sharing of GPUs — {host} — " in told
    assert "run bedplate.gpu.upgrade, which drains it" in told
    go_on(site, names)
    refused = site.playbook(UPGRADE, check=False)
    assert refused.returncode != 0
    assert f"default/{min(names)}" in unwrapped(refused.stdout)
    go_on(site, names)


def go_on(site: SiteCommands, names: Sequence[str]) -> None:
    """Each pod runs, and has never been started again."""
    for name in names:
        (status,) = Pods(site).get(name)["status"]["containerStatuses"]
        assert ("running" in status["state"], status["restartCount"]) == (True, 0), name


def upgraded(site: SiteCommands, host: str) -> None:
    """Drain the node, share its GPUs as the lock says, let pods in again, and verify."""
    site.playbook(UPGRADE, *ALLOWED)
    assert not node(site, host)["spec"].get("unschedulable")
    site.playbook("playbooks/verify.yml")


def offered(site: SiteCommands, host: str) -> dict[str, int]:
    """Return what the node offers of NVIDIA's resources, those that are none left out."""
    found = node(site, host)["status"]["allocatable"]
    return {
        name: int(count)
        for name, count in found.items()
        if name.startswith("nvidia.com/") and int(count)
    }


def devices(site: SiteCommands, host: str) -> dict[str, list[str]]:
    """Return the UUIDs of the host's GPUs and MIG devices, by the resource that has them.

    `nvidia.com/gpu` has every GPU, divided ones too.
    """
    found: dict[str, list[str]] = {}
    for line in on_host(site, host, "nvidia-smi -L").splitlines():
        what = "gpu" if line.startswith("GPU") else f"mig-{line.split()[1]}"
        uuid = line.partition("(UUID: ")[2].rstrip(")")
        found.setdefault(f"nvidia.com/{what}", []).append(uuid)
    return found
