#!/usr/bin/python
"""Have NVIDIA's own installer install its driver at one version, or take it away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_runfile
short_description: Run NVIDIA's installer
description:
  - Installs the driver of a runfile, after the one that another runfile installed was taken away.
  - Does nothing where the driver is installed already and no change was cut off.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.flavour]
options:
  state:
    description:
      - Whether the driver is to be there.
      - With V(unloaded) nothing is installed or taken away. The loaded module goes, after services
        that hold it. The installer works on no driver whose module is loaded.
    type: str
    choices: [present, absent, unloaded]
    default: present
  path:
    description: The runfile on the host.
    type: path
    default: ""
  sha256:
    description: Its SHA-256. Empty for one that was kept from an earlier installation.
    type: str
    default: ""
  version:
    description: The driver version.
    type: str
    default: ""
  kernel:
    description: The kernel release to build for. Empty for the running one.
    type: str
    default: ""
  known:
    description:
      - How installers are asked for a flavour. Each entry has C(from), the first version it is
        true of, and C(open) or C(proprietary), lists of options; a flavour that is not named cannot
        be had.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    description: Says whether the installer would run.
  diff_mode:
    description: Shows the installed version before and after.
"""

EXAMPLES = r"""
- name: Install the driver
  bedplate.gpu.nvidia_driver_runfile:
    path: /var/lib/bedplate/driver/580.95.05.run
    sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    version: 580.95.05
    known: [{from: "560", open: [--kernel-module-type=open]}]
    flavour: open
"""

RETURN = r"""
installed:
  description: The version that the installer had installed before, or empty.
  returned: always
  type: str
in_use:
  description: With O(state=unloaded), why the module stays loaded until a reboot. Empty if it went.
  returned: always
  type: str
"""

from typing import NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import fetch, nvidia
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    record as driver_record,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    runfile as driver_runfile,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import state as driver
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def take_away(module: AnsibleModule, host: Host, before: str) -> None:
    reason = driver_runfile.uninstall(host)
    if reason is not None:
        refuse(
            module,
            f"the driver {before} of NVIDIA's installer cannot be taken away",
            reason,
            "'nvidia-uninstall --silent' ends well",
            "Run it by hand, fix what it says, and run the play again.",
        )
    driver_runfile.take_daemon_away(host)


def bring(module: AnsibleModule, host: Host) -> None:
    wish = module.params
    found = fetch.digest(host.path(wish["path"]))
    if not found or found != (wish["sha256"].lower() or found):
        refuse(
            module,
            f"the runfile {wish['path']} is not the expected one",
            f"sha256 {found}" if found else "no such file",
            f"sha256 {wish['sha256']}",
            "Bring the right file, or correct nvidia_driver_runfile_sha256.",
        )
    try:
        options = driver_runfile.arguments(
            wish["version"], wish["flavour"], wish["kernel"], wish["known"]
        )
    except ValueError as error:
        refuse(
            module,
            "the runfile does not offer the driver",
            str(error),
            f"a {wish['flavour']} module",
            "Choose another flavour or version and run 'bedplate plan'.",
        )
    reason = driver_runfile.install(host, wish["path"], wish["version"], options)
    if reason is not None:
        refuse(
            module,
            "NVIDIA's installer failed",
            reason,
            f"driver {wish['version']} installed",
            "Fix what its log says, or choose another driver and run 'bedplate plan'.",
        )


def unload(module: AnsibleModule, host: Host) -> NoReturn:
    loaded, in_use = nvidia.loaded_module(host), None
    if loaded is not None and not module.check_mode:
        in_use = driver.unload(host)
    before = f"module: {loaded.version if loaded else 'none'}\n"
    module.exit_json(
        changed=loaded is not None and in_use is None,
        installed=driver_runfile.installed(host),
        in_use=in_use or "",
        diff={"before": before, "after": before if in_use else "module: none\n"},
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["present", "absent", "unloaded"],
                "default": "present",
            },
            "path": {"type": "path", "default": ""},
            "sha256": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "flavour": driver_record.FLAVOUR,
            "kernel": {"type": "str", "default": ""},
            "known": {"type": "list", "elements": "dict", "default": []},
        },
        required_if=[("state", "present", ("path", "version"))],
        supports_check_mode=True,
    )
    host, state, flavour = Host(), module.params["state"], module.params["flavour"]
    if state == "unloaded":
        unload(module, host)
    before = driver_runfile.installed(host)
    wished = module.params["version"] if state == "present" else ""
    change = driver_runfile.wanted(host, wished, flavour) if wished else bool(before)
    if change and not module.check_mode:
        if before and (before != wished or driver_runfile.other_flavour(host, wished, flavour)):
            take_away(module, host, before)
        if wished:
            bring(module, host)
    module.exit_json(
        changed=change,
        installed=before,
        in_use="",
        diff={
            "before": f"runfile driver: {before or 'none'}\n",
            "after": f"runfile driver: {wished or 'none'}\n"
            if change
            else f"runfile driver: {before or 'none'}\n",
        },
    )


if __name__ == "__main__":
    main()
