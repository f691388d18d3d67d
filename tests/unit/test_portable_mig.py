"""MIG layouts on hosts made of canned answers, in the form in which nvidia-smi 535 gives them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import holders, mig, mig_boot
from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import cdi

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLE = Path(__file__).parents[2] / "roles/gpu_sharing"
PORTABLE = Path(__file__).parents[2] / "src/bedplate/portable"
SLOTS = 7


class Killed(BaseException):
    """The run was killed: nothing of it runs any more."""


class Cards:
    """Cards that nvidia-smi divides: each is on or off and has instances with their devices."""

    def __init__(self, root: Path, count: int = 2, capable: bool = True) -> None:
        self.host = Host(str(root), self.run)
        self.root = root
        self.capable = capable
        self.on = [False] * count
        self.stuck = False
        self.layout: list[list[str]] = [[] for _ in range(count)]
        self.bare: list[list[str]] = [[] for _ in range(count)]
        self.compute = ["Default"] * count
        self.services = {"nvidia-persistenced"}
        self.endless: set[str] = set()
        self.killed_at = ""
        self.commands: list[str] = []

    def run(self, argv: Sequence[str], *_: object) -> Result:
        words = list(argv)
        if self.killed_at in (" ".join(words[1:]), "now"):
            self.killed_at = "now"
            raise Killed
        if words[0] == "systemctl":
            return self.systemctl(words[1:])
        if words[1] == "--query-gpu=index,pci.bus_id":
            rows = [f"{n}, 00000000:0{n}:00.0\n" for n in range(len(self.on))]
            return Result(0, "".join(rows), "")
        if words[1].startswith("--query-gpu"):
            return Result(0, "".join(map(self.row, range(len(self.on)))), "")
        if words[1:] == ["-L"]:
            return Result(0, "".join(map(self.listed, range(len(self.on)))), "")
        if words[1:] == ["mig", "-lgi"]:
            return self.instances()
        self.commands.append(" ".join(words[1:]))
        return self.change(words[1:])

    def systemctl(self, words: list[str]) -> Result:
        verb, unit = words[0], words[-1]
        if verb == "is-active":
            return Result(0 if unit in self.services else 3, "", "")
        self.commands.append(" ".join(words))
        if verb == "start":
            self.services.add(unit)
        elif unit in self.endless:
            return Result(124, "", "no answer from systemctl within 60 s")
        else:
            self.services.discard(unit)
        return Result(0, "", "")

    def row(self, n: int) -> str:
        mode = ("Enabled" if self.on[n] else "Disabled") if self.capable else "[N/A]"
        return f"{n}, GPU-{n}, {mode}, {mode}, {self.compute[n]}\n"

    def listed(self, n: int) -> str:
        lines = [f"GPU {n}: NVIDIA A100-SXM4-80GB (UUID: GPU-{n})\n"]
        for i, profile in enumerate(self.layout[n]):
            lines.append(f"  MIG {profile:<12}  Device  {i}: (UUID: MIG-{n}-{i})\n")
        return "".join(lines)

    def instances(self) -> Result:
        rows = [
            f"|   {n}  MIG {profile:<15} 19       {i}          {i}:1     |\n"
            for n in range(len(self.on))
            for i, profile in enumerate(self.layout[n] + self.bare[n])
        ]
        if not rows:
            return Result(6, "No GPU instances found: Not Found\n", "")
        return Result(0, "| GPU instances:       |\n" + "".join(rows), "")

    def change(self, words: list[str]) -> Result:
        n = int(words[words.index("-i") + 1])
        if "-c" not in words and self.services & set(holders.WATCHERS):
            return Result(19, "Unable to change it: In use by another client\n", "")
        if "-mig" in words and not self.stuck:
            self.on[n] = words[-1] == "1"
        elif "-c" in words:
            self.compute[n] = words[-1].capitalize().replace("_process", "_Process")
        elif "-dci" in words:
            self.bare[n] += self.layout[n]
            self.layout[n] = []
        elif "-dgi" in words:
            self.bare[n] = []
        elif "-cgi" in words:
            profiles = words[words.index("-cgi") + 1].split(",")
            fit = sum(int(profile[0]) for profile in profiles) <= SLOTS
            if not fit:
                return Result(4, "Failed to create GPU instances: Insufficient Resources\n", "")
            self.layout[n] = profiles
        return Result(0, "", "")

    def hold(self, pid: int, name: str, target: str, group: str = "/user.slice") -> None:
        """A process with an open file."""
        folder = self.root / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(target)
        (folder.parent / "comm").write_text(f"{name}\n")
        (folder.parent / "cgroup").write_text(f"0::{group}\n")


@pytest.fixture
def cards(tmp_path: Path) -> Cards:
    return Cards(tmp_path)


SEVEN = mig.Wish(("1g.10gb",) * 7, "default")
NONE = mig.Wish((), "default")


def test_cards_are_divided_once_with_the_daemon_away_for_the_mode_only(cards: Cards) -> None:
    outcome = mig.apply(cards.host, SEVEN, "node")
    assert outcome.changed
    assert outcome.after["GPU 1"] == "7 x 1g.10gb"
    profiles = ",".join(SEVEN.profiles)
    assert cards.commands == [
        "stop nvidia-persistenced",
        "-i 0 -mig 1",
        "-i 1 -mig 1",
        "start nvidia-persistenced",
        f"mig -i 0 -cgi {profiles} -C",
        f"mig -i 1 -cgi {profiles} -C",
    ]
    cards.commands.clear()
    again = mig.apply(cards.host, SEVEN, "node")
    assert not again.changed
    assert cards.commands == []


def test_a_card_that_is_as_wished_is_left_alone(cards: Cards) -> None:
    mig.apply(cards.host, SEVEN, "node")
    cards.layout[1] = ["2g.20gb"]
    cards.commands.clear()
    mig.apply(cards.host, SEVEN, "node")
    assert all(" -i 1 " in command for command in cards.commands)
    assert [command.split()[3] for command in cards.commands] == ["-dci", "-dgi", "-cgi"]


def test_what_a_killed_run_left_is_mended(cards: Cards) -> None:
    cards.on = [True, True]
    cards.bare[0] = ["1g.10gb"]
    cards.layout[0] = ["1g.10gb"] * 6
    found = mig.read(cards.host)
    assert mig.described(found[0]) == ("half divided: instances 7 x 1g.10gb, devices 6 x 1g.10gb")
    assert mig.apply(cards.host, SEVEN, "node").after["GPU 0"] == "7 x 1g.10gb"


def test_mixed_profiles_are_made_the_largest_first(cards: Cards) -> None:
    mig.apply(cards.host, mig.Wish(("1g.10gb", "3g.40gb", "1g.20gb"), ""), "node")
    assert "mig -i 0 -cgi 3g.40gb,1g.20gb,1g.10gb -C" in cards.commands


def test_division_is_undone_and_the_compute_mode_set(cards: Cards) -> None:
    mig.apply(cards.host, SEVEN, "node")
    outcome = mig.apply(cards.host, mig.Wish((), "exclusive-process"), "node")
    assert outcome.after == {
        "GPU 0": "not divided",
        "GPU 0 compute mode": "Exclusive_Process",
        "GPU 1": "not divided",
        "GPU 1 compute mode": "Exclusive_Process",
    }


@pytest.mark.parametrize(("pci_class", "ready"), [("0x030000", False), ("0x030200", True)])
def test_a_display_mode_is_refused_before_a_node_is_drained(
    tmp_path: Path, pci_class: str, ready: bool
) -> None:
    """As a VGA controller it drives displays; a 3D controller that cannot be divided is another."""
    cards = Cards(tmp_path, capable=False)
    for n in range(2):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{n}:00.0"
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{pci_class}\n" if n else "0x030200\n")
    found = mig.read(cards.host)
    said = (
        "GPUs are in a display mode in which MIG cannot be enabled — node — got graphics on GPU 1"
        " / allowed compute — Set it by 'displaymodeselector --gpumode compute', reboot, and run"
        " the play again."
    )
    assert mig.unready(cards.host, found, SEVEN, "node") == ("" if ready else said)
    assert mig.unready(cards.host, found, NONE, "node") == ""
    other = "GPUs that MIG cannot divide — node — got GPU 0, 1"
    against = mig.refusal(cards.host, found, SEVEN, "node")
    assert against.startswith(other) if ready else against == said
    assert cards.commands == []
    if ready:
        assert len(mig.pending(cards.host, found, SEVEN, "node")) == len(found)
    else:
        with pytest.raises(mig.MigError, match="display mode"):
            mig.pending(cards.host, found, SEVEN, "node")


def test_nothing_is_touched_while_a_process_holds_a_card(cards: Cards) -> None:
    cards.hold(17, "nvidia-persiste", "/dev/nvidia0")
    cards.hold(23, "cat", "/dev/nvidiactl")
    assert mig.users(cards.host) == []
    cards.hold(4711, "python3", "/dev/nvidia1")
    with pytest.raises(mig.MigError) as caught:
        mig.apply(cards.host, SEVEN, "node")
    assert str(caught.value) == (
        "GPUs are in use, so that their MIG layout stays — node — got 4711 (python3) /"
        " allowed no process that holds a GPU —"
        " End them, or drain the node by bedplate.gpu.upgrade, and run the play again."
    )
    assert cards.commands == []
    # The compute mode counts for programs to come: who computes now is not disturbed.
    assert mig.apply(cards.host, mig.Wish((), "prohibited"), "node").changed


@pytest.fixture(params=["nvidia-dcgm", "dcgm"])
def watched(request: pytest.FixtureRequest, cards: Cards) -> Cards:
    """Cards that DCGM watches, by its unit's name of today or of old."""
    unit = str(request.param)
    cards.services.add(unit)
    cards.hold(88, "nv-hostengine", "/dev/nvidia0", f"/system.slice/{unit}.service")
    return cards


