"""What the product says of GPUs, held against a real one: `make prove AREA=silicon`.

First run on an NVIDIA H100 80GB HBM3 with driver 580.159.04; figures are in docs/proof/silicon.md.
Rates are recorded and not asserted, but for those that differ by their nature.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from tests.silicon.measure import CROWD, REPLICAS, SMALL
from tests.silicon.processes import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from bedplate.catalogue.hardware_facts import GpuModel

    Measured = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.prove
CATALOGUE = load_catalogue()
#: What the catalogue's round sizes and the driver's own share of memory leave.
SLACK = 0.08


def model(facts: dict[str, Any]) -> GpuModel:
    """Return the catalogue's row of the machine's first GPU."""
    found = f"{facts['pci'][0]['vendor']}:{facts['pci'][0]['device']}"
    rows = [fact.value for fact in CATALOGUE.gpu_models.values() if found in fact.value.pci]
    return next(row for row in rows if row.name == facts["gpus"][0]["name"])


def results(found: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each check of a piece of evidence."""
    return {check["id"]: check["result"] for check in found["checks"]}


def test_the_catalogue_knows_the_gpu(measured: Measured) -> None:
    facts = measured("measure", "facts")
    row, gpu = model(facts), facts["gpus"][0]
    assert row.compute_capability == facts["capability"].splitlines()[0]
    assert row.memory_gib is not None
    assert 1 - SLACK <= gpu["memory"] / (row.memory_gib * 1024) <= 1
    assert facts["loaded"]["version"] == gpu["library"]
    (found,) = [one for one in facts["discovered"]["accelerators"] if one["driver"] == "nvidia"]
    assert found["id"] in row.pci
    assert facts["discovered"]["driver"]["loaded"] == facts["loaded"]


def test_the_catalogue_knows_how_mig_divides_it(measured: Measured) -> None:
    facts = measured("measure", "facts")
    row = model(facts)
    rows = [one.value for one in CATALOGUE.mig_geometries.values() if row.model in one.value.models]
    said = {
        (one["instances"], one["places"][0][1], tuple(place for place, _ in one["places"]))
        for one in facts["profiles"].values()
        if "instances" in one
    }
    assert said == {(one.instances, one.size, one.starts) for one in rows}


def test_evidence_of_the_host_passes(measured: Measured) -> None:
    found = measured("measure", "verified")
    for area in ("driver", "gpus", "health", "compute", "sharing"):
        assert "fail" not in results(found[area]).values(), found[area]["checks"]


def test_a_process_takes_no_more_memory_than_the_catalogue_reserves(
    measured: Measured, record_property: Callable[[str, object], None]
) -> None:
    architecture = model(measured("measure", "facts")).architecture
    told = {}
    for part, name in (("reserves", "alone"), ("client_reserves", "mps")):
        found = measured("measure", part)
        for kind, framework in (("cuda", "cuda"), ("torch", "pytorch"), ("jax", "jax")):
            reserves = CATALOGUE.memory_reserves
            fact = reserves.get(f"{framework}-{architecture}") or reserves[framework]
            rows = found[f"{name} {kind}"]
            taken = [row["taken"] - row["said"].get("reserved", 0) for row in rows]
            told[f"{name} {kind}"] = taken
            assert fact.value.mebibytes is not None
            assert max(taken) <= fact.value.mebibytes
    record_property("told", json.dumps(told, indent=1))


def test_mps_holds_a_program_to_the_limits_of_its_daemon(measured: Measured) -> None:
    """Whatever a program asks for itself; the daemon's word is read back as evidence does."""
    found = measured("measure", "limits")
    for replicas in (48, 10, 4):
        checks = {one["id"]: one["result"] for one in found[f"evidence of {replicas}"][:-1]}
        assert checks["sharing.mps_limits"] == checks["sharing.mps_memory"] == "pass"
    for name in ("as the daemon says", "asks for more", "asks for more threads"):
        context, memory, filled = found[name]
        assert context["multiprocessors"] < found["without the pipe"][0]["multiprocessors"]
        assert filled["allocated"] <= memory["free"] <= SMALL < memory["total"]
        assert "OUT_OF_MEMORY" in filled["then"]
    assert found["asks for less"][1]["free"] < SMALL // 2
    assert sum(one["allocated"] for one in found["two processes of one user"]) > SMALL
    assert found["jax, as it starts"][0].get("error") is None


def test_without_the_pipe_there_is_no_limit_in_the_default_compute_mode(measured: Measured) -> None:
    """So the device plugin's daemon makes the GPU one process' alone, and evidence looks there."""
    assert measured("measure", "limits")["without the pipe"][2]["allocated"] > 2 * SMALL


def test_root_alone_lifts_the_limits_and_of_new_clients_only(measured: Measured) -> None:
    found = measured("measure", "rights")
    tried = {key: text for key, text in found.items() if key.startswith(f"user {NOBODY}: set_")}
    assert len(tried) == 4
    assert all(text.startswith("Insufficient privileges") for text in tried.values())
    assert found[f"after user {NOBODY}"] == {"memory": "8G", "threads": "10.0"}
    assert found["after user 0"] == {"memory": "60G", "threads": "100.0"}
    assert found["the running client"][1]["allocated"] <= SMALL
    assert found["a new client"][2]["allocated"] > 2 * SMALL


