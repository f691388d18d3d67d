"""A reset takes away the driver and its packages, and ends holds, where they are ours."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import removal
from bedplate.portable.driver import record as driver_record
from bedplate.portable.host import Host, Result
from bedplate.portable.packages import holds, rpm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

from tests.unit.removal_machine import SMI, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
