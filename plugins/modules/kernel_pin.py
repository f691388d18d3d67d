#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the kernel's packages and headers, there and held."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_pin
short_description: Install a kernel and its headers and keep upgrades away from them
description:
  - Installs the packages of one kernel release that are missing, with apt or dnf, and removes none.
  - Holds them, and with them whatever package is installed that would bring a newer kernel.
  - Once this kernel runs, packages that were held for another one are upgraded with the others
    again. Holds of the user's stay.
  - The running kernel does not change. RV(reboot_required) says whether a reboot has to.
  - A node that runs another kernel gets no new one before its workload has left, since its next
    boot, planned or not, would take it. What is there is held, and RV(pending) says what waits.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.lock_timeout]
options:
  release:
    description: The kernel's release, as C(uname -r) prints it.
    type: str
    required: true
  packages:
    description: The packages that bring it and its headers. On rpm systems with version and
      architecture, since several kernels are installed side by side.
    type: list
    elements: str
    required: true
  followers:
    description: Packages that follow the newest kernel. They are held where they are installed, and
      on the Debian family so are those of any other flavour of kernels.
    type: list
    elements: str
    default: []
  change_joined:
    description: Whether a node that runs another kernel may get this one.
    type: bool
    default: false
  node:
    description: Whether the host carries workload although no kubelet says so, as a node of Slurm.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would be installed and held. The package manager is not asked.
  diff_mode:
    description: Shows packages and holds before and after.
"""

EXAMPLES = r"""
- name: Stay on the kernel that the driver is built for
  bedplate.gpu.kernel_pin:
    release: 6.1.0-50-amd64
    packages: [linux-image-6.1.0-50-amd64, linux-headers-6.1.0-50-amd64]
    followers: [linux-image-amd64, linux-headers-amd64]
"""

RETURN = r"""
installed:
  description: Packages that were missing.
  returned: always
  type: list
  elements: str
held:
  description: Packages that were not held.
  returned: always
  type: list
  elements: str
released:
  description: Packages that were held for another kernel.
  returned: always
  type: list
  elements: str
reboot_required:
  description: Whether another kernel runs. Never on a host that shares its kernel (a container).
  returned: always
  type: bool
joined:
  description: Whether the host is a node, so that it is not rebooted for a kernel.
  returned: always
  type: bool
pending:
  description: What stays as it is because the host is a node, as V(kernel 6.1.0-50-amd64).
  returned: always
  type: list
  elements: str
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import os_release
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import build_needs
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host, Result
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.kernel import pin as kernel_pin
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages import (
    debian,
    dnf,
    holds,
    rpm,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.transaction import (
    TransactionError,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}


def install(module: AnsibleModule, host: Host, names: list[str]) -> Result:
    """Install packages, fetching the index first: kernels leave it quickly."""
    if os_release.family(host) != "Debian":
        argv = ["dnf", "--assumeyes", "--setopt=install_weak_deps=False", "--refresh"]
        with dnf.lifted(host, [rpm.name_of(name) for name in names]) as options:
            return host.run([*argv, *options, "install", *names], timeout=3600)
    apt = ["apt-get", "-q", "-y", "-o", f"DPkg::Lock::Timeout={module.params['lock_timeout']}"]
    updated = host.run([*apt, "update"], timeout=600, environment=ENVIRONMENT)
    if updated.code != 0:
        return updated
    options = ["--no-install-recommends", "--no-remove", "-o", "Dpkg::Options::=--force-confold"]
    return host.run([*apt, *options, "install", *names], timeout=3600, environment=ENVIRONMENT)


def hold(host: Host, names: list[str]) -> Result:
    """Keep upgrades away from packages that are installed."""
    if os_release.family(host) == "Debian":
        holds.keep(host, names, "host_baseline")
        return debian.mark(host, "hold", names)
    # Without it dnf does not read the list.
    try:
        dnf.have_versionlock(host)
    except TransactionError as error:
        return Result(1, "", f"{error.what}: {error.got}")
    path = rpm.lock_list(host)
    wish = {package.name: package.evr for name in names for package in rpm.query(host, [name])}
    host.write(path, rpm.with_locks(host.content(path) or "", wish))
    return Result(0, "", "")


def succeed(module: AnsibleModule, what: str, answer: Result, names: list[str], fix: str) -> None:
    """Fail with what the package manager said, unless it ended well."""
    if answer.code != 0:
        refuse(module, what, answer.said, ", ".join(names), fix)


def mend(module: AnsibleModule, host: Host) -> None:
    """Finish what a killed run left; what it cannot mend, the next command tells."""
    try:
        build_needs.mended(host, module.params["lock_timeout"])
    except TransactionError as error:
        refuse(module, *error.parts)


def shown(host: Host, names: list[str]) -> str:
    """Packages and holds, one line each."""
    have = kernel_pin.holds(host, names)
    return "".join(
        f"{name} {('held' if have[name] else 'installed') if name in have else 'absent'}\n"
        for name in names
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "followers": {"type": "list", "elements": "str", "default": []},
            "change_joined": {"type": "bool", "default": False},
            "node": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    host, release = Host(), module.params["release"]
    pin = kernel_pin.Pin(module.params["packages"], module.params["followers"])
    pin = kernel_pin.complete(host, pin)
    names = sorted({*pin.packages, *pin.followers})
    other = not kernel_pin.in_container(host) and kernel_pin.running() != release
    joined = host.joined or module.params["node"]
    waits = other and joined and not module.params["change_joined"]
    state, before = kernel_pin.state(host, pin), shown(host, names)
    wanted = [] if waits else state.missing
    unheld = sorted({*state.unheld, *wanted})
    # Until this kernel runs, the host lives on the one before.
    gone = [] if other else kernel_pin.leftover(host, pin)
    after = before
    for name in unheld:
        after = after.replace(f"{name} absent\n", f"{name} held\n")
        after = after.replace(f"{name} installed\n", f"{name} held\n")
    if not module.check_mode:
        # What a killed run left: apt installs and holds nothing before that is finished.
        if unheld or gone:
            mend(module, host)
        if wanted:
            succeed(
                module,
                "the site's kernel cannot be installed",
                install(module, host, wanted),
                wanted,
                "Offer these packages to the host, or name another bedplate_host.kernel.",
            )
        # A kernel's own dependencies may have brought one of the followers.
        unheld = kernel_pin.state(host, pin).unheld
        if unheld:
            fix = "Hold them by hand and run the play again."
            succeed(module, "kernel packages cannot be held", hold(host, unheld), unheld, fix)
        if gone:
            refused = kernel_pin.let_go(host, gone)
            answer = Result(1 if refused else 0, "", refused or "")
            fix = "Release them by hand (apt-mark unhold) and run the play again."
            succeed(module, "previous kernel packages stay held", answer, gone, fix)
        after = shown(host, names)
    before += "".join(f"{name} held\n" for name in gone)
    after += "".join(f"{name} no longer held\n" for name in gone)
    module.exit_json(
        changed=bool(wanted or unheld or gone),
        installed=wanted,
        held=unheld,
        released=gone,
        reboot_required=other,
        joined=joined,
        pending=[f"kernel {release}"] if waits else [],
        diff={"before": before, "after": after},
    )


if __name__ == "__main__":
    main()
