"""Shares of cards for guests: where they are put, made, made again at boot, and taken away."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.passthrough import libvirt_domain, libvirt_guests, vgpu, vgpu_apply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEVICES = "/sys/bus/pci/devices"
FIRST, SECOND = "0000:41:00.0", "0000:61:00.0"
HALF, WHOLE = "nvidia_l40s-24q", "nvidia_l40s-48q"
#: As the driver numbers them.
TYPES = {HALF: "1155", WHOLE: "1157"}
NAMES = {HALF: "NVIDIA L40S-24Q", WHOLE: "NVIDIA L40S-48Q"}


class Machine:
    """A hypervisor below a folder, with the part of a kernel that makes shares."""

    def __init__(self, root: Path, *, mediated: bool) -> None:
        self.root, self.mediated, self.ran, self.enabled = root, mediated, [], False
        self.domains: dict[str, str] = {}
        for card in (FIRST, SECOND):
            self.put(f"{DEVICES}/{card}/vendor", "0x10de")
            if mediated:
                self.types(card, 2)
            else:
                self.put(f"{DEVICES}/{card}/sriov_totalvfs", "32")
                self.put(f"{DEVICES}/{card}/sriov_numvfs", "0")
        self.host = Host(str(root), self._run)

    def put(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8").strip()

    def types(self, card: str, left: int) -> None:
        folder = f"{DEVICES}/{card}/mdev_supported_types/nvidia-231"
        self.put(f"{folder}/name", "GRID T4-8C")
        self.put(f"{folder}/available_instances", str(left))
        self.put(f"{folder}/create", "")

    def functions(self, card: str) -> None:
        """What sriov-manage does of two functions; a card holds shares of one size."""
        for number in (0, 1):
            name = f"{card[:-1]}{4 + number}"
            self.put(f"{DEVICES}/{name}/nvidia/current_vgpu_type", "0")
            (self.root / f"{DEVICES}/{card}/virtfn{number}".lstrip("/")).symlink_to(f"../{name}")
        self.put(f"{DEVICES}/{card}/sriov_numvfs", "2")
        self.kernel()

    def kernel(self) -> None:
        """Offer what still fits, and make mediated devices that were asked for."""
        for card in (FIRST, SECOND):
            folder = self.root / DEVICES.lstrip("/")
            mine = sorted(folder.glob(f"{card[:-1]}[45]"))
            now = {(one / "nvidia/current_vgpu_type").read_text().strip() for one in mine} - {"0"}
            fits = {"1155": [HALF], "1157": []}.get(next(iter(now), ""), [HALF, WHOLE])
            lines = [f"{TYPES[name]}  : {NAMES[name]}" for name in fits]
            for one in mine:
                self.put(
                    f"{DEVICES}/{one.name}/nvidia/creatable_vgpu_types",
                    "\n".join(["ID    : vGPU Name", *lines]),
                )
            create = folder / card / "mdev_supported_types/nvidia-231/create"
            if self.mediated and (identity := create.read_text().strip()):
                self.put(f"{vgpu.MEDIATED}/{identity}/remove", "")
                left = int((create.parent / "available_instances").read_text()) - 1
                self.types(card, left)

    def boot(self) -> None:
        """Forget what no kernel keeps, and start the unit."""
        for name in (self.root / DEVICES.lstrip("/")).glob("*/nvidia/current_vgpu_type"):
            name.write_text("0\n")
        self.unit()

    def unit(self) -> Result:
        """Run the unit's program, on the files below the folder."""
        text = self.read(vgpu.MAKER).replace(vgpu.SRIOV, f"echo {vgpu.SRIOV}")
        for folder in ("/sys/", "/etc/"):
            text = text.replace(folder, f"{self.root}{folder}")
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
        self.kernel()
        return Result(done.returncode, done.stdout, done.stderr)

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        self.ran.append(" ".join(argv))
        if argv[0] == "virsh":
            last = argv[-1]
            return Result(
                0, "\n".join(self.domains) if last == "--name" else self.domains[last], ""
            )
        if argv[:2] == [vgpu.SRIOV, "-d"]:
            self.put(f"{DEVICES}/{argv[2]}/sriov_numvfs", "0")
        elif argv[0] == vgpu.SRIOV:
            self.functions(argv[2])
        elif argv[:2] == ["systemctl", "is-enabled"]:
            return Result(0, "enabled\n" if self.enabled else "disabled\n", "")
        elif argv[:2] == ["systemctl", "enable"]:
            self.enabled = True
        elif argv[:2] == ["systemctl", "restart"]:
            return self.unit()
        return Result(0, "", "")

    def go(self, *cards: str, check: bool = False, **guests: Any) -> vgpu_apply.Outcome:
        return self.share(cards or (FIRST, SECOND), check, **guests)

    def share(self, cards: Sequence[str], check: bool = False, **guests: Any) -> vgpu_apply.Outcome:
        work = vgpu_apply.Work(self.host, cards, "hv1", check)
        return work.run({name: {"vgpu": list(wished)} for name, wished in guests.items()})

    def on(self, function: str) -> str:
        return self.read(f"{DEVICES}/{function}/nvidia/current_vgpu_type")


