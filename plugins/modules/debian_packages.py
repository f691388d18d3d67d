#!/usr/bin/python
"""Debian packages at exact versions, in one transaction, held; a cut-off dpkg is mended first."""

from __future__ import annotations

DOCUMENTATION = r"""
module: debian_packages
short_description: Install exact package versions in one transaction and hold them
description:
  - Finishes what an interrupted dpkg left undone, waiting for a package manager that still runs.
  - Fetches apt's index only when it does not know a wished version.
  - Installs, upgrades or downgrades in one apt transaction and never removes a package.
  - Holds the packages, so that unattended upgrades leave them alone.
author: [The Bedplate authors]
options:
  packages:
    description: Version by package name.
    type: dict
    required: true
  hold:
    description: Whether the packages are held.
    type: bool
    default: true
  lock_timeout:
    description: Seconds to wait for another package manager.
    type: int
    default: 600
attributes:
  check_mode:
    description: Says what would change, by what is installed. Apt itself is not asked.
    support: full
  diff_mode:
    description: Shows versions and holds before and after.
    support: full
"""

EXAMPLES = r"""
- name: Install the driver
  bedplate.gpu.debian_packages:
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
"""

RETURN = r"""
installed:
  description: Packages that were installed or changed.
  returned: always
  type: list
  elements: str
repaired:
  description: Whether an interrupted dpkg was finished.
  returned: always
  type: bool
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import debian
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
KEEP_CONFIGURATION = ["--force-confdef", "--force-confold"]


def fail(module: AnsibleModule, what: str, got: str, allowed: str, fix: str) -> None:
    module.fail_json(msg=problem(what, os.uname().nodename, got, allowed, fix))


def await_lock(module: AnsibleModule, host: Host, seconds: int) -> None:
    """Wait until no other package manager works: one of a killed run may still be at it.

    dpkg itself does not wait, unlike apt, and an unfinished state is no damage while it runs.
    """
    deadline = time.monotonic() + seconds
    while debian.locked(host):
        if time.monotonic() > deadline:
            fail(
                module,
                "another package manager is running",
                f"still at work after {seconds} s",
                "none, so that this one can work",
                "Wait for it, or end it, and run the play again.",
            )
        time.sleep(1)


def repair(module: AnsibleModule, host: Host) -> None:
    argv = ["dpkg", *KEEP_CONFIGURATION, "--configure", "-a"]
    answer = host.run(argv, timeout=1800, environment=ENVIRONMENT)
    if answer.code != 0:
        fail(
            module,
            "an interrupted package installation cannot be finished",
            answer.said,
            "'dpkg --configure -a' ends well",
            "Run it by hand, mend what it says, and run the play again.",
        )


def install(
    module: AnsibleModule, host: Host, wish: dict[str, str], names: list[str], timeout: int
) -> None:
    apt = ["apt-get", "-q", "-y", "-o", f"DPkg::Lock::Timeout={timeout}"]
    if not all(debian.offers(host, n, wish[n]) for n in names):
        answer = host.run([*apt, "update"], timeout=600, environment=ENVIRONMENT)
        if answer.code != 0:
            fail(
                module,
                "the package index cannot be fetched",
                answer.said,
                "'apt-get update' ends well",
                "Check the host's package sources and its way to them.",
            )
        unknown = [n for n in names if not debian.offers(host, n, wish[n])]
        if unknown:
            fail(
                module,
                "package versions of the lock are not offered by the host's package sources",
                "no " + ", ".join(f"{n}={wish[n]}" for n in unknown),
                "every version that the lock names",
                "Point the sources at a mirror that keeps them, or choose another driver"
                " and run 'bedplate plan'.",
            )
    options = [part for o in KEEP_CONFIGURATION for part in ("-o", f"Dpkg::Options::={o}")]
    allowed = [
        "--no-install-recommends",
        "--no-remove",
        "--allow-downgrades",
        "--allow-change-held-packages",
    ]
    exact = [f"{n}={wish[n]}" for n in sorted(wish)]
    pins = f"{module.tmpdir}/preferences"
    host.write(pins, debian.preferences(host, wish))
    argv = [*apt, *options, "-o", f"Dir::Etc::preferences={pins}", *allowed, "install", *exact]
    answer = host.run(argv, timeout=3600, environment=ENVIRONMENT)
    if answer.code != 0:
        errors = [
            line
            for line in (answer.err + answer.out).splitlines()
            if line.startswith(("E:", "dpkg: error"))
        ]
        fail(
            module,
            "packages could not be installed",
            " ".join(errors) or answer.said,
            ", ".join(exact),
            "Mend what apt says on the host and run the play again.",
        )


def described(have: dict[str, debian.Package], names: list[str]) -> str:
    lines = []
    for name in names:
        package = have.get(name)
        state = "absent" if package is None else package.version + (" held" if package.held else "")
        lines.append(f"{name} {state}\n")
    return "".join(lines)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "required": True},
            "hold": {"type": "bool", "default": True},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    wish: dict[str, str] = module.params["packages"]
    hold, timeout = module.params["hold"], module.params["lock_timeout"]
    host, names = Host(), sorted(wish)

    repaired = False
    if debian.interrupted(host):
        if not module.check_mode:
            await_lock(module, host, timeout)
        repaired = debian.interrupted(host)  # the other one may have finished its work meanwhile
        if repaired and not module.check_mode:
            repair(module, host)
    before = debian.installed(host, names)
    differing = debian.differing(before, wish)
    if differing and not module.check_mode:
        install(module, host, wish, differing, timeout)
    now = debian.installed(host, names) if differing and not module.check_mode else before
    unheld = [n for n in names if hold and not (n in now and now[n].held)]
    if unheld and not module.check_mode:
        answer = host.run(["apt-mark", "hold", *unheld])
        if answer.code != 0:
            fail(
                module,
                "packages could not be held",
                answer.said,
                "held",
                "Run 'apt-mark hold' by hand.",
            )
    after = {n: debian.Package(wish[n], hold or (n in before and before[n].held)) for n in names}
    module.exit_json(
        changed=bool(repaired or differing or unheld),
        repaired=repaired,
        installed=differing,
        diff={"before": described(before, names), "after": described(after, names)},
    )


if __name__ == "__main__":
    main()
