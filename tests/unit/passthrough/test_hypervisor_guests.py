"""Guests of hypervisors as hosts of pools: what the plan refuses, and the way back to a site."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.common.errors import BedplateError
from bedplate.evidence.hypervisors import cards, pools, proxmox, vsphere
from bedplate.portable.passthrough import libvirt_domain
from bedplate.resolver.plan import plan

if TYPE_CHECKING:
    from pathlib import Path

TODAY = date(2026, 11, 21)
CARDS = ["0000:17:00.0", "0000:65:00.0"]
GUEST = {"cpus": 16, "memory_gib": 64, "disk": "/srv/vm1.qcow2", "network": "br0"}
COMMON = {
    "bedplate_host": {"os": "debian-12", "kind": "bare-metal"},
    "bedplate_driver": {"source": "distro"},
    "bedplate_kubernetes": {"version": "1.36", "endpoint": "k8s.example:6443"},
}


def site(folder: Path, guests: dict[str, Any], members: dict[str, Any] | None = None) -> Path:
    """Write a site of one hypervisor with two cards, and a pool of guests with one card each."""
    hosts: dict[str, Any] = {
        "control_plane": {"hosts": {"cp1": {}}},
        "hypervisors": {
            "children": {"pool_hv": {"hosts": {"hv1": {"bedplate_guests": guests}, "hv2": {}}}}
        },
    }
    if members is None:
        members = {"vm1": {}, "vm2": {}}
    if members:
        hosts["gpu_pools"] = {"children": {"pool_vm": {"hosts": members}}}
    given = {"devices": CARDS, "iommu_groups": [[card] for card in CARDS]}
    texts: dict[str, Any] = {
        "hosts.yml": {"all": {"children": hosts}},
        "group_vars/all/bedplate.yml": COMMON,
        "group_vars/pool_hv.yml": {
            "bedplate_host": {"os": "debian-12", "kind": "hypervisor"},
            "bedplate_gpu": {"model": "t4-16gb", "count": 2},
            "bedplate_passthrough": given,
        },
    }
    if members:
        texts["group_vars/pool_vm.yml"] = {
            "bedplate_host": {"os": "debian-12", "kind": "passthrough"},
            "bedplate_gpu": {"model": "t4-16gb", "count": 1},
        }
    for name, content in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def given(**devices: list[str]) -> dict[str, Any]:
    """Return guests by name with their devices."""
    return {name: GUEST | {"devices": mine} for name, mine in devices.items()}


def refusals(folder: Path) -> list[str]:
    """Return what the plan says, less the place."""
    with pytest.raises(BedplateError) as caught:
        plan(folder, TODAY)
    return [re.sub(r"^\S+:\d+:\d+: ", "", line) for line in str(caught.value).splitlines()]


def test_guests_are_hosts_of_a_pool_and_the_lock_has_both_sides(tmp_path: Path) -> None:
    guests = given(vm1=[CARDS[0]], vm2=[CARDS[1]])
    lock = plan(site(tmp_path, guests), TODAY).plan.lock
    assert lock.hosts["hv1"].guests["vm1"].devices == [CARDS[0]]
    assert lock.hosts["hv2"].guests == {}
    assert lock.pools["pool_hv"].passthrough is not None
    assert lock.pools["pool_hv"].passthrough.devices == CARDS
    assert lock.pools["pool_hv"].nvidia_driver is None
    assert lock.hosts["vm1"].pool == "pool_vm"
    assert lock.pools["pool_vm"].kind == "passthrough"
    assert lock.pools["pool_vm"].nvidia_driver is not None


@pytest.mark.parametrize(
    ("guests", "said"),
    [
        (
            given(vm3=[CARDS[0]]),
            (
                "vm3 — got no host of the site "
                "/ allowed a host of a pool — add vm3 to a pool whose bedplate_host says kind: "
                "passthrough"
            ),
        ),
        (
            given(cp1=[CARDS[0]]),
            (
                "cp1 — got a host without a pool / allowed a host of a pool — add cp1 to a pool "
                "whose bedplate_host says kind: passthrough"
            ),
        ),
        (
            given(vm1=CARDS),
            (
                "vm1 — got 2 GPUs / allowed 1, "
                "as pool_vm declares — correct the guest, or bedplate_gpu of pool_vm"
            ),
        ),
        (
            given(vm1=["0000:99:00.0"]),
            (
                f"vm1.devices[0] — got 0000:99:00.0 / allowed {', '.join(CARDS)} — add it to "
                "bedplate_passthrough.devices, or remove it"
            ),
        ),
        (
            given(vm1=[CARDS[0]], vm2=[CARDS[0]]),
            (
                "vm2.devices[0] — got "
                f"{CARDS[0]}, which vm1 has / allowed each device once — remove one"
            ),
        ),
        (
            {"vm1": GUEST},
            ("vm1 — got neither / allowed devices, or vgpu profiles — write one of them"),
        ),
    ],
)
def test_a_guest_that_does_not_match_is_refused(
    guests: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (told,) = refusals(site(tmp_path, guests))
    what = (
        "guests and hosts of pools do not match"
        if any("devices" in guest for guest in guests.values())
        else "guest needs devices or vgpu"
    )
    assert told == f"{what} — bedplate_guests.{said}"


def test_guests_with_shares_of_cards_take_no_driver_but_the_vgpu_one(tmp_path: Path) -> None:
    """Another driver finds no card in such a guest; NVIDIA hands the right one out itself."""
    shares = {name: GUEST | {"vgpu": ["grid_t4-16c"]} for name in ("vm1", "vm2")}
    place = site(tmp_path, shares)
    (told,) = refusals(place)
    assert told.startswith("shares of GPUs need the vGPU guest driver")
    assert "bedplate_driver.source — got distro / allowed runfile — fetch the driver" in told
    pool = place / "group_vars/pool_vm.yml"
    wishes = {"source": "runfile", "branch": "580"}
    runfile = {"bedplate_driver": wishes, "bedplate_pins": {"nvidia_driver": "580.95.05"}}
    pool.write_text(pool.read_text() + yaml.safe_dump(runfile))
    lock = plan(place, TODAY).plan.lock
    driver = lock.pools["pool_vm"].nvidia_driver
    assert driver is not None
    assert (driver.source, driver.version) == ("runfile", "580.95.05")
    assert lock.hosts["hv1"].guests["vm1"].vgpu == ["grid_t4-16c"]


def shared(folder: Path, driver: dict[str, Any], vgpu: dict[str, Any]) -> Path:
    """Write a site whose hypervisors share a third card, for one guest with the driver given."""
    place = site(folder, {"vm1": GUEST | {"vgpu": ["grid_t4-16c"]}}, {"vm1": {}})
    for name, wishes in (("pool_hv", {"bedplate_vgpu": vgpu}), ("pool_vm", driver)):
        file = place / f"group_vars/{name}.yml"
        file.write_text(file.read_text() + yaml.safe_dump(wishes))
    return place


VGPU = {"manager": "580.65.05", "cards": ["0000:99:00.0"]}


@pytest.mark.parametrize(
    ("driver", "got"),
    [
        ({"bedplate_driver": {"source": "runfile", "branch": "595"}}, "595"),
        ({"bedplate_driver": {"source": "runfile"}}, "whatever the policy finds"),
        (
            {
                "bedplate_driver": {"source": "runfile"},
                "bedplate_pins": {"nvidia_driver": "595.91.07"},
            },
            "595",
        ),
    ],
)
def test_a_guests_driver_is_not_newer_than_the_manager(
    driver: dict[str, Any], got: str, tmp_path: Path
) -> None:
    """By the release notes, the guest's is of the manager's branch, or of the one before it."""
    (told,) = refusals(shared(tmp_path, driver, VGPU))
    what, _, rest = told.partition(" — ")
    assert what == "vGPU manager and guest driver do not go together"
    assert rest == (
        "bedplate_driver.branch — "
        f"got {got}, below manager 580.65.05 of hv1 / allowed 580, or the branch before it — "
        "write branch: '580', or pin the driver of the manager's vGPU release"
    )


def test_a_manager_and_its_cards_are_in_the_lock(tmp_path: Path) -> None:
    runfile = {"bedplate_driver": {"source": "runfile", "branch": "580"}}
    lock = plan(shared(tmp_path, runfile, VGPU), TODAY).plan.lock
    vgpu = lock.pools["pool_hv"].vgpu
    assert vgpu is not None
    assert vgpu.model_dump() == VGPU
    assert lock.pools["pool_vm"].vgpu is None


@pytest.mark.parametrize(
    ("cards", "what"),
    [
        ([CARDS[0]], "GPU is shared and given away"),
        (["0000:99:00.0", "0000:99:00.0"], "GPU is there twice"),
    ],
)
def test_a_shared_card_is_nobodys_else(cards: list[str], what: str, tmp_path: Path) -> None:
    runfile = {"bedplate_driver": {"source": "runfile", "branch": "580"}}
    (told,) = refusals(shared(tmp_path, runfile, VGPU | {"cards": cards}))
    assert told.startswith(what)


def test_only_a_hypervisor_shares_cards(tmp_path: Path) -> None:
    wishes = {
        "bedplate_driver": {"source": "runfile", "branch": "580"},
        "bedplate_vgpu": VGPU,
    }
    (told,) = refusals(shared(tmp_path, wishes, VGPU))
    assert told.startswith("hypervisor and guest are mixed up")


def test_what_libvirt_has_becomes_a_pool_that_the_plan_takes(tmp_path: Path) -> None:
    """Round trip: domains as they were defined, read back, written out, planned."""
    wished = given(vm1=[CARDS[0]], vm2=[CARDS[1]])
    read = []
    for name, wish in wished.items():
        guest = libvirt_domain.Guest(
            name, wish["devices"], 16, 64, wish["disk"], "br0", "", (), 0, "1G"
        )
        functions = [
            {"address": address, "id": "10de:1eb8", "subsystem": "10de:12a2", "class": "0302"}
            for address in libvirt_domain.host_devices(libvirt_domain.xml(guest))
        ]
        read.append({"name": name, "functions": functions})
    read.append({"name": "mail", "functions": []})
    catalogue = load_catalogue()
    files = pools.fragment({"hv1": read}, "debian-12", catalogue)
    assert sorted(files) == ["group_vars/pool_guests_t4_16gb_x1.yml", "guests.yml"]

    folder = site(tmp_path, wished, members={})
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    lock = plan(folder, TODAY).plan.lock
    assert {name for name, host in lock.hosts.items() if host.pool == "pool_guests_t4_16gb_x1"} == {
        "vm1",
        "vm2",
    }
    pool = lock.pools["pool_guests_t4_16gb_x1"]
    assert (pool.kind, pool.gpu[0].model, pool.gpu[0].count) == ("passthrough", "t4-16gb", 1)
    assert pools.fragment({"hv1": [{"name": "mail", "functions": []}]}, "x", catalogue) == {}


def _documented(platform: str, found: dict[str, str]) -> set[str]:
    known = {
        fact.value.setting
        for fact in load_catalogue().hypervisor_settings.values()
        if fact.value.platform == platform
    }
    return {re.sub(r"^(pciPassthru|hostpci)\d+", r"\1N", key) for key in found} - known


def test_a_guest_for_vsphere() -> None:
    guest = GUEST | {"devices": ["0000:17:00.0", "0000:17:00.1", "0000:65:00.0"]}
    assert vsphere.render("vm1", guest, 16) == (
        'displayName = "vm1"\n'
        'firmware = "efi"\n'
        'numvcpus = "16"\n'
        'memSize = "65536"\n'
        'sched.mem.min = "65536"\n'
        'sched.mem.pin = "TRUE"\n'
        'pciPassthru.use64bitMMIO = "TRUE"\n'
        'pciPassthru.64bitMMIOSizeGB = "128"\n'
    )
    assert _documented("vsphere", vsphere.settings("vm1", guest, 16, rdma=True)) == set()


@pytest.mark.parametrize(
    ("number", "memory", "space"),
    [(1, 16, 64), (2, 16, 128), (1, 40, 128), (1, 80, 256), (8, 80, 2048)],
)
def test_cards_have_room_for_twice_their_memory(number: int, memory: int, space: int) -> None:
    assert cards.address_space_gb(number, memory) == space


def test_shares_of_cards_for_vsphere() -> None:
    found = vsphere.settings("vm1", GUEST | {"vgpu": ["grid_t4-16c", "grid_t4-16c"]}, 0)
    assert found["pciPassthru1.vgpu"] == "grid_t4-16c"
    assert "pciPassthru.use64bitMMIO" not in found
    assert _documented("vsphere", found) == set()
    with pytest.raises(ValueError, match="guest vm1: vGPU profiles are written out for vSphere"):
        proxmox.settings("vm1", GUEST | {"vgpu": ["grid_t4-16c"]})


def test_a_guest_for_proxmox() -> None:
    guest = GUEST | {"devices": ["0000:17:00.0", "0000:17:00.1", "0000:65:00.0"]}
    found = proxmox.settings("vm1", guest, "1G")
    assert _documented("proxmox", found) == set()
    assert proxmox.render("vm1", guest, "1G").splitlines()[-3:] == [
        "hugepages: 1024",
        "hostpci0: host=0000:17:00,pcie=1",
        "hostpci1: host=0000:65:00,pcie=1",
    ]
    assert proxmox.settings("vm1", guest, "", "t4")["hostpci1"] == "mapping=t4,pcie=1"
