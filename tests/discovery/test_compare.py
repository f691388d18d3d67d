"""What a site declares of a host against what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.evidence.discovery.compare import Comparison
from bedplate.site.places import Place, Places
from tests.discovery import machines
from tests.discovery.machines import facts_of

if TYPE_CHECKING:
    from pathlib import Path

CATALOGUE = load_catalogue()
PLAN = "or fix the host; then run: bedplate plan s"


def said(facts: dict[str, Any], wishes: dict[str, Any], groups: tuple[str, ...] = ()) -> list[str]:
    """Return what differs of host h1 in site s."""
    places = Places({("bedplate_gpu",): Place("s/group_vars/pool_x.yml", 2, 1)}, Place("s"))
    comparison = Comparison("h1", "s", facts, groups, CATALOGUE, places)
    return [str(problem) for problem in comparison.problems(wishes)]


def test_a_host_as_declared(tmp_path: Path) -> None:
    facts = facts_of(machines.dgx(tmp_path))
    for gpu in ({"model": "h100-sxm5-80gb", "count": 8}, {"pci": "10de:2330", "count": 8}):
        wishes = {"bedplate_gpu": gpu, "bedplate_host": {"os": "ubuntu-22.04"}}
        assert said(facts, wishes) == []
    assert said(facts, {}) == []


def test_other_gpus(tmp_path: Path) -> None:
    facts = facts_of(machines.dgx(tmp_path))
    where = "s/group_vars/pool_x.yml:2:1"
    written = "write bedplate_gpu: {model: h100-sxm5-80gb, count: 8}"
    for wish, allowed in (
        ({"model": "t4-16gb", "count": 8}, "8 x t4-16gb"),
        ({"model": "h100-sxm5-80gb", "count": 4}, "4 x h100-sxm5-80gb"),
        ({"pci": "10de:2330", "subsystem": "10de:ffff", "count": 8}, "8 x 10de:2330 10de:ffff"),
        ([], "none"),
    ):
        assert said(facts, {"bedplate_gpu": wish}) == [
            (
                f"{where}: h1: other GPUs than declared — bedplate_gpu — got 8 x h100-sxm5-80gb / "
                f"allowed {allowed} — {written}, {PLAN}"
            )
        ]


def test_no_gpu(tmp_path: Path) -> None:
    facts = facts_of(machines.Machine(tmp_path))
    assert said(facts, {"bedplate_gpu": {"model": "t4-16gb", "count": 1}}) == [
        (
            "s/group_vars/pool_x.yml:2:1: h1: other GPUs than declared — bedplate_gpu — got none / "
            f"allowed 1 x t4-16gb — remove it, {PLAN}"
        )
    ]


def test_a_card_beside_the_declared_ones(tmp_path: Path) -> None:
    machine = machines.dgx(tmp_path)
    machine.plug("0000:c0:00.0", "10de:1eb8", "030200")
    (only,) = said(facts_of(machine), {"bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8}})
    assert "got 8 x h100-sxm5-80gb, 1 x t4-16gb / allowed 8 x h100-sxm5-80gb" in only


def test_wishes_that_cannot_be_compared(tmp_path: Path) -> None:
    facts = facts_of(machines.dgx(tmp_path))
    assert said(facts, {"bedplate_gpu": {"model": "h100-sxm5-80gbb", "count": 8}}) == [
        (
            "s/group_vars/pool_x.yml:2:1: h1: the catalogue does not know the declared GPU — "
            "bedplate_gpu — got h100-sxm5-80gbb / allowed h100-sxm5-80gb, h100-sxm5-94gb — "
            "write h100-sxm5-80gb"
        )
    ]
    (only,) = said(facts, {"bedplate_gpu": {"model": "h100-sxm5-80gb", "number": 8}})
    assert only.startswith(
        "s/group_vars/pool_x.yml:2:1: h1: setting cannot be compared — bedplate_gpu"
    )
    assert only.endswith("run: bedplate plan s")
    for nonsense in ("eight", 8, [8], {"count": "8"}):
        assert len(said(facts, {"bedplate_gpu": nonsense})) == 1


@pytest.mark.parametrize(
    ("declared", "got"),
    [
        ({"os": "debian-13"}, ("bedplate_host.os — got ubuntu-22.04 / allowed debian-13 — "
         "write os: ubuntu-22.04")),
        ({"os": "ubuntu-22.04", "kind": "passthrough"}, ("bedplate_host.kind — "
         "got no virtual machine / allowed passthrough — write kind: bare-metal")),
        ({"os": "ubuntu-22.04", "secure_boot": True}, ("bedplate_host.secure_boot — "
         "got disabled / allowed enabled — write secure_boot: false")),
        ({"os": "ubuntu-22.04", "memory": "512Gi"}, ("bedplate_host.memory — "
         "got 2Gi / allowed 512Gi — write memory: 2Gi")),
        ({"os": "ubuntu-22.04", "cpus": 64}, ("bedplate_host.cpus — "
         "got 2 / allowed 64 — write cpus: 2")),
    ],
)  # fmt: skip
def test_another_host(tmp_path: Path, declared: dict[str, Any], got: str) -> None:
    facts = facts_of(machines.dgx(tmp_path))
    facts["system"]["cpus"] = 2
    (only,) = said(facts, {"bedplate_host": declared})
    assert f"{got}, {PLAN}" in only


def test_less_declared_than_there_is_is_the_sites_choice(tmp_path: Path) -> None:
    """Hosts of a pool differ: what all of them have is declared."""
    wish = {"os": "ubuntu-22.04", "memory": "1Gi", "cpus": 1}
    facts = facts_of(machines.dgx(tmp_path))
    facts["system"]["cpus"] = 2
    assert said(facts, {"bedplate_host": wish}) == []


def test_secure_boot_that_nobody_declared(tmp_path: Path) -> None:
    machine = machines.workstation(tmp_path, "10de:14a9")
    (only,) = said(facts_of(machine), {"bedplate_host": {"os": "debian-12"}})
    assert "got enabled / allowed disabled, as nothing else is declared" in only
    signed = {"os": "debian-12", "secure_boot": True, "module_signing": "mok"}
    assert said(facts_of(machine), {"bedplate_host": signed}) == []
    machine.says(["mokutil", "--test-key"], "x is not enrolled")
    (only,) = said(facts_of(machine), {"bedplate_host": signed})
    assert "the signing key is not enrolled" in only


def test_in_a_container_the_machine_is_not_judged(tmp_path: Path) -> None:
    machine = machines.workstation(tmp_path, "10de:14a9")
    machine.says(["systemd-detect-virt", "--vm"], "kvm")
    wish = {"bedplate_host": {"os": "debian-12", "kind": "bare-metal"}}
    assert len(said(facts_of(machine), wish)) == 2
    machine.says(["systemd-detect-virt", "--container"], "lxc")
    assert said(facts_of(machine), wish) == []


def test_passthrough(tmp_path: Path) -> None:
    machine = machines.hypervisor(tmp_path)
    card = ["0000:17:00.0", "0000:17:00.1"]

    def wish(devices: list[str], groups: list[list[str]]) -> list[str]:
        value = {"devices": devices, "iommu_groups": groups}
        return said(facts_of(machine), {"bedplate_passthrough": value}, ("hypervisors",))

    assert wish(card, [card]) == []
    (only,) = wish(["0000:99:00.0"], [card])
    assert "devices that the host does not have" in only
    (only,) = wish(card, [[card[0]], [card[1]]])
    assert "other IOMMU groups than declared" in only
    assert "got [['0000:17:00.0', '0000:17:00.1']]" in only
    for group in (tmp_path / "sys/kernel/iommu_groups").iterdir():
        group.rename(tmp_path / group.name)
    (only,) = wish(card, [card])
    assert "the IOMMU is off" in only


def test_accelerators_of_another_maker(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    for number in range(8):
        machine.plug(f"0000:{number:02x}:00.0", "1002:74a1", "120000")
    wish = {"vendor": "amd", "model": "mi300x", "count": 8}
    assert said(facts_of(machine), {"bedplate_accelerator": wish}) == []
    (only,) = said(facts_of(machine), {"bedplate_accelerator": wish | {"count": 4}})
    assert only == (
        "h1: other accelerators than declared — s bedplate_accelerator — got 8 x amd mi300x / "
        f"allowed 4 x amd mi300x — correct it, {PLAN}"
    )
