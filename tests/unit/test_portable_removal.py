"""A reset takes away what is ours and nothing else, says so first, and has nothing to do twice."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import owned, removal
from bedplate.portable.archives import MARKER
from bedplate.portable.driver import record as driver_record
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host, Result
from bedplate.portable.kernel import settings as kernel
from bedplate.portable.packages import holds, rpm
from bedplate.portable.passthrough import kernel as command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

UNIT = "/etc/systemd/system/containerd.service"
DROP_IN = "/etc/systemd/system/kubelet.service.d/20-device-plugin.conf"
DEFAULTS = "/etc/containerd/config.toml"
BLACKLIST = "/etc/modprobe.d/bedplate-host.conf"
CDI = "/etc/cdi/nvidia.yaml"
MARK = "# Managed by Bedplate (role {}).\n"
SMI = "nvidia-smi"


class Machine:
    """A host with files of three roles, one of which replaced a package's file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root), self.run)
        self.asked: list[str] = []
        self.answers: dict[str, Result] = {}
        for folder in ("etc/systemd/system", "etc/modprobe.d", "etc/containerd", "usr/local/bin"):
            (root / folder).mkdir(parents=True)
        self.host.write(DEFAULTS, "the package's\n")
        ensure_files(
            self.host,
            [
                File(DEFAULTS, MARK.format("container_runtime")),
                File(UNIT, MARK.format("container_runtime")),
                File(DROP_IN, MARK.format("nvidia_device_plugin")),
                File(BLACKLIST, MARK.format("host")),
            ],
        )
        ensure_files(self.host, [File(CDI, "generated\n")], watched=False)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        words = " ".join(argv)
        self.asked.append(words)
        return next((a for key, a in self.answers.items() if key in words), Result(0, "", ""))

    def tree(self) -> list[str]:
        """Every file and folder of the host but the records."""
        found = (str(path.relative_to(self.root)) for path in sorted(self.root.rglob("*")))
        return [path for path in found if not path.startswith(("var", "usr/sbin"))]


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


def record(machine: Machine) -> None:
    """A driver of one package that brought another one along, on a host with an idle package."""
    text = {"format": 1, "version": "535.1", "kernel": "6.1", "packages": {SMI: "535.1-1"}}
    machine.host.write(driver_record.PATH, json.dumps(text))
    machine.host.write("/var/lib/dpkg/status", "")
    idle = "Remv idle-already [1]\n"
    both = f"{idle}Purg {SMI} [535.1-1]\nRemv dkms [3]\n"
    machine.answers |= {
        "dpkg-query": Result(0, f"{SMI} installed\n", ""),
        "apt-mark showmanual": Result(0, "libcuda1\n", ""),
        "--simulate autoremove": Result(0, idle, ""),
        "--simulate --autoremove": Result(0, both, ""),
    }


def test_the_driver_goes_with_what_it_alone_brought(machine: Machine) -> None:
    record(machine)
    outcome = removal.driver_packages(machine.host, check=False)
    assert outcome.changes == ["package dkms: removed", f"package {SMI}: removed"]
    assert machine.asked[-1].endswith(f"--allow-change-held-packages purge dkms {SMI}")
    machine.answers["dpkg-query"] = Result(1, "", "no packages found")
    assert removal.driver_packages(machine.host, check=False).changes == []


def test_a_package_of_the_users_that_needs_the_driver_is_named_and_nothing_goes(
    machine: Machine,
) -> None:
    record(machine)
    names = (SMI, "libcuda1", "his-cuda", "brought-along")
    gone = "".join(f"Purg {name} [1]\n" for name in names)
    machine.answers |= {
        "apt-mark showmanual": Result(0, f"his-cuda\n{SMI}\nlibcuda1\n", ""),
        "--simulate purge": Result(0, gone, ""),
    }
    machine.answers["dpkg-query"] = Result(0, f"{SMI} installed\nlibcuda1:amd64 installed\n", "")
    with pytest.raises(removal.RemovalError, match=r"need the driver: his-cuda$"):
        removal.driver_packages(machine.host, check=False)
    assert not any("purge" in asked and "--simulate" not in asked for asked in machine.asked)