def test_what_only_watches_is_away_while_cards_are_divided(watched: Cards) -> None:
    (unit,) = watched.services - {"nvidia-persistenced"}
    assert mig.users(watched.host) == []
    assert mig.apply(watched.host, SEVEN, "node").after["GPU 0"] == "7 x 1g.10gb"
    # Not awaited: in the boot unit, which comes before DCGM, that would last for ever.
    assert [c for c in watched.commands if unit in c] == [
        f"stop {unit}",
        f"start --no-block {unit}",
    ]
    assert (watched.commands[0], watched.commands[-1]) == (
        f"stop {unit}",
        f"start --no-block {unit}",
    )
    assert watched.services == {"nvidia-persistenced", unit}
    assert not watched.host.exists(holders.RECORD)


def test_what_only_watches_comes_back_when_the_division_fails(watched: Cards) -> None:
    before = set(watched.services)
    with pytest.raises(mig.MigError, match="Insufficient Resources"):
        mig.apply(watched.host, mig.Wish(("4g.40gb", "4g.40gb"), ""), "node")
    assert watched.services == before


def test_what_only_watches_stays_where_no_card_is_divided(watched: Cards) -> None:
    mig.apply(watched.host, SEVEN, "node", check=True)
    assert mig.apply(watched.host, mig.Wish((), "prohibited"), "node").changed
    assert watched.commands == ["-i 0 -c PROHIBITED", "-i 1 -c PROHIBITED"]


