"""The parts of a host: each role once, in the order of the plays, with checks that there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.common.parts import PARTS, Part
from bedplate.lock.model import Cluster, Pool
from tests.unit.test_drift_remedies import IDS, PLAYBOOKS, ROOT, tasks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Their entry point `remove` takes what is not the host's alone: a node's place at its controller.
#: What the proxy's has left, and Slurm's, goes by the record of files.
NOT_BY_RESET = {"host_proxy", "slurm"}
#: Components of the lock under other names than its model's: what every host of a lock has.
OF_HOSTS = {"os", "kind", "podman"}


def once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def test_each_role_is_a_part_and_each_area_and_component_belongs_to_one() -> None:
    roles = Counter(part.role for part in PARTS if part.role)
    assert roles == Counter(path.name for path in (ROOT / "roles").iterdir())
    for of_parts in ("areas", "changes"):
        counted = Counter(name for part in PARTS for name in getattr(part, of_parts))
        assert set(counted.values()) == {1}
    areas = {area for part in PARTS for area in part.areas}
    assert {one.partition(".")[0] for one in IDS} - {"owned"} <= areas


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.role or "host")
def test_a_part_speaks_of_its_own_checks_and_components(part: Part) -> None:
    of_checks = {
        *part.at_once,
        *part.waits_in_slurm,
        *part.by_hand,
        *part.reboots,
        *part.reboots_drained,
    }
    mine = {one for one in IDS if one.partition(".")[0] in part.areas}
    assert of_checks <= {*mine, *part.areas}
    assert {*part.of_gpus, *part.freed} <= set(part.changes)
    assert set(part.changes) <= {*Cluster.model_fields, *Pool.model_fields, *OF_HOSTS}


def test_parts_stand_in_the_order_in_which_the_site_brings_them() -> None:
    place = {part.role: number for number, part in enumerate(PARTS)}
    brought = once(role for role, _ in tasks_of(PLAYBOOKS / "hosts.yml"))
    assert sorted(brought, key=lambda role: place[role]) == brought
    assert len(brought) > 14


def test_a_reset_takes_them_away_in_the_reverse_order() -> None:
    (play,) = (
        play
        for play in yaml.safe_load((PLAYBOOKS / "reset.yml").read_text())
        if "__reset_roles" in play.get("vars", {})
    )
    removable = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/remove.yml")}
    gone = [part.role for part in reversed(PARTS) if part.role in removable - NOT_BY_RESET]
    assert play["vars"]["__reset_roles"] == gone
