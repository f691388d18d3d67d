"""What accelerators and systems are, and the pools that are proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.evidence.discovery import identify
from bedplate.evidence.discovery.propose import Read, proposals
from bedplate.site.hosts import Accelerator, Gpu, Host, Passthrough
from tests.discovery import machines
from tests.discovery.machines import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.discovery.machines import Machine

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("subsystem", "wish"),
    [
        ("10de:14a9", {"model": "a16"}),
        ("10de:157e", {"model": "a2"}),
        ("10de:ffff", {"pci": "10de:25b6", "subsystem": "10de:ffff"}),
    ],
)
def test_one_identifier_is_several_boards(
    tmp_path: Path, subsystem: str, wish: dict[str, str]
) -> None:
    found = identify.hardware(facts_of(machines.workstation(tmp_path, subsystem)), CATALOGUE)
    assert [board.wish for board in found.boards] == [wish]


def test_switches_and_other_makers(tmp_path: Path) -> None:
    machine = machines.dgx(tmp_path)
    machine.plug("0000:c1:00.0", "1002:74a1", "120000", "1002:74a1")
    machine.plug("0000:c2:00.0", "1d0f:7364", "120000")
    found = identify.hardware(facts_of(machine), CATALOGUE)
    assert len(found.boards) == 8
    assert found.switches == {"NVSwitch of the H100 and H200 generation": 4}
    assert found.others == {("amd", "mi300x"): 1}
    assert found.unknown == {"1d0f:7364": 1}  # the console's VGA function is not among them


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("ID=debian\nVERSION_ID=12\n", ("debian-12", True)),
        ("ID=rocky\nVERSION_ID=9.6\n", ("rocky-9", True)),
        ("ID=plan9\nVERSION_ID=4\n", ("plan9-4", False)),
        ("ID=debian\nVERSION_ID=120\n", ("debian-120", False)),
    ],
)
def test_systems(tmp_path: Path, release: str, name: tuple[str, bool]) -> None:
    machine = machines.Machine(tmp_path)
    machine.put("/etc/os-release", release)
    assert identify.system_of(facts_of(machine), CATALOGUE) == name


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Read]:
    """Return what makes a host that was read out of a machine."""

    def make(name: str, machine: Callable[[Path], Machine], *groups: str) -> Read:
        return Read(name, groups, facts_of(machine(tmp_path / name)))

    return make


def a16(root: Path) -> Machine:
    return machines.workstation(root, "10de:14a9")


def a2(root: Path) -> Machine:
    return machines.workstation(root, "10de:157e")


def test_equal_hardware_and_system_make_a_pool(build: Callable[..., Read]) -> None:
    hosts = [
        build("g2", machines.dgx),
        build("g1", machines.dgx),
        build("w1", a16),
        build("w2", a2),
        build("cp1", machines.Machine, "control_plane"),
        build("b1", machines.Machine),
        build("hv1", machines.hypervisor, "hypervisors"),
    ]
    found = {one.name: one for one in proposals(hosts, CATALOGUE)}
    assert {name: one.hosts for name, one in found.items()} == {
        "control_plane": ("cp1",),
        "hosts_debian_12": ("b1",),
        "pool_a16": ("w1",),
        "pool_a2": ("w2",),
        "pool_h100_sxm5_80gb": ("g1", "g2"),
        "pool_t4_16gb": ("hv1",),
    }
    assert found["pool_h100_sxm5_80gb"].variables == {
        "bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8},
        "bedplate_host": {"os": "ubuntu-22.04", "memory": "2Gi"},
    }
    assert found["pool_h100_sxm5_80gb"].notes == (
        "h100-sxm5-80gb: NVIDIA H100 80GB HBM3, 10de:2330",
        "4 x NVSwitch of the H100 and H200 generation",
        "RDMA: 1 x InfiniBand 400 Gb/sec (4X NDR)",
        "kernel 6.1.0-50-amd64",
    )
    assert found["pool_a16"].variables["bedplate_host"] == {
        "os": "debian-12",
        "secure_boot": True,
        "module_signing": "mok",
        "memory": "2Gi",
    }
    assert found["pool_t4_16gb"].variables == {
        "bedplate_gpu": {"model": "t4-16gb", "count": 2},
        "bedplate_host": {"os": "debian-12", "kind": "hypervisor"},
        "bedplate_passthrough": {
            "devices": ["0000:17:00.0", "0000:17:00.1", "0000:65:00.0", "0000:65:00.1"],
            "iommu_groups": [
                ["0000:17:00.0", "0000:17:00.1"],
                ["0000:65:00.0", "0000:65:00.1"],
            ],
        },
    }
    kinds: dict[str, Callable[[Any], object]] = {
        "bedplate_gpu": Gpu.model_validate,
        "bedplate_host": Host.model_validate,
        "bedplate_passthrough": Passthrough.model_validate,
        "bedplate_accelerator": Accelerator.model_validate,
    }
    for one in found.values():
        assert yaml.safe_load(one.render("s")) == one.variables
        for key, value in one.variables.items():
            kinds[key](value)  # wishes that the site's model takes as they are


@pytest.mark.parametrize(
    ("groups", "machine", "parent"),
    [
        (("gpu_pools", "pool_x"), machines.dgx, "gpu_pools"),
        (("slurm", "pool_x"), machines.dgx, "slurm"),
        (("hypervisors", "pool_x"), machines.hypervisor, "hypervisors"),
        ((), machines.dgx, "gpu_pools"),
        ((), machines.Machine, "all"),
    ],
)
def test_a_pool_is_put_below_the_group_of_its_hosts(
    build: Callable[..., Read],
    groups: tuple[str, ...],
    machine: Callable[[Path], Machine],
    parent: str,
) -> None:
    (one,) = proposals([build("x", machine, *groups)], CATALOGUE)
    assert f"\n# and into hosts.yml, below {parent}: children:\n" in one.render("s")


def test_slurm_and_kubernetes_have_pools_of_their_own(build: Callable[..., Read]) -> None:
    hosts = [build("g1", machines.dgx, "gpu_pools"), build("s1", machines.dgx, "slurm")]
    found = proposals(hosts, CATALOGUE)
    assert [(one.hosts, one.parent) for one in found] == [
        (("g1",), "gpu_pools"),
        (("s1",), "slurm"),
    ]


def test_a_host_with_two_kinds_of_gpus(build: Callable[..., Read]) -> None:
    def mixed(root: Path) -> Machine:
        machine = machines.workstation(root, "10de:14a9")
        machine.plug("0000:66:00.0", "10de:1eb8", "030200", "10de:12a2")
        machine.plug("0000:67:00.0", "10de:1eb8", "030200", "10de:12a2")
        return machine

    (one,) = proposals([build("m1", mixed)], CATALOGUE)
    assert one.variables["bedplate_gpu"] == [
        {"model": "a16", "count": 1},
        {"model": "t4-16gb", "count": 2},
    ]


def test_names_of_the_users_pools_are_kept_while_their_hosts_are_alike(
    build: Callable[..., Read],
) -> None:
    alike = [build("g1", machines.dgx, "pool_train"), build("g2", machines.dgx, "pool_train")]
    assert [one.name for one in proposals(alike, CATALOGUE)] == ["pool_train"]
    other = build("g3", a16, "pool_train")
    assert [one.name for one in proposals([*alike, other], CATALOGUE)] == [
        "pool_a16",
        "pool_h100_sxm5_80gb",
    ]
    two = [build("g4", machines.dgx, "pool_a"), build("g5", machines.dgx, "pool_b")]
    assert [one.name for one in proposals(two, CATALOGUE)] == ["pool_h100_sxm5_80gb"]


def test_one_name_is_given_once(build: Callable[..., Read]) -> None:
    def fewer(root: Path) -> Machine:
        machine = machines.dgx(root)
        for file in (root / "sys/bus/pci/devices/0000:1b:00.0").iterdir():
            file.unlink()
        return machine

    found = proposals([build("g1", machines.dgx), build("g2", fewer)], CATALOGUE)
    assert [one.name for one in found] == ["pool_h100_sxm5_80gb", "pool_h100_sxm5_80gb_2"]
    counts = [one.variables["bedplate_gpu"]["count"] for one in found]
    assert sorted(counts) == [7, 8]


def test_what_the_catalogue_does_not_know_is_said(build: Callable[..., Read]) -> None:
    def strange(root: Path) -> Machine:
        machine = machines.Machine(root)
        machine.put("/etc/os-release", "ID=plan9\nVERSION_ID=4\n")
        machine.plug("0000:65:00.0", "10de:fffe", "030200")
        machine.plug("0000:66:00.0", "1d0f:7364", "120000")
        return machine

    (one,) = proposals([build("x", strange)], CATALOGUE)
    assert one.variables["bedplate_gpu"] == {"pci": "10de:fffe", "count": 1}
    assert one.notes[:3] == (
        "10de:fffe: the catalogue does not know this GPU",
        "1 x 1d0f:7364: an accelerator that the catalogue does not know",
        "plan9-4: the catalogue does not know this system",
    )


def test_missing_switches_are_asked_about(build: Callable[..., Read]) -> None:
    def guest(root: Path) -> Machine:
        machine = machines.dgx(root)
        for number in range(4):
            (root / f"sys/bus/pci/devices/0000:{0x80 + number:02x}:00.0/vendor").unlink()
        machine.says(["systemd-detect-virt", "--vm"], "kvm")
        return machine

    (one,) = proposals([build("x", guest)], CATALOGUE)
    assert one.variables["bedplate_host"]["kind"] == "passthrough"
    asked = "8 x h100-sxm5-80gb and no NVSwitch: is this a guest, or are they hidden?"
    assert (asked in one.notes) == (
        CATALOGUE.gpu_models["h100-sxm5-80gb"].value.fabric == "nvswitch"
    )


@pytest.mark.parametrize("name", sorted(CATALOGUE.accelerators))
def test_every_accelerator_of_the_catalogue_can_be_wished_for(
    build: Callable[..., Read], name: str
) -> None:
    identifiers = CATALOGUE.accelerators[name].value.pci

    def server(root: Path) -> Machine:
        machine = machines.Machine(root)
        for number in range(8 if identifiers else 0):
            machine.plug(f"0000:{number:02x}:00.0", identifiers[0], "120000")
        return machine

    (one,) = proposals([build("x", server)], CATALOGUE)
    if not identifiers:
        assert "bedplate_accelerator" not in one.variables
        return
    wish = Accelerator.model_validate(one.variables["bedplate_accelerator"])
    assert (wish.model, wish.count) == (name, 8)


def test_hosts_with_other_switches_are_another_pool(build: Callable[..., Read]) -> None:
    def fewer(root: Path) -> Machine:
        machine = machines.dgx(root)
        (root / "sys/bus/pci/devices/0000:83:00.0/vendor").unlink()
        return machine

    found = proposals([build("g1", machines.dgx), build("g2", fewer)], CATALOGUE)
    assert [one.hosts for one in found] == [("g1",), ("g2",)]


def test_in_a_container_no_kind_is_proposed(build: Callable[..., Read]) -> None:
    def container(root: Path) -> Machine:
        machine = machines.Machine(root)
        machine.says(["systemd-detect-virt", "--vm"], "kvm")
        machine.says(["systemd-detect-virt", "--container"], "lxc")
        return machine

    (one,) = proposals([build("x", container)], CATALOGUE)
    assert one.variables == {"bedplate_host": {"os": "debian-12"}}