@pytest.mark.parametrize(
    "killed_at", ["stop nvidia-persistenced", "-i 1 -mig 1", "mig -lgi", "start --no-block"]
)
def test_what_a_killed_run_has_stopped_the_next_one_starts(killed_at: str, watched: Cards) -> None:
    before = set(watched.services)
    (unit,) = before - {"nvidia-persistenced"}
    watched.killed_at = f"{killed_at} {unit}" if killed_at.startswith("start") else killed_at
    with pytest.raises(Killed):
        mig.apply(watched.host, SEVEN, "node")
    assert unit not in watched.services
    watched.killed_at = ""
    mig.apply(watched.host, SEVEN, "node")
    assert watched.services == before


def test_starting_what_a_killed_run_has_stopped_is_a_change_and_foretold(cards: Cards) -> None:
    mig.apply(cards.host, SEVEN, "node")
    cards.host.write(holders.RECORD, "nvidia-dcgm\nnvidia-fabricmanager\n")
    cards.commands.clear()
    foretold = mig.apply(cards.host, SEVEN, "node", check=True)
    assert (foretold.changed, cards.commands) == (True, [])
    assert mig.apply(cards.host, SEVEN, "node") == foretold
    # Fabric Manager waits for a driver: that is not asked here.
    assert cards.commands == ["start --no-block nvidia-dcgm"]
    assert holders.stopped(cards.host) == ["nvidia-fabricmanager"]
    assert not mig.apply(cards.host, SEVEN, "node").changed


