#!/usr/bin/python
"""Have NVIDIA's kernel module loaded at one version, and record the driver that works."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_module
short_description: Load the driver's kernel module at a version
description:
  - Loads the module where none is loaded.
  - Exchanges a loaded module of another version, where nothing uses it; otherwise reports that a
    reboot is required and leaves it.
  - Records the driver in C(/etc/bedplate/driver.json) once the wished version is loaded.
author: [The Bedplate authors]
options:
  version:
    description: The version that the module must have.
    type: str
    required: true
  packages:
    description: The packages that it comes from, for the record.
    type: dict
    required: true
  change_joined:
    description: Whether a host that has joined a cluster may get another module.
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what would change, by what is loaded now.
    support: full
  diff_mode:
    description: Shows the loaded version and the record before and after.
    support: full
"""

EXAMPLES = r"""
- name: Load the driver
  bedplate.gpu.nvidia_driver_module:
    version: 535.261.03
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
"""

RETURN = r"""
loaded:
  description: The loaded module's version afterwards, or empty.
  returned: always
  type: str
pending:
  description: Whether another version stays loaded because the host has joined a cluster.
  returned: always
  type: bool
reboot_required:
  description: Whether another version stays loaded until the host reboots.
  returned: always
  type: bool
reason:
  description: Why a reboot is required.
  returned: always
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import driver, nvidia
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem


def refuse(module: AnsibleModule, host: Host, got: str, allowed: str, loaded: str) -> None:
    module.fail_json(
        loaded=loaded,
        msg=problem(
            "the NVIDIA kernel module does not load as wished",
            os.uname().nodename,
            got,
            allowed,
            driver.way_out(host, os.uname().release),
        ),
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "packages": {"type": "dict", "required": True},
            "change_joined": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    version, packages, host = module.params["version"], module.params["packages"], Host()
    before = nvidia.loaded_module(host)
    pending = driver.keeps_module(host, before, version, module.params["change_joined"])
    switch = not pending and (before is None or before.version != version)
    reason = None
    now = before
    if switch and not module.check_mode:
        reason = driver.unload(host) if before is not None else None
        if reason is None:
            failed = driver.load(host)
            if failed:
                refuse(module, host, failed, version, "")
        now = nvidia.loaded_module(host)
        if reason is None and (now is None or now.version != version):
            refuse(
                module,
                host,
                now.version if now else "nothing is loaded",
                version,
                now.version if now else "",
            )

    old = host.read(driver.LAST_GOOD) or ""
    good = now is not None and now.version == version
    new = driver.last_good(now, packages) if good else old
    if new != old and not module.check_mode:
        host.write(driver.LAST_GOOD, new)
    loaded = before.version if before else "none"
    module.exit_json(
        changed=(switch and reason is None) or new != old,
        loaded=now.version if now else "",
        pending=pending,
        reboot_required=reason is not None,
        reason=reason or "",
        diff=[
            {
                "before": f"loaded: {loaded}\n",
                "after": f"loaded: {version if switch else loaded}\n",
            },
            {
                "before_header": driver.LAST_GOOD,
                "after_header": driver.LAST_GOOD,
                "before": old,
                "after": new,
            },
        ],
    )


if __name__ == "__main__":
    main()