@pytest.fixture
def functions(tmp_path: Path) -> Machine:
    """A hypervisor whose manager uses its own framework on virtual functions."""
    return Machine(tmp_path, mediated=False)


@pytest.fixture
def devices(tmp_path: Path) -> Machine:
    """A hypervisor whose manager makes mediated devices."""
    return Machine(tmp_path, mediated=True)


def places(outcome: vgpu_apply.Outcome) -> dict[str, str]:
    return {f"{one.guest}/{one.number}": one.function for one in outcome.shares}


def test_shares_are_made_on_functions_that_offer_them(functions: Machine) -> None:
    outcome = functions.go(vm1=[HALF, HALF])
    assert outcome.problems == []
    assert places(outcome) == {"vm1/0": "0000:41:00.4", "vm1/1": "0000:41:00.5"}
    assert [functions.on(name) for name in ("0000:41:00.4", "0000:41:00.5")] == ["1155", "1155"]
    assert f"{vgpu.SRIOV} -e {FIRST}" in functions.ran
    assert functions.enabled


def test_a_second_run_changes_nothing(functions: Machine) -> None:
    functions.go(vm1=[HALF])
    functions.ran.clear()
    assert functions.go(vm1=[HALF]).diff == []
    assert [one for one in functions.ran if "is-enabled" not in one] == []


def test_a_card_is_filled_before_another_is_begun(functions: Machine) -> None:
    functions.go(vm1=[WHOLE])
    assert places(functions.go(vm1=[WHOLE], vm2=[HALF])) == {
        "vm1/0": "0000:41:00.4",
        "vm2/0": "0000:61:00.4",
    }
    # The first card is empty again, and the second one has its like.
    assert places(functions.go(vm2=[HALF], vm3=[HALF]))["vm3/0"] == "0000:61:00.5"
    assert functions.on("0000:41:00.4") == "0"


def test_shares_are_made_again_at_boot(functions: Machine) -> None:
    functions.go(vm1=[HALF])
    functions.boot()
    assert functions.on("0000:41:00.4") == "1155"
    assert functions.go(vm1=[HALF]).diff == []


def test_check_mode_makes_nothing(functions: Machine) -> None:
    outcome = functions.go(check=True, vm1=[HALF])
    assert outcome.problems == []
    assert [one["after"] for one in outcome.diff if one["after"].startswith("share")] == [
        f"share vm1/0 {HALF}\n"
    ]
    assert functions.ran == ["systemctl is-enabled bedplate-vgpu.service"]
    assert not (functions.root / "etc").exists()


def test_a_run_that_was_ended_leaves_no_share_that_nobody_knows(functions: Machine) -> None:
    functions.go(vm1=[HALF])
    kept = functions.read(vgpu.RECORD)
    functions.put(f"{DEVICES}/0000:41:00.4/nvidia/current_vgpu_type", "0")
    outcome = functions.go(vm1=[HALF])
    assert outcome.problems == []
    assert functions.on("0000:41:00.4") == "1155"
    assert functions.read(vgpu.RECORD) == kept


def test_no_room_says_what_there_is(functions: Machine) -> None:
    outcome = functions.go(FIRST, vm1=[WHOLE, HALF])
    (said,) = outcome.problems
    assert said == (
        f"no GPU has room for share 1 of guest vm1 — hv1 — got {HALF} / allowed nothing — "
        "Write one of these, give the guest fewer shares, or more GPUs in bedplate_vgpu."
    )
    assert functions.on("0000:41:00.4") == "1157"


