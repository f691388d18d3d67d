"""Evidence of the driver: packages, holds, the module that runs, nouveau."""

import platform

from .. import nvidia
from ..driver import record as driver_record
from ..driver import state as driver
from ..host import Host
from ..packages import origin as package_origin
from .area import PENDING, Collected, Wishes
from .checks import AGAIN, check, skipped


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare packages and loaded module with the lock."""
    have = driver.installed(host, list(wish.driver_packages))
    loaded = nvidia.loaded_module(host)
    versions = {name: package.version for name, package in have.items()}
    fix = PENDING if host.joined else AGAIN
    to.facts["driver"] = {
        "packages": versions,
        "loaded": loaded.version if loaded else None,
        "flavour": loaded.flavour if loaded else None,
        "stand_in": package_origin.stand_in(host, list(wish.driver_packages)),
    }
    to.checks.append(
        check(
            "driver.packages",
            "driver packages at the lock's versions",
            dict(wish.driver_packages),
            versions,
            fix,
        )
    )
    held = sorted(name for name, package in have.items() if package.held)
    to.checks.append(
        check(
            "driver.held",
            "driver packages held against upgrades",
            sorted(wish.driver_packages),
            held,
            AGAIN,
        )
    )
    same = versions == dict(wish.driver_packages)
    to.checks.append(
        check(
            "driver.loaded_version",
            "loaded kernel module at the lock's version",
            wish.driver_version,
            loaded.version if loaded else None,
            "Reboot the host, or set nvidia_driver_reboot_allowed and run bedplate.gpu.site."
            if loaded and same
            else fix,
            "reboot required"
            if loaded and same
            else "no nvidia module is loaded"
            if not loaded
            else "",
        )
    )
    to.checks.append(
        check(
            "driver.flavour",
            "flavour of the kernel module",
            wish.driver_flavour,
            loaded.flavour if loaded else None,
            fix,
            "" if loaded else "no nvidia module is loaded",
        )
    )
    if wish.driver_options:
        _options(host, wish, to, fix)
    to.checks.append(
        check(
            "driver.nouveau",
            "nouveau is not loaded",
            "absent",
            "loaded" if host.exists("/sys/module/nouveau") else "absent",
            "Reboot the host: nouveau is blacklisted and does not come back.",
        )
    )
    _kernel(host, to)
    _given_up(host, wish, to)


def _options(host: Host, wish: Wishes, to: Collected, fix: str) -> None:
    """Options count from when a module is loaded: the file that gives them is not all.

    Module nvidia alone tells its options, and not all of them.
    """
    what = "options of the loaded kernel module as requested"
    wished = {name: str(value) for name, value in wish.driver_options.get("nvidia", {}).items()}
    now = nvidia.options(host)
    # As it is wished where it is the same number.
    told = {
        name: value if nvidia.same_option(now[name], value) else now[name]
        for name, value in wished.items()
        if name in now
    }
    if not now:
        why = "no nvidia module is loaded"
        to.checks.append(check("driver.options", what, wished, {}, fix, why))
    elif told:
        expected = {name: wished[name] for name in told}
        to.checks.append(check("driver.options", what, expected, told, fix))
    else:
        to.checks.append(skipped("driver.options", what, "the module reports none of them"))


def _given_up(host: Host, wish: Wishes, to: Collected) -> None:
    """A driver that was tried and taken back: the host runs on what it had before."""
    try:
        record = driver_record.read(host)
    except ValueError:
        record = driver_record.Record()
    tried = record.failed
    wished = (wish.driver_version, wish.driver_flavour)
    back = tried is not None and (tried.version, tried.flavour) == wished
    to.checks.append(
        check(
            "driver.kept",
            "the lock's driver was not rolled back after a failure",
            "kept",
            "rolled back" if back else "kept",
            "Fix the cause and run bedplate.gpu.site for this host "
            "again, or choose another driver and run"
            " 'bedplate plan'.",
            record.reason,
        )
    )


def _kernel(host: Host, to: Collected) -> None:
    """The driver was seen to work with one kernel; another one says that somebody moved it."""
    what = "the running kernel is the one that the driver was last seen to work with"
    try:
        good = driver_record.parse(host.read(driver_record.PATH) or "").good
    except ValueError:
        good = ()
    recorded = good[0].kernel if good else ""
    if not recorded:
        to.checks.append(skipped("driver.kernel", what, "no driver was seen to work yet"))
        return
    fix = (
        "Run bedplate.gpu.site for this host again if that was "
        "meant, else boot the previous kernel."
    )
    to.checks.append(check("driver.kernel", what, recorded, platform.release(), fix))
