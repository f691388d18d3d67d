"""Evidence of what every host stands on: settings, kernel, Secure Boot, clock."""

from typing import Any, Dict, Mapping

from .. import os_release
from ..host import Host
from ..kernel import pin as kernel_pin
from ..kernel import secure_boot
from ..kernel import settings as kernel
from ..slurm import config as slurm_config
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

SHARED = "the host is a container: its {} is that of the machine below"
NO_KERNEL = "the site names no kernel"
NOT_BUILT = "no module is built on this host"
#: A node is given another kernel only where its workload has left.
DRAINED = (
    "Run bedplate.gpu.upgrade with -e upgrade_reboot_allowed=true, which drains the node first."
)
DRAINED_BY_SLURM = (
    "Run bedplate.gpu.slurm with -e slurm_change_nodes=true -e host_baseline_reboot_allowed=true,"
    " which lets jobs end first."
)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare a host with what role host_baseline keeps."""
    wished = wish.baseline
    if not wished:
        reason = "role host_baseline is not asked"
        to.checks.append(skipped("baseline", "what every host stands on", reason))
        return
    _settings(host, wished, to)
    _kernel(host, wished, to)
    _headers(host, wished, to)
    _secure_boot(host, wished, to)
    _clock(host, to)


def _settings(host: Host, wished: Mapping[str, Any], to: Collected) -> None:
    fields: Dict[str, Any] = dict(wished.get("settings", {}))
    settings = kernel.resolve(host, kernel.Settings(**fields))
    found = kernel.compare(host, "host", settings)
    told = found._replace(stale_initramfs=False).told(settings)
    fix = (
        "Run bedplate.gpu.site for this host again, and reboot it if "
        "a blacklisted module is loaded."
    )
    what = "kernel settings as role host_baseline keeps them, without differences"
    to.checks.append(check("baseline.settings", what, [], told, fix))
    what = (
        "no file that is read at boot after those of role host_baseline undoes a kernel parameter"
    )
    fix = "Take these lines out of those files."
    to.checks.append(check("baseline.later_files", what, [], found.outdone, fix))
    what = "the initramfs carries the blacklist and the module options"
    to.checks.append(
        check(
            "baseline.initramfs",
            what,
            "refreshed",
            "of old" if found.stale_initramfs else "refreshed",
            AGAIN,
            "a run was cut off before it refreshed it",
        )
    )


def _kernel(host: Host, wished: Mapping[str, Any], to: Collected) -> None:
    running, release = kernel_pin.running(), wished.get("kernel", "")
    to.facts["kernel"] = running
    what, held = "the running kernel is the site's", "kernel packages held against upgrades"
    if not release:
        to.checks.append(skipped("baseline.kernel", what, NO_KERNEL))
        left = [f"{name} is held although {NO_KERNEL}" for name in kernel_pin.ours(host)]
        to.checks.append(
            check("baseline.kernel_held", held + ", without differences", [], left, AGAIN)
            if left
            else skipped("baseline.kernel_held", held, NO_KERNEL)
        )
        return
    pin = kernel_pin.Pin(wished.get("kernel_packages", []), wished.get("kernel_followers", []))
    pin = kernel_pin.complete(host, pin)
    state, container = kernel_pin.state(host, pin), kernel_pin.in_container(host)
    if container:
        to.checks.append(skipped("baseline.kernel", what, SHARED.format("kernel")))
    else:
        fix = "Reboot the host into that kernel; where a newer one is installed, make it the boot"
        fix += " loader's default first (grub-set-default, or grubby --set-default)."
        in_slurm = host.exists(slurm_config.DROP_IN)
        if (host.joined or in_slurm) and state.missing and running != release:
            # What is missing comes with that kernel, and is told here alone.
            fix = DRAINED if host.joined else DRAINED_BY_SLURM
            state = state._replace(missing=[])
        to.checks.append(check("baseline.kernel", what, release, running, fix))
    wrong = [f"{name} is missing" for name in state.missing]
    wrong += [f"{name} is not held" for name in state.unheld]
    if container or running == release:
        left = kernel_pin.leftover(host, pin)
        wrong += [f"{name} is held for another kernel" for name in left]
    to.checks.append(
        check("baseline.kernel_held", held + ", without differences", [], wrong, AGAIN)
    )


def _headers(host: Host, wished: Mapping[str, Any], to: Collected) -> None:
    what, running = "headers of the running kernel, to build modules with", kernel_pin.running()
    if not wished.get("headers"):
        to.checks.append(skipped("baseline.headers", what, NOT_BUILT))
        return
    if kernel_pin.in_container(host):
        to.checks.append(skipped("baseline.headers", what, SHARED.format("kernel")))
        return
    folder = kernel_pin.HEADERS.format(running)
    there = kernel_pin.headers_present(host, running)
    package = (
        "linux-headers-" if os_release.family(host) == "Debian" else "kernel-devel-"
    ) + running
    fix = f"Install {package}, or name in bedplate_host.kernel the kernel that the host is to run."
    to.checks.append(
        check("baseline.headers", what, folder, folder if there else None, fix, f"no {folder}")
    )


def _secure_boot(host: Host, wished: Mapping[str, Any], to: Collected) -> None:
    declared = secure_boot.ON if wished.get("secure_boot") else secure_boot.OFF
    found = secure_boot.state(host)
    to.facts["secure_boot"] = found
    fix = "Correct bedplate_host.secure_boot of the host's pool and run 'bedplate plan' again, or"
    fix += " change it in the host's firmware."
    what = "Secure Boot as declared"
    to.checks.append(check("baseline.secure_boot", what, declared, found, fix))
    what = "the key that signs DKMS's modules is enrolled"
    if found != secure_boot.ON:
        to.checks.append(skipped("baseline.signing_key", what, "Secure Boot is not enforced"))
        return
    # Modules that come built are signed by who built them.
    if not wished.get("headers"):
        to.checks.append(skipped("baseline.signing_key", what, NOT_BUILT))
        return
    pair = secure_boot.pair(host)
    fix = secure_boot.how_to_enrol(pair.certificate)
    if not pair.present(host):
        reason = f"there is no {pair.key} with {pair.certificate}"
        to.checks.append(failed("baseline.signing_key", what, reason, AGAIN, "enrolled"))
        return
    if secure_boot.overruled(host, pair):
        reason = f"{secure_boot.DROP_IN} has DKMS sign with another pair than your own"
        to.checks.append(failed("baseline.signing_key", what, reason, AGAIN, pair.key))
        return
    enrolled = secure_boot.enrolled(host, pair.certificate)
    if enrolled is None:
        reason = "neither mokutil nor the firmware's list of owner keys could be read"
        fix = "Install mokutil on the host. " + fix
        to.checks.append(failed("baseline.signing_key", what, reason, fix, "enrolled"))
        return
    now = "enrolled" if enrolled else "not enrolled"
    to.checks.append(check("baseline.signing_key", what, "enrolled", now, fix))


def _clock(host: Host, to: Collected) -> None:
    what = "the clock is synchronised"
    if kernel_pin.in_container(host):
        to.checks.append(skipped("baseline.clock", what, SHARED.format("clock")))
        return
    answer = host.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    fix = "Run chrony, ntpd or systemd-timesyncd on the host, with servers that it can reach."
    if answer.code != 0:
        to.checks.append(failed("baseline.clock", what, answer.said, fix, "yes"))
        return
    to.checks.append(check("baseline.clock", what, "yes", answer.out.strip() or None, fix))
