"""NCCL's settings for pods: from the hosts' evidence, by pool, in the teams' namespaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.config import StackError
from bedplate.components.schedulers.nccl import NcclDefaults, namespaces_of, settings_of
from bedplate.lock.model import Rdma
from tests.stacks.locks import POOL, lock_of
from tests.stacks.test_components import run

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

TEAMS: dict[str, Any] = {
    "vision": {"namespaces": ["vision", "vision-ci"], "gpus": {}},
    "speech": {"namespaces": ["speech"], "gpus": {}},
}


def with_rdma(*hosts: str) -> Lock:
    """Return a lock of hosts with RDMA."""
    lock = lock_of({name: {} for name in hosts}, teams=TEAMS)
    pool = lock.pools[POOL].model_copy(update={"rdma": Rdma(stack="inbox", method="dma-buf")})
    return lock.model_copy(update={"pools": {POOL: pool}})


def evidence(site: Path, **hosts: dict[str, str]) -> None:
    """Write the evidence of hosts."""
    folder = site / ".bedplate/evidence"
    folder.mkdir(parents=True, exist_ok=True)
    for name, variables in hosts.items():
        (folder / f"host-{name}.json").write_text(json.dumps({"facts": {"nccl": variables}}))


def test_a_pool_has_the_settings_of_its_hosts(tmp_path: Path) -> None:
    evidence(tmp_path, a={"NCCL_IB_HCA": "=mlx5_0"}, b={"NCCL_IB_HCA": "=mlx5_0"})

    assert settings_of(tmp_path, with_rdma("a", "b")) == {POOL: {"NCCL_IB_HCA": "=mlx5_0"}}


def test_a_pool_without_rdma_has_none(tmp_path: Path) -> None:
    assert settings_of(tmp_path, lock_of({"a": {}})) == {}


def test_pods_are_told_of_no_file_and_no_interface_of_the_host(tmp_path: Path) -> None:
    of_hosts = {"NCCL_TOPO_FILE": "/etc/bedplate/nccl-topology.xml", "NCCL_SOCKET_IFNAME": "=ens1"}
    evidence(tmp_path, a={"NCCL_IB_TC": "104", **of_hosts})

    assert settings_of(tmp_path, with_rdma("a")) == {POOL: {"NCCL_IB_TC": "104"}}


def test_a_pool_that_offers_devices_has_settings_for_its_jobs_to_name(tmp_path: Path) -> None:
    evidence(tmp_path, a={})
    lock = with_rdma("a")
    offers = Rdma(stack="inbox", method="dma-buf", pods={"rdma/hca": 999})
    pool = lock.pools[POOL].model_copy(update={"rdma": offers})

    assert settings_of(tmp_path, lock) == {}
    assert settings_of(tmp_path, lock.model_copy(update={"pools": {POOL: pool}})) == {POOL: {}}


def test_hosts_of_one_pool_that_differ_are_refused(tmp_path: Path) -> None:
    evidence(tmp_path, a={"NCCL_IB_HCA": "=mlx5_0"}, b={})

    with pytest.raises(StackError) as refused:
        settings_of(tmp_path, with_rdma("a", "b"))

    assert str(refused.value) == (
        "NCCL's settings differ in one pool — pool_class — got NCCL_IB_HCA==mlx5_0 on a, nothing "
        "on b / allowed the same on all hosts of a pool — correct rdma_devices, rdma_roce and "
        "rdma_nccl, and run `ansible-playbook bedplate.gpu.site`"
    )


def test_a_host_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="got none for a / allowed what the host has"):
        settings_of(tmp_path, with_rdma("a"))


def test_each_namespace_of_a_team_has_a_config_map() -> None:
    lock = with_rdma("a")

    def program() -> None:
        settings = {POOL: {"NCCL_IB_TC": "104"}}
        NcclDefaults("nccl", {"settings": settings, "namespaces": namespaces_of(lock)})

    engine, _ = run(program)

    made = engine.seen["kubernetes:core/v1:ConfigMap"]
    # Pulumi registers them in any order.
    assert sorted(
        (one.inputs["metadata"]["namespace"], one.inputs["metadata"]["name"]) for one in made
    ) == [
        ("speech", "nccl-pool-class"),
        ("vision", "nccl-pool-class"),
        ("vision-ci", "nccl-pool-class"),
    ]
    assert {one.inputs["data"]["NCCL_IB_TC"] for one in made} == {"104"}