def test_a_share_that_a_guest_has_is_left_and_told(
    functions: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.go(vm1=[HALF])
    monkeypatch.setattr(vgpu, "put", lambda *_: "Device or resource busy")
    (said,) = functions.go().problems
    assert said == (
        f"share vm1/0 {HALF} cannot be taken away — hv1 — got Device or resource busy / allowed a "
        "share that no guest has — Shut guest vm1 down when its work allows, and run the play "
        "again."
    )
    assert [share.guest for share in vgpu.recorded(functions.host)] == ["vm1"]


def test_a_share_of_a_running_domain_is_not_even_asked_for(functions: Machine) -> None:
    """The kernel may have the guest asked to give it up, and wait."""
    (share,) = functions.go(vm1=[HALF]).shares
    guest = libvirt_domain.Guest(
        "vm1", (), 1, 1, "/d", "br0", "", (), 0, "", functions=[share.function]
    )
    functions.domains["vm1"] = libvirt_domain.xml(guest)
    (said,) = functions.go().problems
    assert "got domain vm1 runs with it / allowed a share that no guest has" in said
    assert functions.on(share.function) == "1155"
    functions.domains.clear()
    assert functions.go().problems == []
    assert functions.on(share.function) == "0"


def test_without_cards_nothing_of_it_stays(functions: Machine) -> None:
    functions.go(vm1=[HALF])
    functions.ran.clear()
    before = functions.share([], check=True)
    assert (bool(before.diff), before.problems) == (True, [])
    assert functions.on("0000:41:00.4") == "1155"
    assert functions.share([]).problems == []
    assert functions.on("0000:41:00.4") == "0"
    assert f"{vgpu.SRIOV} -d {FIRST}" in functions.ran
    assert "systemctl disable bedplate-vgpu.service" in functions.ran
    assert [path for path in vgpu_apply.FILES if functions.host.exists(path)] == []
    assert functions.share([]).diff == []


def test_what_is_not_shown_yet_moves_nothing(functions: Machine) -> None:
    """After a boot, the manager may not have told of its profiles when the play looks."""
    functions.go(vm1=[WHOLE], vm2=[HALF])
    kept = places(functions.go(vm1=[WHOLE], vm2=[HALF]))
    for function in kept.values():
        functions.put(f"{DEVICES}/{function}/nvidia/current_vgpu_type", "0")
        functions.put(f"{DEVICES}/{function}/nvidia/creatable_vgpu_types", "")
    assert places(functions.go(vm1=[WHOLE], vm2=[HALF])) == kept


def test_a_domain_of_a_former_guest_is_named(functions: Machine) -> None:
    (share,) = functions.go(vm2=[HALF]).shares
    old = libvirt_domain.Guest(
        "vm1", (), 1, 1, "/d", "br0", "", (), 0, "", functions=[share.function]
    )
    domains = {"vm1": libvirt_domain.xml(old)}
    settings = libvirt_guests.Settings("hv1", "qemu:///system", "kvm", "", [])
    (said,) = libvirt_guests.former(functions.host, domains, {"vm2": {}}, settings)
    assert said == (
        f"domain of a former guest has a share — hv1, domain vm1 — got {share.function} / "
        "allowed guest vm2 alone — Run 'virsh undefine vm1'."
    )
    assert libvirt_guests.former(functions.host, domains, {"vm1": {}}, settings) == []


def test_another_manager_names_the_profile_anew(
    functions: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.go(vm1=[HALF])
    monkeypatch.setitem(TYPES, HALF, "2155")
    functions.put(f"{DEVICES}/0000:41:00.4/nvidia/current_vgpu_type", "0")
    functions.kernel()
    assert functions.go(vm1=[HALF]).problems == []
    assert functions.on("0000:41:00.4") == "2155"


def test_a_card_that_is_not_there_is_named(functions: Machine) -> None:
    (said,) = functions.go("0000:99:00.0", vm1=[HALF]).problems
    assert said.startswith("no such GPU — hv1 — got 0000:99:00.0 / allowed a PCI function")


def test_mediated_devices_keep_their_identity(devices: Machine) -> None:
    outcome = devices.go(vm1=["grid_t4-8c"], vm2=["grid_t4-8c"], vm3=["grid_t4-8c"])
    assert outcome.problems == []
    assert places(outcome) == {"vm1/0": FIRST, "vm2/0": FIRST, "vm3/0": SECOND}
    identities = [share.identity for share in outcome.shares]
    assert len(set(identities)) == 3
    made = devices.root / vgpu.MEDIATED.lstrip("/")
    assert sorted(one.name for one in made.iterdir()) == sorted(identities)
    again = devices.go(vm1=["grid_t4-8c"], vm2=["grid_t4-8c"], vm3=["grid_t4-8c"])
    assert again.diff == []
    assert [share.identity for share in again.shares] == identities


def test_a_mediated_device_is_taken_away(devices: Machine) -> None:
    (share,) = devices.go(vm1=["grid_t4-8c"]).shares
    outcome = devices.go()
    assert outcome.problems == []
    assert devices.read(f"{vgpu.MEDIATED}/{share.identity}/remove") == "1"
    assert vgpu.recorded(devices.host) == []


@pytest.mark.parametrize("mediated", [False, True])
def test_a_domain_has_its_guests_shares(tmp_path: Path, mediated: bool) -> None:
    machine = Machine(tmp_path, mediated=mediated)
    profile = "grid_t4-8c" if mediated else HALF
    (share,) = machine.go(vm1=[profile]).shares
    settings = libvirt_guests.Settings("hv1", "qemu:///system", "kvm", "", [])
    wish = {"vgpu": [profile], "cpus": 2, "memory_gib": 4, "disk": "/d", "network": "br0"}
    made = libvirt_guests.guest(machine.host, "vm1", wish, settings)
    essence = libvirt_domain.essence(libvirt_domain.xml(made))
    assert essence["mediated"] == ([share.identity] if mediated else [])
    assert essence["host_devices"] == ([] if mediated else ["0000:41:00.4"])
    # NVIDIA's driver keeps the function: libvirt must not give it to vfio-pci.
    assert essence["managed"] == ([] if mediated else ["no"])
