"""A GPU or a server that was exchanged under a host's name: seen by the evidence before it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import compare_hardware

from bedplate.portable.evidence import checks

MACHINE = {"serial": "S1", "id": "one"}
GPUS = {"0000:01:00.0": "GPU-a", "0000:02:00.0": "GPU-b"}


def document(
    machine: dict[str, str] = MACHINE,
    gpus: dict[str, str] = GPUS,
    checked: str = "2026-11-22T10:00:00Z",
) -> dict[str, Any]:
    """Return evidence of a machine and its GPUs, as the collector leaves it."""
    rows = [{"bus": bus, "uuid": uuid} for bus, uuid in gpus.items()]
    facts = {"machine": dict(machine), "gpus": rows}
    return {"checked": checked, "facts": facts, "checks": []}


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


@pytest.mark.parametrize("gpus", [GPUS, {}])
def test_a_replaced_server_is_noticed_before_it_has_a_driver(gpus: dict[str, str]) -> None:
    """Of a bare server, and of a control plane, there are no GPUs to tell of."""
    bare = document({"serial": "S2", "id": "one"}, {}, "2026-11-23T10:00:00Z")
    compare_hardware(bare, document(gpus=gpus), drift=True)
    (check,) = bare["checks"]
    other = "another machine or system: its serial was S1 and is S2"
    assert (check["id"], check["result"], check["found"]) == ("hardware.same", "fail", [other])
    assert bare["facts"]["changed_since"] == {"checked": "2026-11-22T10:00:00Z", "what": [other]}
    # It is taken in by the run that leaves this evidence; what its cards were is still known.
    again = document({"serial": "S2", "id": "one"}, {}, "2026-11-24T10:00:00Z")
    compare_hardware(again, bare, drift=True)
    assert again["checks"][0]["result"] == "pass"
    assert again["facts"].get("before", {}).get("gpus", {}) == gpus
    # Each is told with the time since when it may have been.
    later = document({"serial": "S2", "id": "one"}, {"0000:01:00.0": "GPU-z"})
    compare_hardware(later, again, drift=False)
    told = {
        "checked": "2026-11-22T10:00:00Z",
        "what": ["0000:01:00.0: GPU-a was replaced by GPU-z", "0000:02:00.0: GPU-b is gone"],
    }
    assert later["facts"].get("changed_since") == (told if gpus else None)


def test_of_two_looks_without_anything_in_common_nothing_is_said() -> None:
    look = document({"serial": "", "id": ""}, {})
    compare_hardware(look, document(), drift=True)
    assert look["checks"][0]["result"] == "skipped"
    assert look["checks"][0]["reason"] == "there is no evidence of machine or GPUs to compare with"
    assert "changed_since" not in look["facts"]