def test_programs_of_two_users_are_no_clients_of_mps_at_once(measured: Measured) -> None:
    found = measured("measure", "users")["as the device plugin starts it"]
    assert found["nobody beside root"] == {"error": "no answer"}
    assert found["nobody after root"].get("error") is None


def test_mps_takes_as_many_clients_as_the_catalogue_says(measured: Measured) -> None:
    facts = measured("measure", "facts")
    said = CATALOGUE.mps_limits["cuda-13.0-and-older"].value.clients
    assert facts["loaded"]["version"].startswith("580."), "another driver has other limits"
    found_of = measured("measure", "crowd")
    for found in (found_of["without limits"], found_of["shares of 48"]):
        assert found["clients"] == said < CROWD
        assert "MPS_MAX_CLIENTS_REACHED" in found["refusals"][0]


def test_a_fault_ends_the_neighbours_under_mps_and_not_in_time_slices(measured: Measured) -> None:
    found = measured("measure", "faults")
    for mode, dies in (("time-slicing", False), ("mps", True)):
        assert "ILLEGAL_ADDRESS" in found[mode]["fault"][0]["error"]
        assert ("error" in found[mode]["the other"][0]) is dies
        assert all("error" not in answer for answer in found[mode]["a new one"])


def test_a_container_has_the_gpu_that_it_was_given_and_no_other(measured: Measured) -> None:
    found = measured("containers", "started")
    uuid = measured("measure", "facts")["gpus"][0]["uuid"]
    assert uuid in found["given"]["out"] and uuid in found["given by all"]["out"]  # noqa: PT018
    for name in ("asks by its environment", "brings nvidia-smi", "makes device nodes"):
        assert "GPU 0" not in found[name]["out"]
    assert "nvidia0" not in found["asks by its environment"]["out"]
    assert found["makes device nodes"]["err"].count("Operation not permitted") == 2


def test_a_driver_without_the_call_starts_no_container_with_a_limit(measured: Measured) -> None:
    calls = measured("measure", "facts")["profiles"]["calls"]
    started = measured("containers", "started")["with a limit"]
    assert (started["code"] == 0) is calls["nvmlDeviceSetMemoryLimits_v1"]


def test_evidence_of_containers_passes(measured: Measured) -> None:
    measured("containers", "started")  # which writes the specification
    specification = measured("containers", "started", file="specification")
    assert (specification["again"], specification["stale"]) == (False, [])
    found = measured("containers", "evidence")
    isolated = results(found["isolation"])
    assert len(isolated) > 10
    assert "fail" not in isolated.values()
    seen = results(found["container"])
    assert [seen[f"container.{name}"] for name in ("gpus", "nothing", "one")] == ["pass"] * 3


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_the_smoke_test_of_an_image_passes_in_a_container(
    measured: Measured, framework: str
) -> None:
    found = measured("containers", "frameworks")
    assert found[framework]["code"] == 0
    assert found[f"{framework} without a GPU"]["code"] == 1


def test_one_pod_gets_the_gpu_and_the_next_waits_for_it(measured: Measured) -> None:
    found = measured("cluster", "whole", "slices", "claims", file="cluster-whole")
    uuid = measured("measure", "facts")["gpus"][0]["uuid"]
    assert found["offered"] == "1"
    assert uuid in found["first"]["wrote"][0]
    assert found["second"]["phase"] == "Pending"
    assert "Insufficient nvidia.com/gpu" in found["second"]["why"][0]
    assert uuid in found["second, after the first"]["wrote"][0]
    assert "nvidia0" not in found["none"]["wrote"]


def test_four_pods_share_the_gpu_by_turns_and_a_fifth_waits(measured: Measured) -> None:
    found = measured("cluster", "whole", "slices", "claims", file="cluster-slices")
    shares = [found[f"share-{number}"] for number in range(5)]
    assert found["offered"] == "4"
    assert [share["phase"] for share in shares] == ["Running"] * 4 + ["Pending"]
    assert len({share["wrote"][0] for share in shares[:4]}) == 1
    assert found["two shares"]["phase"] == "Pending"


def test_claims_by_memory_share_the_gpu_as_far_as_it_goes(measured: Measured) -> None:
    found = measured("cluster", "whole", "slices", "claims", file="cluster-claims")
    device = found["slices"][0]["spec"]["devices"][0]
    assert device["capacity"]["memory"]["value"].startswith(
        str(measured("measure", "facts")["gpus"][0]["memory"])
    )
    assert device["allowMultipleAllocations"] is True
    assert found["small"]["wrote"][0] == found["large"]["wrote"][0]
    for name in ("much", "whole"):
        assert found[name]["phase"] == "Pending"
        assert "cannot allocate all claims" in found[name]["why"][0]


def test_shares_are_alike(
    measured: Measured, record_property: Callable[[str, object], None]
) -> None:
    """Ten programs that multiply matrices get the same, by turns and side by side."""
    found = {**measured("measure", "turns"), **measured("measure", "side_by_side")}
    record_property("told", json.dumps(found, indent=1))
    for name in ("time-slicing", "mps", "mps, tenths"):
        rates = found[f"{name}: products of {REPLICAS}"]
        assert rates["most"] <= 1.1 * rates["least"]