def test_of_red_hats_packages_go_what_dnf_plans_and_nobody_else_needs(machine: Machine) -> None:
    record(machine)
    machine.host.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    row = " {}  x86_64  1-1  @System  0\n".format
    plan = (
        f"Removing:\n{row(SMI)}Removing unused dependencies:\n{row('dkms')}\nOperation aborted.\n"
    )
    machine.answers |= {
        "rpm --query": Result(0, f"{SMI}\t0:535.1-1\tx86_64\n", ""),
        "dnf --assumeno": Result(1, plan, ""),
    }
    outcome = removal.driver_packages(machine.host, check=True)
    assert outcome.changes == ["package dkms: removed", f"package {SMI}: removed"]
    users = f"{plan}Removing dependent packages:\n{row('his-cuda')}\nOperation aborted.\n"
    machine.answers["dnf --assumeno"] = Result(1, users, "")
    with pytest.raises(removal.RemovalError, match=r"need the driver: his-cuda$"):
        removal.driver_packages(machine.host, check=False)
    machine.answers["dnf --assumeno"] = Result(1, "", "Error: protected packages\n")
    with pytest.raises(removal.RemovalError, match=r"^dnf remove: Error: protected packages$"):
        removal.driver_packages(machine.host, check=False)
    assert not any("dnf -y" in asked for asked in machine.asked)


def test_the_users_own_lock_on_a_drivers_package_stays(machine: Machine) -> None:
    record(machine)
    machine.host.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    theirs = f"{SMI}-0:535.1-1.*\n"
    machine.host.write(rpm.LOCK_LIST, rpm.with_locks(theirs, {SMI: "535.1-1"}))
    outcome = removal.driver_packages(machine.host, check=False)
    assert outcome.changes == [f"{rpm.LOCK_LIST}: locks on the driver's packages removed"]
    assert machine.host.read(rpm.LOCK_LIST) == theirs


def test_a_driver_in_use_is_not_pulled_away(machine: Machine) -> None:
    record(machine)
    machine.host.write("/sys/module/nvidia/x", "")
    machine.answers["rmmod"] = Result(1, "", "Module nvidia is in use")
    with pytest.raises(removal.RemovalError, match="in use"):
        removal.driver_packages(machine.host, check=False)
    assert not any("purge" in asked and "--simulate" not in asked for asked in machine.asked)


@pytest.mark.parametrize(
    ("group", "refused"),
    [
        ("0::/user.slice/user-0.slice/session-4.scope", True),
        ("0::/system.slice/gdm.service", True),
        ("1:name=systemd:/system.slice/system-getty.slice/x.service\n0::/", True),
        ("0::/system.slice/containerd.service", False),  # goes before the driver
        ("0::/system.slice/nvidia-persistenced.service", False),
        ("0::/system.slice/docker-0a.scope", False),
        ("0::/system.slice/docker-0a.scope/system.slice/x.service", False),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-0a.scope", False),
        ("0::/", False),
    ],
)
def test_a_process_that_no_reset_ends_is_told_before_anything_goes(
    machine: Machine, group: str, refused: bool
) -> None:
    record(machine)
    machine.host.write("/proc/4711/comm", "python3\n")
    machine.host.write("/proc/4711/cgroup", group + "\n")
    (machine.root / "proc/4711/fd").mkdir()
    (machine.root / "proc/4711/fd/5").symlink_to("/dev/nvidiactl")
    told = pytest.raises(
        removal.RemovalError, match=r"^processes hold the GPUs, .*: 4711 \(python3"
    )
    with told if refused else nullcontext():
        removal.driver_packages(machine.host, check=True)
    machine.answers["dpkg-query"] = Result(1, "", "no packages found")
    assert removal.driver_packages(machine.host, check=True).changes == []


def test_records_go_last_and_folders_of_the_user_stay(machine: Machine) -> None:
    machine.host.write("/etc/bedplate/mine", "")
    outcome = removal.records(machine.host, check=False)
    assert f"{owned.RECORD}: removed" in outcome.changes
    assert outcome.kept == ["/etc/bedplate: there are files in it that are not ours"]
    assert not machine.host.exists("/var/lib/bedplate")
    assert removal.records(machine.host, check=False).changes == []


