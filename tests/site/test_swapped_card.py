"""A card that was exchanged for another while its node was off: goes on from test_site.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.site.cluster import CARDS, GPUS, await_boot, gpus_in_pod, node
from tests.site.hosts import boot_id, on_host
from tests.substrate.gpu.models import slots, without_slot
from tests.substrate.gpu.replug import replug
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NODE, MODEL = "gpu-c", "t4-16gb"


def uuids(site: SiteCommands) -> list[str]:
    """Return the UUIDs of the host's cards, as its driver says them."""
    query = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
    return on_host(site, NODE, query).split()


def drift(site: SiteCommands) -> tuple[int, str]:
    """Look for drift on the node: the status of `bedplate drift` and what it says."""
    site.playbook("playbooks/drift.yml", "--limit", NODE, check=False)
    done = site.run("drift", ["bedplate", "drift", str(site.site)], check=False)
    return done.returncode, done.stdout


def test_a_swapped_card_is_noticed_and_taken_in_without_a_rebuild(
    site: SiteCommands, tmp_path: Path
) -> None:
    before, member = uuids(site), node(site, NODE)["metadata"]["uid"]
    description = load(site.description)
    container = description.container(description.host(NODE))
    # A card in another slot of the board is another card.
    replug(container, without_slot(slots(MODEL, CARDS[NODE] + 1), 1))
    site.substrate("reboot", NODE)
    await_boot(site, NODE, boot_id(site, NODE), GPUS)
    (gone,) = set(before) - set(uuids(site))
    (new,) = set(uuids(site)) - set(before)
    status, said = drift(site)
    assert "[hardware.same]" in said
    assert f"{gone} is gone" in said
    assert f"{new} is new" in said
    assert status != 0

    site.playbook("site.yml", "--limit", NODE)
    evidence = json.loads((site.site / f".bedplate/evidence/host-{NODE}.json").read_text())
    assert "fail" not in {check["result"] for check in evidence["checks"]}
    status, said = drift(site)
    assert "[hardware.same]" not in said
    assert node(site, NODE)["metadata"]["uid"] == member
    # What kubelet's device plugin may give to pods, and what they are then given.
    assert new in on_host(site, NODE, "cat /etc/cdi/nvidia.yaml")
    assert gpus_in_pod(site, NODE, tmp_path).split("UUID: ")[1].strip(" )\n") in uuids(site)
