"""A GPU or a server that was exchanged under a host's name: seen by the evidence before it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import compare_hardware

from bedplate.portable.evidence import checks

MACHINE = {"serial": "S1", "id": "one"}
GPUS = {"0000:01:00.0": "GPU-a", "0000:02:00.0": "GPU-b"}


def document(machine: dict[str, str] = MACHINE, gpus: dict[str, str] = GPUS) -> dict[str, Any]:
    """Return evidence of a machine and its GPUs, as the collector leaves it."""
    rows = [{"bus": bus, "uuid": uuid} for bus, uuid in gpus.items()]
    facts = {"machine": dict(machine), "gpus": rows}
    return {"checked": "2026-11-22T10:00:00Z", "facts": facts, "checks": []}


@pytest.mark.parametrize(
    ("machine", "gpus", "told"),
    [
        (MACHINE, GPUS, []),
        (
            MACHINE,
            GPUS | {"0000:02:00.0": "GPU-c"},
            ["0000:02:00.0: GPU-b was replaced by GPU-c"],
        ),
        (MACHINE, {"0000:01:00.0": "GPU-a"}, ["0000:02:00.0: GPU-b is gone"]),
        (MACHINE, GPUS | {"0000:03:00.0": "GPU-c"}, ["0000:03:00.0: GPU-c is new"]),
        (
            {"serial": "S2", "id": "two"},
            GPUS,
            [
                "another machine or system: its serial was S1 and is S2",
                "another machine or system: its id was one and is two",
            ],
        ),
        # A container has no serial number: nothing is known, so nothing differs.
        ({"serial": "", "id": "one"}, GPUS, []),
    ],
)
def test_what_was_exchanged_is_told_and_is_drift(
    machine: dict[str, str], gpus: dict[str, str], told: list[str]
) -> None:
    now = document(machine, gpus)
    compare_hardware(now, document(), drift=True)
    (check,) = now["checks"]
    assert (check["id"], check["result"]) == ("hardware.same", "fail" if told else "pass")
    assert now["facts"].get("changed_since", {}).get("what", []) == told
    noted = document(machine, gpus)
    compare_hardware(noted, document(), drift=False)
    assert noted["checks"] == []


def test_evidence_that_could_not_look_hands_on_what_was_known() -> None:
    unreached: dict[str, Any] = {"checked": "", "facts": {}, "checks": []}
    compare_hardware(unreached, document(), drift=True)
    assert unreached["checks"][0]["result"] == "skipped"
    later = document(MACHINE, GPUS | {"0000:01:00.0": "GPU-z"})
    compare_hardware(later, unreached, drift=True)
    assert later["facts"]["changed_since"] == {
        "checked": "2026-11-22T10:00:00Z",
        "what": ["0000:01:00.0: GPU-a was replaced by GPU-z"],
    }
    assert checks.hardware(unreached)["gpus"] == GPUS
