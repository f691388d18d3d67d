"""A hypervisor's kernel, on folders: files, boot loaders, what waits for a reboot, killed runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import removal
from bedplate.portable.host import Host, Result
from bedplate.portable.passthrough import apply as passthrough_apply
from bedplate.portable.passthrough import functions as passthrough
from bedplate.portable.passthrough import kernel as passthrough_kernel
from tests.substrate.gpu import topologies

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAGES = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
CARD = ["0000:25:00.0", "0000:25:00.1"]
OTHER = ["0000:81:00.0", "0000:81:00.1"]
ARGUMENTS = "iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=64"


class Machine:
    """A hypervisor below a folder, with a simulated systemd, GRUB and vfio-pci."""

    def __init__(self, root: Path, *, iommu: bool = True, topology: str = "server-rtx3090") -> None:
        topologies.write(topology, root, iommu=iommu)
        self.root, self.ran, self.enabled, self.dies_at = root, [], False, ""
        self.put("/proc/cmdline", "quiet " + (ARGUMENTS if iommu else ""))
        for program in ("update-grub", "update-initramfs"):
            self.put(f"/usr/sbin/{program}", "")
        self.put("/etc/default/grub", "")
        self.put("/etc/initramfs-tools/modules", "# mine\nloop\n")

    def put(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        line = " ".join(argv)
        if line.startswith("systemctl is-enabled"):
            return Result(0, "enabled\n" if self.enabled else "disabled\n", "")
        self.ran.append(line.removeprefix("/usr/sbin/"))
        if self.dies_at and self.dies_at in line:
            raise KeyboardInterrupt
        self.enabled |= line.startswith("systemctl enable")
        if line.startswith("systemctl restart"):
            for address in self.text(passthrough_kernel.ADDRESSES).splitlines()[1:]:
                topologies.bind(self.root, address, "vfio-pci")
        return Result(0, "", "")

    def go(
        self, *, check: bool = False, pages: int = 64, devices: Sequence[str] = CARD
    ) -> passthrough_apply.Outcome:
        host = Host(str(self.root), self._run)
        binding = passthrough.binding(passthrough.functions(host), devices)
        wish = passthrough_kernel.Wish(binding, "1G", pages)
        return passthrough_apply.Work(host, wish, "hv1", check).run(keep_boot_loader=False)

    def free(self) -> None:
        for address in CARD:
            topologies.bind(self.root, address, None)


def test_a_bare_hypervisor_is_told_everything_and_waits_for_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path, iommu=False)
    outcome = machine.go()
    assert outcome.problems == []
    assert outcome.reasons == [
        f"the running kernel lacks {ARGUMENTS}",
        "0000:25:00.1 (10de:1aef) is controlled by snd_hda_intel",
    ]
    assert machine.text("/etc/default/grub.d/90-bedplate-passthrough.cfg").splitlines()[1:] == [
        f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {ARGUMENTS}"'
    ]
    assert "ids=" not in machine.text("/etc/modprobe.d/bedplate-vfio.conf")
    assert machine.text("/etc/bedplate/vfio-devices").splitlines()[1:] == CARD
    assert (tmp_path / "usr/libexec/bedplate/vfio-bind").stat().st_mode & 0o777 == 0o755
    assert machine.text("/etc/initramfs-tools/modules").startswith("# mine\nloop\nvfio # ")
    assert machine.ran == [
        "systemctl daemon-reload",
        "systemctl enable bedplate-vfio.service",
        "update-grub",
        "update-initramfs -u -k all",
    ]


def test_an_intel_host_is_told_to_use_its_iommu(tmp_path: Path) -> None:
    machine = Machine(tmp_path, iommu=False, topology="workstation-root-port")
    host = Host(str(machine.root))
    assert passthrough_kernel.arguments(host, "", 0) == ["intel_iommu=on", "iommu=pt"]


def test_free_functions_are_bound_at_once_and_the_second_run_changes_nothing(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.free()
    first = machine.go()
    assert (first.problems, first.reasons) == ([], [])
    assert machine.ran[-1] == "systemctl restart bedplate-vfio.service"
    machine.ran.clear()
    second = machine.go()
    assert (second.diff, second.reasons, machine.ran) == ([], [], [])


def test_a_card_that_is_no_longer_given_away_waits_for_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.free()
    # Another, which somebody gave to vfio-pci by other means, is theirs.
    for address in OTHER:
        topologies.bind(machine.root, address, "vfio-pci")
    assert machine.go().reasons == []
    said = [
        f"{one} is no longer given away and still held by vfio-pci"
        for one in ("0000:25:00.0 (10de:2204)", "0000:25:00.1 (10de:1aef)")
    ]
    assert machine.go(check=True, devices=[]).reasons == said
    assert not (tmp_path / passthrough_kernel.RELEASED[1:]).exists()
    assert machine.go(devices=[]).reasons == said
    assert CARD[0] not in machine.text(passthrough_kernel.ADDRESSES)
    # The list has lost it by now.
    assert machine.go(devices=[]).reasons == said
    assert machine.go().reasons == [], "it may be given away again"
    assert machine.go(devices=[]).reasons == said
    # The boot empties /run.
    (tmp_path / passthrough_kernel.RELEASED[1:]).unlink()
    assert machine.go(devices=[]).reasons == []


def test_check_mode_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.free()
    before = sorted(tmp_path.rglob("*"))
    wanted = machine.go(check=True).diff
    assert sorted(tmp_path.rglob("*")) == before
    assert machine.ran == []
    assert wanted == machine.go().diff


@pytest.mark.parametrize("step", ["update-grub", "update-initramfs", "enable", "restart"])
def test_a_run_that_was_killed_is_made_up_for(step: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "killed")
    machine.free()
    machine.dies_at = step
    with pytest.raises(KeyboardInterrupt):
        machine.go()
    machine.dies_at = ""
    machine.ran.clear()
    assert machine.go().problems == []
    assert step in " ".join(machine.ran)
    assert machine.go().diff == []

    other = Machine(tmp_path / "undisturbed")
    other.free()
    other.go()
    assert _tree(machine.root) == _tree(other.root)


def _tree(root: Path) -> dict[str, str]:
    # The record of our files tells which folders each run made: that is where the two differ.
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and "owned.json" not in path.name
    }


def test_a_kernel_that_finds_no_iommu_is_a_fault_of_the_firmware(tmp_path: Path) -> None:
    machine = Machine(tmp_path, iommu=False)
    machine.put("/proc/cmdline", ARGUMENTS)
    outcome = machine.go()
    (said,) = outcome.problems
    assert said == (
        "the IOMMU stays off although the kernel has the parameters for it — hv1 — got no groups"
        " below "
        "/sys/kernel/iommu_groups / allowed IOMMU groups — Switch on VT-d, AMD-Vi or SMMU in the "
        "firmware, and reboot."
    )
    assert machine.ran == []


def test_an_unknown_boot_loader_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "usr/sbin/update-grub").unlink()
    (said,) = machine.go().problems
    assert said == (
        "the boot loader is not known — hv1 — got neither update-grub nor grubby / allowed GRUB, "
        "or a boot loader that grubby knows — Add "
        f"'{ARGUMENTS}' to the kernel's command line, reboot, and set "
        "gpu_passthrough_boot_loader: none."
    )
    assert not (tmp_path / "etc/bedplate").exists()


def test_grubby_adds_what_is_missing_and_takes_only_its_own_away(tmp_path: Path) -> None:
    entry = 'index=0\nargs="ro crashkernel=1G iommu=pt hugepages=32 {}"\n'

    def grubby(argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        return Result(0, entry.format(more), "")

    host = Host(str(tmp_path), grubby)
    host.write("/usr/sbin/grubby", "")
    host.write(passthrough_kernel.ADDED, "iommu=pt hugepages=32\n")
    more, wished = "", ["iommu=pt", "hugepages=64"]
    loader, problems = passthrough_kernel.boot_loader(host, wished, "hv1")
    assert problems == []
    assert loader.commands == [
        [
            "/usr/sbin/grubby",
            "--update-kernel=ALL",
            "--args=hugepages=64",
            "--remove-args=hugepages=32",
        ]
    ]
    assert loader.files == {passthrough_kernel.ADDED: "iommu=pt hugepages=64\n"}
    host.remove(passthrough_kernel.ADDED)
    loader, _ = passthrough_kernel.boot_loader(host, wished, "hv1")
    assert loader.files == {passthrough_kernel.ADDED: "hugepages=64\n"}, "iommu=pt is the owner's"
    entry = 'index=0\nargs="ro crashkernel=1G iommu=pt hugepages=64"\n'
    assert passthrough_kernel.boot_loader(host, wished, "hv1")[0].commands == []


def test_a_menu_that_somebody_wrote_without_the_drop_in_is_written_again(tmp_path: Path) -> None:
    own = "/etc/grub.d/10_linux ###"
    menu = f"### BEGIN {own}\n\tlinux\t/vmlinuz {{}}\n### END {own}\n"
    machine = Machine(tmp_path)
    machine.free()
    machine.go()
    for text, ran in ((menu.format(ARGUMENTS), []), (menu.format("quiet"), ["update-grub"])):
        machine.ran.clear()
        machine.put(passthrough_kernel.GRUB_MENU, text)
        machine.go()
        assert machine.ran == ran


def test_entries_that_grubby_knows_are_those_of_the_next_boot(tmp_path: Path) -> None:
    said = 'index=0\nargs="ro iommu=pt hugepages=4"\nindex=1\nargs="ro iommu=pt"\n'
    host = Host(str(tmp_path), lambda *_: Result(0, said, ""))
    host.write("/usr/sbin/grubby", "")
    found = passthrough_kernel.next_boot(host, ["iommu=pt", "hugepages=4"])
    assert found == (["iommu=pt"], "")
    mute = Host(str(tmp_path), lambda *_: Result(1, "", "grubby: no\n"))
    assert passthrough_kernel.next_boot(mute, ["iommu=pt"]) == (None, "grubby: no")


def test_huge_pages_that_were_given_up_are_taken_back_without_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.free()
    machine.go()
    machine.put(PAGES, "3\n")
    would = machine.go(check=True)
    assert machine.text(PAGES) == "3\n"
    outcome = machine.go()
    assert (
        outcome.diff
        == would.diff
        == [{"before": "3 huge pages of 1G\n", "after": "64 huge pages of 1G\n"}]
    )
    assert (outcome.problems, outcome.reasons, machine.text(PAGES)) == ([], [], "64\n")
    assert machine.go().diff == []


def test_memory_that_has_no_more_huge_pages_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.free()
    machine.go()
    machine.put(PAGES, "3\n")
    # A kernel whose free memory has five in one piece.
    monkeypatch.setattr(passthrough_kernel, "reserve", lambda host, *_: host.write(PAGES, "5\n"))
    assert machine.go().problems == [
        (
            "memory for huge pages is short — hv1 — got 5 of 1G / allowed 64 — Reboot the host; "
            "if it has no more then, give the guests less memory."
        )
    ]
    assert machine.go().diff == []


def test_a_kernel_that_makes_no_huge_pages_after_boot_is_no_crash(tmp_path: Path) -> None:
    # It refuses the write, as a folder does.
    (tmp_path / PAGES.lstrip("/")).mkdir(parents=True)
    passthrough_kernel.reserve(Host(str(tmp_path)), "1G", 64)


def test_huge_pages_that_wait_for_the_reboot_are_not_asked_for_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path, iommu=False)
    machine.put(PAGES, "0\n")
    assert machine.go().problems == []
    assert machine.text(PAGES) == "0\n"


MODULES = "/etc/initramfs-tools/modules"


def test_a_reset_leaves_the_modules_that_the_user_listed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put(MODULES, "# mine\nvfio # mine too\n")
    (tmp_path / MODULES[1:]).chmod(0o600)
    machine.go()
    machine.put(MODULES, machine.text(MODULES) + "nvme\n")
    machine.go()
    removal.files(Host(str(tmp_path), machine._run), [], check=False)
    assert machine.text(MODULES) == "# mine\nvfio # mine too\nnvme\n"
    assert (tmp_path / MODULES[1:]).stat().st_mode & 0o777 == 0o600


def test_a_list_that_has_all_modules_already_is_not_ours_to_remove(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put(MODULES, "vfio\nvfio_iommu_type1\nvfio_pci\n")
    machine.go()
    removal.files(Host(str(tmp_path), machine._run), [], check=False)
    assert machine.text(MODULES) == "vfio\nvfio_iommu_type1\nvfio_pci\n"
