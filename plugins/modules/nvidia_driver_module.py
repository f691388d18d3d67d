#!/usr/bin/python
"""Have NVIDIA's kernel module loaded at one version, and record the driver that works."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_module
short_description: Load the driver's kernel module at a version
description:
  - Builds the module for a kernel whose headers are there, where DKMS did not.
  - Loads the module where none is loaded.
  - Replaces a loaded module of another version or flavour, where nothing uses it; otherwise
    reports that a reboot is required and leaves it.
  - Stops DCGM, IMEX, Fabric Manager and the persistence daemon to replace it. They are started
    again with whatever module is loaded next, also by a later run.
  - Links the libraries to where NVIDIA's container tools look for them, where the distribution
    keeps those of a branch in a folder of its own.
  - After a change it looks whether library and GPUs answer, and records the driver as the last good
    one in C(/etc/bedplate/driver.json) only then.
extends_documentation_fragment:
  - bedplate.gpu.common
  - bedplate.gpu.common.change_joined
  - bedplate.gpu.common.flavour
options:
  version:
    description: The version that the module must have.
    type: str
    required: true
  source:
    description: Where the driver comes from, for the record.
    type: str
    default: distro
  packages:
    description: The packages that it comes from, for the record.
    type: dict
    required: true
  kernel:
    description:
      - The kernel release that the module must be built for. Empty for the running one, which may
        then lack headers if the module is there.
    type: str
    default: ""
  gpus:
    description: How many GPUs must answer after a change.
    type: int
    default: 0
  options:
    description:
      - Options by kernel module. A loaded module that has others is replaced, as one of another
        version is.
    type: dict
    default: {}
  archives:
    description: Folder with C(.deb) files, where only those of the recorded drivers are kept.
    type: path
    default: ""
  packages_wait:
    description:
      - Whether the driver's packages are left as they are, because the host is a cluster node.
        Then there may be no module to build or load; that waits with them, unless
        O(change_joined) is set.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would change, by what is loaded now.
  diff_mode:
    description: Shows the loaded version and the record before and after.
"""

EXAMPLES = r"""
- name: Load the driver
  bedplate.gpu.nvidia_driver_module:
    version: 535.261.03
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
    gpus: 4
"""

