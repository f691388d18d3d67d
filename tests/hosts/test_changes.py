"""Changes of a driver's branch, with Debian's own packages: forth and back, with and without a
network, with a fault, and beside a driver that somebody else installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.hosts import drivers, state
from tests.site.cluster import unwrapped

if TYPE_CHECKING:
    from tests.hosts.runs import Machine
    from tests.hosts.snapshots import Snapshot

OLD, NEW = drivers.newest("470"), drivers.newest("535")
#: A fault of the new branch alone: its module does not load, that of the old one does.
FAULT = "/etc/modprobe.d/planted.conf"
REFUSE = "install nvidia modinfo -F version nvidia | grep -q ^470 && modprobe -i nvidia"

#: A quarter of an hour: run them with `make prove AREA=hosts`. By default tests/standin changes
#: branch and flavour of a driver.
pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def changed(machine: Machine, bare: Snapshot) -> Machine:
    """The host after an installation and a change."""
    bare.restore()
    machine.converge(OLD)
    machine.converge(NEW)
    return machine


def record(machine: Machine) -> dict[str, Any]:
    """Read what the role keeps of the drivers that worked."""
    return dict(json.loads(machine.execute("cat /etc/bedplate/driver.json")))


def transactions(machine: Machine) -> int:
    """Count apt's transactions so far."""
    return int(machine.execute("grep -c ^Start-Date: /var/log/apt/history.log"))


def is_on(machine: Machine, version: str) -> None:
    """Assert that the host runs a version, with its packages and no other driver's."""
    wanted = drivers.variables(machine.host, version)["nvidia_driver_packages"]
    states = machine.state()
    there = {line.split()[0].split(":")[0]: line.split()[1:] for line in states["packages"]}
    assert {name: there[name] for name in wanted} == {
        name: [v, "hold", "installed"] for name, v in wanted.items()
    }
    other = OLD if version == NEW else NEW
    left = [n for n, row in there.items() if row[0].startswith(other) and row[2] == "installed"]
    assert left == []
    assert f"Kernel Module  {version}  " in states["loaded"][0]
    assert (states["audit"], states["journal"]) == ([], [])


def test_forth_and_back_again_in_one_transaction_each(changed: Machine) -> None:
    is_on(changed, NEW)
    before = transactions(changed)
    announced = changed.announced(OLD)
    changed.converge(OLD)
    assert announced == changed.changed
    assert announced[0].endswith("Write down that a change begins")
    is_on(changed, OLD)
    changed.converge(NEW)
    is_on(changed, NEW)
    assert transactions(changed) == before + 2


def test_a_second_run_changes_nothing(changed: Machine) -> None:
    code, _, output = changed.play(NEW)
    assert code == 0
    assert "changed=0 " in output


def test_back_without_a_network(changed: Machine) -> None:
    changed.execute("mv /etc/apt/sources.list.d /etc/apt/away; rm -r /var/lib/apt/lists/*")
    try:
        announced = changed.announced(NEW, playbook="rollback.yml")
        # On the way back nothing comes along that could fail it.
        beside = {"nvidia_driver_beside": ["of-no-source"]}
        code, _, output = changed.play(NEW, playbook="rollback.yml", **beside)
        assert code == 0, output[-6000:]
        assert announced == changed.changed
        assert announced[-1].endswith("Write down what was given up")
        is_on(changed, OLD)
    finally:
        changed.execute("mv /etc/apt/away /etc/apt/sources.list.d; apt-get update")
    assert record(changed)["reason"] == "a rollback was asked for"
    assert changed.refused(NEW, playbook="rollback.yml") == (
        f"there is no driver to roll back to — node — got {OLD} (proprietary) alone / allowed a"
        " driver that worked before it — Choose one in the site and run 'bedplate plan' and"
        " bedplate.gpu.site."
    )


