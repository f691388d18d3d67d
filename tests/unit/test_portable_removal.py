"""A reset takes away what is ours and nothing else, says so first, and has nothing to do twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bedplate.portable import owned, removal
from bedplate.portable.archives import MARKER
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Result
from bedplate.portable.kernel import settings as kernel
from bedplate.portable.passthrough import kernel as command_line
from tests.unit.removal_machine import BLACKLIST, CDI, DEFAULTS, DROP_IN, MARK, UNIT, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_check_mode_says_what_goes_and_touches_nothing(machine: Machine) -> None:
    before = machine.tree(), machine.host.read(owned.RECORD)
    outcome = removal.files(machine.host, [], check=True)
    assert outcome == removal.Outcome(
        [
            f"{CDI}: removed",
            f"{DEFAULTS}: as it was before",
            f"{BLACKLIST}: removed",
            f"{UNIT}: removed",
            f"{DROP_IN}: removed",
        ],
        [],
    )
    assert (machine.tree(), machine.host.read(owned.RECORD)) == before
    assert machine.asked == []


def test_files_go_with_their_folders_and_what_was_there_comes_back(machine: Machine) -> None:
    (machine.root / "usr/sbin").mkdir()
    (machine.root / "usr/sbin/update-initramfs").touch()
    removal.files(machine.host, [], check=False)
    assert machine.tree() == [
        "etc",
        "etc/containerd",
        "etc/containerd/config.toml",
        "etc/modprobe.d",
        "etc/systemd",
        "etc/systemd/system",
        "usr",
        "usr/local",
        "usr/local/bin",
    ]
    assert machine.host.read(DEFAULTS) == "the package's\n"
    assert machine.asked == [
        "systemctl disable --now containerd.service",
        "systemctl daemon-reload",
        "/usr/sbin/update-initramfs -u -k all",
    ]
    assert not machine.host.exists(kernel.STALE_INITRAMFS)
    assert removal.files(machine.host, [], check=False) == removal.Outcome([], [])


def test_a_mount_of_ours_is_undone_before_its_unit_goes(machine: Machine) -> None:
    mount = "/etc/systemd/system/run-nvidia-mps-shm.mount"
    ensure_files(machine.host, [File(mount, MARK.format("gpu_sharing"))])
    removal.files(machine.host, ["gpu_sharing"], check=False)
    assert machine.asked == [
        "systemctl disable --now run-nvidia-mps-shm.mount",
        "systemctl daemon-reload",
    ]


def test_a_replaced_file_comes_back_as_readable_as_it_was(machine: Machine) -> None:
    secret = "/etc/containerd/secret.toml"
    machine.host.write(secret, "theirs\n", 0o600)
    ensure_files(machine.host, [File(secret, MARK.format("container_runtime"))])
    removal.files(machine.host, [], check=False)
    assert machine.host.read(secret) == "theirs\n"
    assert (machine.root / secret[1:]).stat().st_mode & 0o777 == 0o600


def test_only_the_roles_that_are_named_lose_files(machine: Machine) -> None:
    outcome = removal.files(machine.host, ["nvidia_device_plugin"], check=False)
    assert outcome.changes == [f"{DROP_IN}: removed"]
    assert set(owned.load(machine.host)) == {DEFAULTS, UNIT, BLACKLIST, CDI}


@pytest.mark.parametrize("path", [UNIT, DEFAULTS])
def test_what_somebody_edited_stays_and_is_named_until_the_end(machine: Machine, path: str) -> None:
    machine.host.write(path, "theirs\n")
    outcome = removal.files(machine.host, [], check=False)
    assert outcome.kept == [f"{path}: edited since"]
    assert machine.host.read(path) == "theirs\n"
    assert removal.files(machine.host, [], check=False).kept == outcome.kept
    removal.records(machine.host, check=False)
    assert removal.files(machine.host, [], check=False) == removal.Outcome([], [])


def test_no_text_of_before_comes_over_an_edited_file_that_was_written_again(
    machine: Machine,
) -> None:
    path = "/etc/apt/sources.list"
    machine.host.write(path, "main\n")
    for more in ("main contrib\n", "main contrib\nmine\nnon-free\n"):
        ensure_files(machine.host, [File(path, more)], watched=False)
        machine.host.write(path, "main contrib\nmine\n")
    ensure_files(machine.host, [File(path, "main contrib\nmine\nnon-free\n")], watched=False)
    outcome = removal.files(machine.host, [], check=False)
    assert outcome.kept == [f"{path}: edited since"]
    assert machine.host.read(path) == "main contrib\nmine\nnon-free\n"


def test_a_run_that_was_killed_before_it_wrote_has_edited_nothing(machine: Machine) -> None:
    path = "/etc/apt/sources.list"
    machine.host.write(path, "main\n")
    writing = owned.Writing(path, "main contrib\n", 0o644, "main\n", watched=False)
    owned.keep(machine.host, [writing])
    ensure_files(machine.host, [File(path, "main contrib\n")], watched=False)
    assert f"{path}: as it was before" in removal.files(machine.host, [], check=False).changes
    assert machine.host.read(path) == "main\n"


def test_a_generated_file_goes_whatever_it_says(machine: Machine) -> None:
    machine.host.write(CDI, "generated anew\n")
    assert f"{CDI}: removed" in removal.files(machine.host, [], check=False).changes


def test_a_killed_run_still_refreshes_the_initramfs(machine: Machine) -> None:
    (machine.root / "usr/sbin").mkdir()
    (machine.root / "usr/sbin/update-initramfs").touch()
    machine.answers["update-initramfs"] = Result(1, "", "killed")
    with pytest.raises(removal.RemovalError, match="killed"):
        removal.files(machine.host, [], check=False)
    machine.answers.clear()
    machine.asked.clear()
    removal.files(machine.host, ["host"], check=False)
    assert machine.asked == ["/usr/sbin/update-initramfs -u -k all"]


def test_programs_go_with_their_links_and_other_links_stay(machine: Machine) -> None:
    for name in ("containerd", "kubernetes-node"):
        machine.host.write(f"/opt/bedplate/{name}/1/bin/{name}", "")
        machine.host.write(f"/opt/bedplate/{name}/1/{MARKER}", "{}")
        (machine.root / f"usr/local/bin/{name}").symlink_to(f"/opt/bedplate/{name}/1/bin/{name}")
    (machine.root / "usr/local/bin/mine").symlink_to("/opt/mine")
    outcome = removal.archives(machine.host, ["containerd"], check=False)
    assert outcome.changes == [
        "/usr/local/bin/containerd: removed",
        "/opt/bedplate/containerd: removed",
    ]
    assert machine.host.list("/usr/local/bin") == ["kubernetes-node", "mine"]
    removal.archives(machine.host, [], check=False)
    assert machine.host.list("/usr/local/bin") == ["mine"]
    assert machine.host.list("/opt/bedplate") == []


@pytest.mark.parametrize("check", [True, False])
def test_of_the_store_goes_only_what_archives_brought(machine: Machine, check: bool) -> None:
    store, programs = machine.root / "opt/bedplate", machine.root / "usr/local/bin"
    for path in (f"containerd/1/{MARKER}", f"crio/1/{MARKER}", "containerd/mine/run", "my/run"):
        machine.host.write(f"{removal.STORE}/{path}", "{}")
    machine.host.write(f"{removal.STORE}/containerd/.bedplate-2.abc/new/half", "")
    machine.host.write("/srv/crio/run", "")
    machine.host.write(f"/srv/crio/{MARKER}", "{}")
    (store / "notes").write_text("mine")
    (store / "crio/elsewhere").symlink_to("../../../srv/crio")
    (store / "linked").symlink_to("../../srv")
    for name, target in (("ctr", "1/bin/ctr"), ("old", "0/bin/old"), ("mine", "mine/run")):
        (programs / name).symlink_to(f"{removal.STORE}/containerd/{target}")
    before = machine.tree()
    outcome = removal.archives(machine.host, [], check)
    gone = ["containerd/.bedplate-2.abc", "containerd/1", "crio/1"]
    stays = ["containerd/mine", "crio/elsewhere", "linked", "my/run", "notes"]
    assert outcome.changes == [
        "/usr/local/bin/ctr: removed",
        "/usr/local/bin/old: removed",
        *(f"{removal.STORE}/{path}: removed" for path in gone),
    ]
    assert outcome.kept == [
        f"{removal.STORE}/{path}: not of an archive that Bedplate unpacked" for path in stays
    ]
    if check:
        assert machine.tree() == before
        return
    assert not any((store / path).exists() for path in gone)
    assert all((store / path).exists() for path in stays)
    assert machine.host.list("/usr/local/bin") == ["mine"]
    assert machine.host.list("/srv/crio") == [MARKER, "run"]
    assert removal.archives(machine.host, [], check=False) == removal.Outcome([], outcome.kept)


def test_a_store_that_was_cut_off_half_way_goes_with_the_next_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.host.write(f"{removal.STORE}/containerd/1/{MARKER}", "{}")
    machine.host.write(f"{removal.STORE}/containerd/1/bin/ctr", "")

    def killed(folder: str) -> None:
        (inside,) = Path(folder).rglob(MARKER)
        inside.unlink()
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(OSError, match="killed"):
            removal.archives(machine.host, [], check=False)
    outcome = removal.archives(machine.host, [], check=False)
    assert outcome == removal.Outcome([f"{removal.STORE}/containerd: removed"], [])
    assert machine.host.list(removal.STORE) == []


def test_records_go_last_and_folders_of_the_user_stay(machine: Machine) -> None:
    machine.host.write("/etc/bedplate/mine", "")
    outcome = removal.records(machine.host, check=False)
    assert f"{owned.RECORD}: removed" in outcome.changes
    assert outcome.kept == ["/etc/bedplate: there are files in it that are not ours"]
    assert not machine.host.exists("/var/lib/bedplate")
    assert removal.records(machine.host, check=False).changes == []


GRUB = "/etc/default/grub.d/90-bedplate-passthrough.cfg"


def test_the_kernels_command_line_is_given_back_also_after_a_run_that_was_cut_off(
    machine: Machine,
) -> None:
    machine.host.write("/usr/sbin/update-grub", "")
    ensure_files(machine.host, [File(GRUB, MARK.format("gpu_passthrough") + "hugepages=512\n")])
    outcome = removal.boot_arguments(machine.host, check=True)
    assert outcome.changes == [f"{GRUB}: removed, and GRUB's menu written without it"]
    assert machine.asked == []
    machine.answers["update-grub"] = Result(1, "", "no space left")
    with pytest.raises(removal.RemovalError, match="no space left"):
        removal.boot_arguments(machine.host, check=False)
    assert not machine.host.exists(GRUB)
    machine.answers.clear()
    machine.asked.clear()
    assert removal.boot_arguments(machine.host, check=False).changes == outcome.changes
    assert machine.asked == ["/usr/sbin/update-grub"]
    assert removal.boot_arguments(machine.host, check=False) == removal.Outcome([], [])


def test_a_command_line_that_somebody_edited_stays(machine: Machine) -> None:
    ensure_files(machine.host, [File(GRUB, MARK.format("gpu_passthrough"))])
    machine.host.write(GRUB, "theirs\n")
    assert removal.boot_arguments(machine.host, check=False) == removal.Outcome([], [])
    assert machine.host.read(GRUB) == "theirs\n"


def test_grubby_takes_away_what_was_added_by_it(machine: Machine) -> None:
    machine.host.write("/usr/sbin/grubby", "")
    machine.host.write(command_line.ADDED, "intel_iommu=on hugepages=512\n")
    info = 'args="ro quiet intel_iommu=on hugepages=512"\n'
    machine.answers["--info=ALL"] = Result(0, info, "")
    removal.boot_arguments(machine.host, check=False)
    assert machine.asked[-1] == (
        "/usr/sbin/grubby --update-kernel=ALL --remove-args=hugepages=512 intel_iommu=on"
    )