RETURN = r"""
loaded:
  description: The loaded module's version afterwards, or empty.
  returned: always
  type: str
built:
  description: The modules that were built, as V(nvidia-current/535.309.01 for 6.1.0-50-amd64).
  returned: always
  type: list
  elements: str
pending:
  description: What stays as it is because the host is a cluster node.
  returned: always
  type: list
  elements: str
unit_ours:
  description: Whether the unit of the persistence daemon is one that Bedplate wrote.
  returned: always
  type: bool
boot_needed:
  description: Whether nouveau holds GPUs, so that no module of NVIDIA's gets them before a boot.
  returned: always
  type: bool
reboot_required:
  description: Whether another module stays loaded until the host reboots.
  returned: always
  type: bool
reason:
  description: Why a reboot is required.
  returned: always
  type: str
persistent:
  description: Whether the daemon that keeps GPUs initialised runs now and starts at boot.
  returned: always
  type: bool
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    dkms,
    holders,
    nvidia,
    owned,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    libraries as driver_libraries,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    record as driver_record,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    runfile as driver_runfile,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import state as driver
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver.record import Driver
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver.state import Exchange
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages import debian
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def build(module: AnsibleModule, host: Host, wished: Driver, kernel: str) -> list[str]:
    """Build what is missing for the kernel; what was, or in check mode would be, built."""
    if module.params["kernel"] and not host.exists(dkms.HEADERS.format(kernel)):
        if dkms.modules(host, wished.version):
            refuse(
                module,
                "the NVIDIA kernel module cannot be built",
                f"no headers of kernel {kernel}",
                dkms.HEADERS.format(kernel),
                "Install the headers of that kernel, as role host_baseline does, and run the play"
                " again.",
            )
        return []
    done = []
    for source in dkms.missing(host, wished.version, kernel):
        reason = None if module.check_mode else dkms.build(host, source, kernel)
        if reason is not None:
            refuse(
                module,
                f"the NVIDIA kernel module does not build for kernel {kernel}",
                reason,
                f"{source.name}/{source.version} built",
                "Choose a driver that builds for this kernel, or another kernel, and run"
                " 'bedplate plan'.",
            )
        done.append(f"{source.name}/{source.version} for {kernel}")
    return done


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **driver_record.OPTIONS,
            "kernel": {"type": "str", "default": ""},
            "gpus": {"type": "int", "default": 0},
            "options": {"type": "dict", "default": {}},
            "archives": {"type": "path", "default": ""},
            "change_joined": {"type": "bool", "default": False},
            "packages_wait": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish, host, running = module.params, Host(), os.uname().release
    wished = Driver(wish["version"], wish["flavour"], wish["source"], running, wish["packages"])
    before = nvidia.loaded_module(host)
    other = driver.differs(before, wished.version, wished.flavour)
    other = other or bool(nvidia.other_options(host, wish["options"]))
    # A node without a module may have one: that disturbs nobody. But its packages come first, and
    # only a boot takes the cards from nouveau.
    nouveau = before is None and driver.nouveau_holds(host)
    left = before is not None or wish["packages_wait"] or nouveau
    pending = host.joined and not wish["change_joined"] and left and other
    switch, done = other and not pending, Exchange(before, "", "")
    # What a killed run had stopped; an exchange starts it itself.
    started = [] if switch else driver.resume(host, module.check_mode)
    built = [] if pending else build(module, host, wished, wish["kernel"] or running)

    if switch and not module.check_mode:
        done = driver.exchange(host, before, wished.version, wished.flavour)
        if done.failed:
            refuse(
                module,
                "the NVIDIA kernel module does not load as requested",
                done.failed,
                wished.name,
                driver.way_out(host, running, wished.source, wish["kernel"]),
            )

    links = driver_libraries.change(host, done.now.version if done.now else "")
    if not module.check_mode:
        driver_libraries.apply(host, links)

    old = host.read(driver_record.PATH) or ""
    record = driver_record.read_or_refuse(module, host)
    works = driver_record.works(record, wished)
    new = old
    whole = not driver.state(host, wished.packages).differing
    if whole and not driver.differs(done.now, wished.version, wished.flavour) and works != record:
        reason = driver.health(host, wished.version, wish["gpus"])
        if reason:
            refuse(
                module,
                "the driver does not work after the change",
                reason,
                f"{wish['gpus']} GPUs through driver {wished.name}",
                "See 'nvidia-smi' and the kernel's log on the host.",
            )
        new = driver_record.render(works)
    if new != old and not module.check_mode:
        host.write(driver_record.PATH, new)
    kept = [one.packages for one in works.good]
    stale = []
    if wish["archives"]:
        stale = debian.superfluous(host, wish["archives"], kept)
        versions = [one.version for one in works.good]
        stale += driver_runfile.superfluous(host, wish["archives"], versions)
    if new == driver_record.render(works) and not module.check_mode:
        for path in stale:
            host.remove(path)

    loaded = before.version if before else "none"
    waits = f"the loaded module, or its options, for {wished.name}"
    waits = waits if before else f"the module for {wished.name}: none is loaded"
    waits = waits + ", and nouveau holds the GPUs until a boot" if nouveau else waits
    module.exit_json(
        changed=bool(built or started) or (switch and not done.in_use) or new != old or any(links),
        loaded=done.now.version if done.now else "",
        built=built,
        pending=[waits] if pending else [],
        boot_needed=nouveau,
        unit_ours=driver_runfile.UNIT in owned.load(host),
        reboot_required=bool(done.in_use),
        reason=done.in_use,
        persistent=holders.persistent(host),
        diff=[
            {
                "before": f"loaded: {loaded}\n",
                "after": f"loaded: {wished.version if switch else loaded}\n",
            },
            links.told,
            Change(driver_record.PATH, old, new).diff,
        ],
    )


if __name__ == "__main__":
    main()