def test_a_driver_that_does_not_load_is_taken_back(changed: Machine) -> None:
    changed.converge(OLD)
    changed.execute(f"echo '{REFUSE}' > {FAULT}")
    try:
        said = changed.refused(NEW)
    finally:
        changed.execute(f"rm {FAULT}")
    is_on(changed, OLD)
    assert said.startswith(
        f"driver {NEW} (proprietary) failed and was rolled back — node — got the NVIDIA kernel"
        " module does not load as requested — node — got modprobe nvidia: "
    )
    assert said.endswith(
        f"now: {OLD} (proprietary) — Fix the cause, or choose another driver and run"
        " 'bedplate plan'."
    )
    assert record(changed)["failed"]["version"] == NEW
    changed.converge(NEW)
    is_on(changed, NEW)
    assert "failed" not in record(changed)


#: A fault of the new branch alone: its module loads, and no card answers.
DUMB = "/usr/local/bin/nvidia-smi"
NO_ANSWER = f"""
cat > {DUMB} <<'END'
#!/bin/sh
grep -q ^470 /sys/module/nvidia/version || {{ echo "No devices were found"; exit 6; }}
exec /usr/bin/nvidia-smi "$@"
END
chmod 755 {DUMB}
"""


def test_a_driver_that_loads_and_is_not_healthy_is_taken_back(changed: Machine) -> None:
    changed.converge(OLD)
    changed.execute(NO_ANSWER)
    try:
        said = changed.refused(NEW)
    finally:
        changed.execute(f"rm {DUMB}")
    is_on(changed, OLD)
    begins = f"driver {NEW} (proprietary) failed and was rolled back — node — got "
    assert said.startswith(begins)
    assert "nvidia-smi: No devices were found" in said
    failed = record(changed)
    assert (failed["failed"]["version"], failed["good"][0]["version"]) == (NEW, OLD)
    assert "No devices were found" in failed["reason"]


#: A process that computes, which the role may not end: the modules stay until a reboot.
COMPUTES = (
    "echo process 0 1 > /run/substrate/gpu/planted; /usr/lib/substrate/gpu/simulated-gpus refresh"
)
BOOT = "cat /proc/sys/kernel/random/boot_id"
LOADED = "cat /sys/module/nvidia/version"


def test_a_module_in_use_waits_for_a_reboot_that_was_allowed(changed: Machine) -> None:
    changed.converge(OLD)
    changed.execute(COMPUTES)
    boot, given_up = changed.execute(BOOT), record(changed).get("failed")
    said = (
        "reboot required — node — rmmod nvidia_uvm: rmmod: ERROR: Module nvidia_uvm is in use —"
        f" module {OLD} stays loaded / allowed {NEW} — Set nvidia_driver_reboot_allowed for this"
        " host, or reboot it yourself, and run bedplate.gpu.site again."
    )
    assert changed.refused(NEW) == said
    assert changed.refused(NEW) == said, "the second run is to say the same"
    assert (changed.execute(BOOT), changed.execute(LOADED).strip()) == (boot, OLD)
    assert record(changed).get("failed") == given_up, "a module in use is no fault of the driver"
    code, _, output = changed.play(NEW, playbook="verify.yml")
    assert code == 2
    assert (
        "loaded kernel module at the lock's version — node [driver.loaded_version] — got"
        f" {OLD} (reboot required) / allowed {NEW} — Reboot the host, or set"
        " nvidia_driver_reboot_allowed and run bedplate.gpu.site."
    ) in unwrapped(output)

    code, _, output = changed.play(NEW, nvidia_driver_reboot_allowed=True)
    assert code == 0, output[-6000:]
    assert changed.execute(BOOT) != boot
    is_on(changed, NEW)
    code, _, output = changed.play(NEW, playbook="verify.yml")
    assert code == 0, output[-6000:]
    boot = changed.execute(BOOT)
    code, _, output = changed.play(NEW, nvidia_driver_reboot_allowed=True)
    assert (code, changed.execute(BOOT)) == (0, boot)
    assert "changed=0 " in output


BUILDER = "/usr/lib/dkms/common.postinst"
#: A fault of the new branch alone: its module does not build, that of the old one does.
NO_BUILD = f"""
mv {BUILDER} {BUILDER}.away
cat > {BUILDER} <<'END'
#!/bin/sh
case "$1" in nvidia-current) exit 10 ;; *) exec {BUILDER}.away "$@" ;; esac
END
chmod 755 {BUILDER}
"""