def test_upgrades_get_back_what_was_held_for_bedplate_alone(machine: Machine) -> None:
    image, theirs = "linux-image-6.1.0-50-amd64", "their-package"
    holds.keep(machine.host, [image], "host_baseline")
    holds.keep(machine.host, ["containerd.io", SMI, "freed-since"], "")
    record(machine)
    held = {image, "containerd.io", SMI, theirs}
    run = machine.run

    def mark(argv: Sequence[str], *rest: object) -> Result:
        if argv[:2] == ["apt-mark", "showhold"]:
            return Result(0, "".join(f"{name}\n" for name in sorted(held)), "")
        if argv[:2] == ["apt-mark", "unhold"]:
            held.difference_update(argv[2:])
        return run(argv, *rest)

    on = Host(str(machine.root), mark)
    kernel_free = [f"package {image}: no longer held"]
    assert removal.locks(on, ["host_baseline"], check=True).changes == kernel_free
    assert len(held) == 4
    assert removal.locks(on, ["host_baseline"], check=False) == (kernel_free, [])
    # The driver's packages take their holds along when they go.
    rest = removal.locks(on, [], check=False)
    assert rest.changes == ["package containerd.io: no longer held"]
    assert rest.kept == [
        f"the hold on package {theirs}: not ours, by the records (apt-mark unhold {theirs})"
    ]
    assert held == {SMI, theirs}
    assert removal.locks(on, [], check=False) == ([], rest.kept)
    removal.records(on, check=False)
    assert not on.exists(holds.RECORD)


def test_dnf_forgets_every_lock_that_is_ours(machine: Machine) -> None:
    machine.host.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    locks = {"kernel-core": "5.14-1", "kernel": "5.14-1", "containerd.io": "1-1"}
    text = rpm.with_locks("# mine\nbash-0:5.1-1.*\n", locks)
    machine.host.write(rpm.LOCK_LIST, text)
    free = "package {}: no longer locked".format
    kernels = [free("kernel"), free("kernel-core")]
    assert removal.locks(machine.host, ["host_baseline"], check=True) == (kernels, [])
    assert machine.host.read(rpm.LOCK_LIST) == text
    assert removal.locks(machine.host, ["host_baseline"], check=False) == (kernels, [])
    kept = [f"the lock bash-0:5.1-1.*: not ours, by {rpm.LOCK_LIST} (dnf versionlock delete)"]
    assert removal.locks(machine.host, [], check=False) == ([free("containerd.io")], kept)
    assert machine.host.read(rpm.LOCK_LIST) == "# mine\nbash-0:5.1-1.*\n"
    assert removal.locks(machine.host, [], check=False) == ([], kept)
    assert machine.asked == []


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


@pytest.mark.parametrize("source", ["runfile", "vendor-repo"])
def test_nvidias_installer_takes_away_only_what_it_brought_at_our_call(
    machine: Machine, source: str
) -> None:
    driver = driver_record.Driver("580.95.05", "open", source, "6.1.0-50-amd64", {})
    machine.host.write(driver_record.PATH, driver_record.render(driver_record.Record((driver,))))
    machine.host.write("/usr/bin/nvidia-uninstall", "")
    library = machine.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    library.parent.mkdir(parents=True)
    library.touch()
    run = machine.run

    def uninstall(argv: Sequence[str], *rest: object) -> Result:
        if argv[0].endswith("nvidia-uninstall"):
            library.unlink()
        return run(argv, *rest)

    outcome = removal.driver_packages(Host(str(machine.root), uninstall), check=False)
    ours = source == "runfile"
    said = ["driver 580.95.05 of NVIDIA's installer: removed"] if ours else []
    assert outcome.changes == said
    assert library.exists() != ours


def test_the_drivers_that_were_kept_for_the_way_back_go(machine: Machine) -> None:
    machine.host.write(f"{removal.KEPT_DRIVERS}/580.95.05.run", "")
    token = "/etc/nvidia/ClientConfigToken/client_configuration_token_bedplate.tok"
    machine.host.write(token, "secret")
    assert f"{removal.KEPT_DRIVERS}: removed" in removal.records(machine.host, True).changes
    removal.records(machine.host, check=False)
    assert not machine.host.exists(removal.KEPT_DRIVERS)
    assert not machine.host.exists(token)
