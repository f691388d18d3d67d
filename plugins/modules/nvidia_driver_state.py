#!/usr/bin/python
"""Tell what NVIDIA driver a host has, and what must wait because it has joined a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_state
short_description: Read the driver's packages and loaded module
description:
  - Reads packages, the loaded module, other drivers on the host and whether it is in a
    cluster, in one round trip.
extends_documentation_fragment:
  - bedplate.gpu.common.reads
  - bedplate.gpu.common.change_joined
  - bedplate.gpu.common.flavour
options:
  version:
    description: The driver version that is requested.
    type: str
    required: true
  source:
    description:
      - Where the requested driver comes from. Files of no package are unmanaged unless it is
        V(runfile).
    type: str
    default: distro
  packages:
    description: The requested version by package name.
    type: dict
    required: true
  marks:
    description: Patterns of files that only a driver has. The owner of one of them brings a driver.
    type: list
    elements: str
    default: []
  module_options:
    description: Options by kernel module that are requested, for RV(disturbs).
    type: dict
    default: {}
  remove_foreign:
    description: Whether another driver, that Bedplate did not bring, may be removed.
    type: bool
    default: false
  unheld:
    description:
      - Whether to fail where a process keeps the module loaded, and to name it. Services that
        M(bedplate.gpu.nvidia_driver_module) stops for an replace do not count.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read the driver
  bedplate.gpu.nvidia_driver_state:
    version: 535.261.03
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
"""

RETURN = r"""
system:
  description: The operating system, as V(debian-12).
  returned: always
  type: str
family:
  description: The family of the system, V(Debian) or V(RedHat). It says how packages are installed.
  returned: always
  type: str
joined:
  description: Whether the host is a cluster node.
  returned: always
  type: bool
loaded:
  description: The loaded module's version, or empty.
  returned: always
  type: str
differing:
  description: Packages that are not at the requested version.
  returned: always
  type: list
  elements: str
remove:
  description: Packages of other drivers that go with the change.
  returned: always
  type: list
  elements: str
uninstall:
  description: Whether a driver of NVIDIA's installer must be uninstalled first.
  returned: always
  type: bool
preserve:
  description: Versions of the last good driver's packages, to which the host may have to roll back.
  returned: always
  type: dict
change:
  description: Whether packages must be changed.
  returned: always
  type: bool
disturbs:
  description: Whether the change takes the GPUs away from what uses them, be it for packages, for
    the loaded module or for its options.
  returned: always
  type: bool
foreign:
  description: Other drivers that Bedplate did not bring, each with who did. Empty for none.
  returned: always
  type: str
options:
  description: Whether options of the kernel modules are kept for the next boot.
  returned: always
  type: bool
pending:
  description: Differences that are left alone on a cluster node.
  returned: always
  type: list
  elements: str
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import mig, nvidia, os_release
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    foreign as driver_foreign,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    record as driver_record,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    runfile as driver_runfile,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import state as driver
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse

#: Where role nvidia_driver has module kernel_settings keep them.
OPTIONS = "/etc/modprobe.d/bedplate-nvidia-options.conf"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **driver_record.OPTIONS,
            "marks": {"type": "list", "elements": "str", "default": []},
            "module_options": {"type": "dict", "default": {}},
            "remove_foreign": {"type": "bool", "default": False},
            "change_joined": {"type": "bool", "default": False},
            "unheld": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish = module.params
    host = Host()
    users = mig.module_users(host) if wish["unheld"] else []
    if users:
        refuse(
            module,
            "the GPUs are in use, so that the driver stays",
            ", ".join(users),
            "no process that holds a GPU",
            "End them (a drain leaves the pods of DaemonSets; docker ps names Docker's containers),"
            " or allow a reboot (bedplate.gpu.upgrade: upgrade_reboot_allowed, else"
            " nvidia_driver_reboot_allowed), and run the playbook again.",
        )
    record = driver_record.read_or_refuse(module, host)
    now = driver.state(host, wish["packages"])
    by_runfile = any(one.source == "runfile" for one in record.drivers)
    # Just the wished driver, which somebody has installed by hand, is taken over as it is.
    installer = (
        wish["source"] == "runfile"
        and driver_runfile.installed(host) == wish["version"]
        and not driver_runfile.other_flavour(host, wish["version"], wish["flavour"])
    )
    foreign = driver_foreign.find(
        host,
        wish["marks"],
        [wish["packages"], *(one.packages for one in record.drivers)],
        installer or by_runfile,
        [one.version for one in (record.changing, record.failed) if one],
    )
    going = driver.present(host, [n for n in record.names if n not in wish["packages"]])
    if wish["remove_foreign"]:
        rest = set(driver.siblings(host, sorted(foreign.packages))) - set(wish["packages"])
        going = sorted({*going, *rest})
    uninstall = (
        wish["source"] != "runfile"
        and host.exists(driver_foreign.UNINSTALLER)
        and (by_runfile or (wish["remove_foreign"] and bool(foreign.files)))
    )
    by_installer = wish["source"] == "runfile" and driver_runfile.wanted(
        host, wish["version"], wish["flavour"]
    )
    change = bool(now.differing or going or uninstall or by_installer)
    module.exit_json(
        changed=False,
        system=os_release.name(host),
        family=os_release.family(host),
        joined=now.joined,
        loaded=now.loaded.version if now.loaded else "",
        differing=now.differing,
        remove=going,
        uninstall=uninstall,
        preserve=dict(record.good[0].packages) if record.good else {},
        change=change,
        disturbs=bool(
            change
            or driver.differs(now.loaded, wish["version"], wish["flavour"])
            or nvidia.other_options(host, wish["module_options"])
        ),
        foreign=foreign.said,
        options=host.exists(OPTIONS),
        pending=driver.pending(now, wish["version"], wish["flavour"], going, wish["change_joined"]),
    )


if __name__ == "__main__":
    main()