def test_a_package_that_cannot_be_configured_is_taken_back(changed: Machine) -> None:
    changed.converge(OLD)
    changed.execute(NO_BUILD)
    try:
        said = changed.refused(NEW)
    finally:
        changed.execute(f"mv {BUILDER}.away {BUILDER}")
    is_on(changed, OLD)
    assert said == (
        f"driver {NEW} (proprietary) failed and was rolled back — node — got packages could not be"
        " installed — node — got dpkg: error processing package nvidia-kernel-dkms (--configure):"
        " installed nvidia-kernel-dkms package post-installation script subprocess returned error"
        " exit status 10; E: Sub-process /usr/bin/dpkg returned an error code (1) / allowed "
        + ", ".join(
            f"{name}={version}"
            for name, version in sorted(
                drivers.variables(changed.host, NEW)["nvidia_driver_packages"].items()
            )
        )
        + " — Fix what apt says on the host and run the play again.; now: "
        f"{OLD} (proprietary) — Fix the cause, or choose another driver and run 'bedplate plan'."
    )


def test_a_first_installation_that_fails_leaves_dpkg_clean(
    machine: Machine, bare: Snapshot
) -> None:
    bare.restore()
    machine.execute(NO_BUILD)
    said = machine.refused(NEW, nvidia_driver_beside=["socat"])
    assert said.endswith(
        "now: no driver — Fix the cause, or choose another driver and run 'bedplate plan'."
    )
    states = machine.state()
    assert (states["audit"], states["journal"]) == ([], [])
    wanted = drivers.variables(machine.host, NEW)["nvidia_driver_packages"]
    left = {
        row.split()[0].split(":")[0] for row in states["packages"] if row.endswith(" installed")
    }
    assert not left & set(wanted)
    assert "socat" in left, "what came along is not the driver's"


def test_another_drivers_packages_are_named_and_go_only_when_allowed(
    machine: Machine, bare: Snapshot
) -> None:
    bare.restore()
    machine.execute("apt-get install -y --no-install-recommends nvidia-smi")
    version = machine.execute("dpkg-query -W -f '${Version}' libnvidia-ml1")
    machine.execute("touch /usr/bin/nvidia-uninstall")
    assert machine.refused(OLD) == (
        f"another NVIDIA driver is on the host — node — got package libnvidia-ml1 {version},"
        " /usr/bin/nvidia-uninstall (of no package: NVIDIA's installer) / allowed"
        f" {OLD} (proprietary) from distro alone — Remove it, or set nvidia_driver_remove_foreign"
        " for this host to have it removed with the change."
    )
    machine.execute("rm /usr/bin/nvidia-uninstall; dpkg -l nvidia-smi | grep ^ii")
    code, _, output = machine.play(OLD, nvidia_driver_remove_foreign=True)
    assert code == 0, output[-6000:]
    is_on(machine, OLD)
    there = [line.split() for line in machine.state()["packages"]]
    left = {row[0] for row in there if row[-1] == "installed"}
    assert not left & {"nvidia-smi", "nvidia-alternative", "libnvidia-ml1:amd64"}


#: Where Debian keeps the users that a package made: it never removes one.
USERS = ("/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow")


def test_a_reset_leaves_the_host_as_it_was_before_any_driver(
    machine: Machine, bare: Snapshot
) -> None:
    bare.restore()
    before = machine.state()
    machine.converge(OLD)
    machine.converge(NEW)
    announced = machine.announced(NEW, playbook="remove.yml")
    code, _, output = machine.play(NEW, playbook="remove.yml")
    assert code == 0, output[-6000:]
    assert announced == machine.changed
    differing = state.difference(before, machine.state())
    left = [line for line in differing if not line.endswith(USERS)]
    assert left == [], "\n".join(left)
    code, _, output = machine.play(NEW, playbook="remove.yml")
    assert code == 0
    assert "changed=0 " in output