def test_a_watcher_that_does_not_stop_is_named(watched: Cards) -> None:
    (unit,) = watched.services - {"nvidia-persistenced"}
    watched.endless.add(unit)
    with pytest.raises(mig.MigError) as caught:
        mig.apply(watched.host, SEVEN, "node")
    assert str(caught.value) == (
        "a service that only watches the GPUs does not stop — node —"
        f" got stop of {unit}: no answer from systemctl within 60 s /"
        " allowed nvidia-dcgm or dcgm stopped while GPUs are divided —"
        " Stop it on the host, and run the play again."
    )
    assert not any("mig" in command for command in watched.commands)


@pytest.mark.parametrize(
    "group",
    [
        "/user.slice/user-0.slice/session-1.scope",
        "/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope",
        "/machine.slice/box.scope/system.slice/nvidia-dcgm.service",
    ],
)
def test_a_watcher_of_no_service_of_the_host_is_a_user(group: str, cards: Cards) -> None:
    cards.hold(88, "nv-hostengine", "/dev/nvidia0", group)
    assert mig.users(cards.host) == ["88 (nv-hostengine)"]


#: Two sizes on one card, one card whole, one of a single size: as the lock says it.
LAYOUT = [
    {"cards": [0], "profiles": {"1g.10gb": 2, "3g.40gb": 1}},
    {"cards": [1]},  # as the lock has it
    {"cards": [2], "profiles": {"1g.10gb": 7}},
]
MIXED = mig.wish((), "default", LAYOUT)


def test_each_card_gets_its_own_layout_once_and_a_whole_one_is_not_touched(tmp_path: Path) -> None:
    cards = Cards(tmp_path, count=3)
    foretold = mig.apply(cards.host, MIXED, "node", check=True)
    assert cards.commands == []
    assert mig.apply(cards.host, MIXED, "node") == foretold
    assert foretold.after == {
        "GPU 0": "1 x 3g.40gb, 2 x 1g.10gb",
        "GPU 0 compute mode": "Default",
        "GPU 1": "not divided",
        "GPU 1 compute mode": "Default",
        "GPU 2": "7 x 1g.10gb",
        "GPU 2 compute mode": "Default",
    }
    assert [words for words in cards.commands if "nvidia" not in words] == [
        "-i 0 -mig 1",
        "-i 2 -mig 1",
        "mig -i 0 -cgi 3g.40gb,1g.10gb,1g.10gb -C",
        "mig -i 2 -cgi " + ",".join(["1g.10gb"] * 7) + " -C",
    ]
    cards.commands.clear()
    assert not mig.apply(cards.host, MIXED, "node").changed
    assert cards.commands == []


def test_another_layout_of_one_card_leaves_the_others_alone(tmp_path: Path) -> None:
    cards = Cards(tmp_path, count=3)
    mig.apply(cards.host, MIXED, "node")
    cards.commands.clear()
    other = [{"cards": [0], "profiles": {"3g.40gb": 2}}, *LAYOUT[1:]]
    mig.apply(cards.host, mig.wish((), "default", other), "node")
    assert cards.commands == ["mig -i 0 -dci", "mig -i 0 -dgi", "mig -i 0 -cgi 3g.40gb,3g.40gb -C"]
    assert mig.differing(mig.read(cards.host), MIXED) == [
        "GPU 0: 2 x 3g.40gb instead of 1 x 3g.40gb, 2 x 1g.10gb"
    ]


def test_the_compute_mode_is_that_of_whole_cards(tmp_path: Path) -> None:
    cards = Cards(tmp_path, count=3)
    mig.apply(cards.host, mig.wish((), "exclusive-process", LAYOUT), "node")
    assert cards.compute == ["Default", "Exclusive_Process", "Default"]


def test_a_layout_of_cards_that_are_not_there_is_refused(cards: Cards) -> None:
    with pytest.raises(mig.MigError) as caught:
        mig.apply(cards.host, MIXED, "node")
    assert str(caught.value) == (
        "the layout names GPUs that the host does not have — node — got GPU 2 /"
        " allowed GPU 0, 1 —"
        " Correct the GPUs of bedplate_sharing of the host's pool, and run 'bedplate plan'."
    )
    assert cards.commands == []


def test_a_card_that_stays_whole_need_not_be_one_that_mig_divides(tmp_path: Path) -> None:
    cards = Cards(tmp_path, count=3, capable=False)
    with pytest.raises(mig.MigError, match="GPUs that MIG cannot divide — node — got GPU 0, 2 / "):
        mig.apply(cards.host, MIXED, "node")


def test_cards_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    cards = Cards(tmp_path, capable=False)
    with pytest.raises(mig.MigError) as caught:
        mig.apply(cards.host, SEVEN, "node")
    assert str(caught.value) == (
        "GPUs that MIG cannot divide — node — got GPU 0, 1 / allowed GPUs of a model with MIG —"
        " Correct bedplate_sharing or bedplate_gpu of the host's pool, and run 'bedplate plan'."
    )
    assert not mig.apply(cards.host, NONE, "node").changed


def test_a_mode_that_waits_for_a_reset_is_told(cards: Cards) -> None:
    cards.stuck = True
    outcome = mig.apply(cards.host, SEVEN, "node")
    assert (outcome.changed, outcome.waiting) == (False, "MIG mode of GPU 0, 1 waits for a reset")
    assert cards.services == {"nvidia-persistenced"}


def test_what_does_not_fit_is_told_in_nvidias_words(cards: Cards) -> None:
    with pytest.raises(mig.MigError, match="Insufficient Resources"):
        mig.apply(cards.host, mig.Wish(("4g.40gb", "4g.40gb"), ""), "node")


def test_check_mode_says_the_same_and_does_nothing(cards: Cards) -> None:
    foretold = mig.apply(cards.host, SEVEN, "node", check=True)
    assert cards.commands == []
    assert foretold == mig.apply(cards.host, SEVEN, "node")


def test_the_boot_unit_reads_what_the_role_wrote() -> None:
    text = json.dumps({"profiles": ["1g.10gb"], "compute_mode": "default"})
    assert mig_boot.wish(text) == mig.Wish(("1g.10gb",), "default")
    text = json.dumps({"profiles": [], "compute_mode": "default", "layout": LAYOUT})
    assert mig_boot.wish(text) == MIXED


def test_the_boot_divides_before_dcgm_looks() -> None:
    unit = (ROLE / "templates/bedplate-gpu-layout.service.j2").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("Before="))
    assert {f"{name}.service" for name in holders.WATCHERS} <= set(line[7:].split())


def test_the_boot_divides_before_cdi_specifications_are_made() -> None:
    """Ours, and the one that NVIDIA's toolkit brings: devices that come later are in neither."""
    unit = (ROLE / "templates/bedplate-gpu-layout.service.j2").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("Before="))
    (ours,) = (name for name in cdi.UNITS if name.endswith(".service"))
    assert {ours, "nvidia-cdi-refresh.service"} <= set(line[7:].split())


def test_the_role_lays_every_module_that_the_boot_needs(tmp_path: Path) -> None:
    files = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__gpu_sharing_program"]
    names = {Path(one["path"]).name for one in files if "/portable/" in one["path"]}
    (tmp_path / "portable").mkdir()
    for name in names - {"__init__.py"}:
        shutil.copy(PORTABLE / name, tmp_path / "portable" / name)
    (tmp_path / "portable/__init__.py").touch()
    command = [sys.executable, "-c", "import portable.mig_boot"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_what_keeps_a_module_loaded_is_more_than_what_keeps_a_card(cards: Cards) -> None:
    cards.hold(17, "nvidia-persiste", "/dev/nvidia0")
    cards.hold(21, "nv-fabricmanage", "/dev/nvidia0", "/system.slice/nvidia-fabricmanager.service")
    cards.hold(22, "nvidia-imex", "/dev/nvidiactl", "/system.slice/nvidia-imex.service")
    cards.hold(23, "bash", "/dev/null")
    assert mig.module_users(cards.host) == []
    cards.hold(31, "cat", "/dev/nvidiactl")
    cards.hold(32, "python3", "/dev/nvidia-uvm")
    cards.hold(33, "dcgm-exporter", "/dev/nvidia1", "/kubepods.slice/kubepods-pod1.slice/a.scope")
    assert mig.module_users(cards.host) == ["31 (cat)", "32 (python3)", "33 (dcgm-exporter)"]
    assert mig.users(cards.host) == ["21 (nv-fabricmanage)", "33 (dcgm-exporter)"]
