#!/usr/bin/python
"""Kernel modules, blacklist, module options and sysctls: now and after a reboot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_settings
short_description: Keep kernel modules, blacklist, module options and sysctls
description:
  - Writes one file below each of C(/etc/modules-load.d), C(/etc/modprobe.d) and C(/etc/sysctl.d)
    that has something to say, and removes those that no longer have.
  - Loads the modules and sets the sysctls that differ now.
  - Unloads blacklisted modules where nothing uses them.
  - One round trip for all of it.
author: [The Bedplate authors]
options:
  name:
    description: The owner's name, part of the file names.
    type: str
    required: true
  modules:
    description: Modules that must be loaded, or built in.
    type: list
    elements: str
    default: []
  blacklist:
    description: Modules that must never be loaded. A change refreshes the initramfs.
    type: list
    elements: str
    default: []
  options:
    description: Options by module.
    type: dict
    default: {}
  sysctls:
    description: Values by key.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows files and sysctls before and after.
    support: full
"""

EXAMPLES = r"""
- name: Let bridged traffic be filtered
  bedplate.gpu.kernel_settings:
    name: kubernetes
    modules: [overlay, br_netfilter]
    sysctls: {net.ipv4.ip_forward: "1", net.bridge.bridge-nf-call-iptables: "1"}
"""

RETURN = r"""
differences:
  description: What was not as wished, one line each.
  returned: always
  type: list
  elements: str
blacklisted_loaded:
  description: Blacklisted modules that are loaded now and go at the next reboot.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import kernel
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem

# Written before the files, removed after the refresh: a run killed between the two leaves it.
STALE_INITRAMFS = "/var/lib/bedplate/initramfs-is-stale"
INITRAMFS = (("/usr/sbin/update-initramfs", ["-u"]), ("/usr/bin/dracut", ["--force"]))


def fail(module: AnsibleModule, what: str, got: str, allowed: str, fix: str) -> None:
    module.fail_json(msg=problem(what, os.uname().nodename, got, allowed, fix))


def refresh_initramfs(module: AnsibleModule, host: Host) -> None:
    """A blacklist counts early in the boot only if the initramfs carries it too."""
    for program, arguments in INITRAMFS:
        if host.exists(program):
            answer = host.run([program, *arguments], timeout=600)
            if answer.code != 0:
                fail(
                    module,
                    "the initramfs could not be refreshed",
                    answer.said,
                    f"{program} ends well",
                    "Run it by hand, mend what it says, and run the play again.",
                )
            return


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "modules": {"type": "list", "elements": "str", "default": []},
            "blacklist": {"type": "list", "elements": "str", "default": []},
            "options": {"type": "dict", "default": {}},
            "sysctls": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    sysctls = {key: " ".join(str(value).split()) for key, value in wish["sysctls"].items()}
    diff = []
    differences = []

    wanted = kernel.files(
        wish["name"], wish["modules"], wish["blacklist"], wish["options"], sysctls
    )
    changed_files = {p: t for p, t in wanted.items() if t != (host.read(p) or "")}
    blacklist_changed = any(p.startswith("/etc/modprobe.d/") for p in changed_files)
    stale = bool(wish["blacklist"]) and (blacklist_changed or host.exists(STALE_INITRAMFS))
    if stale and not module.check_mode:
        host.write(STALE_INITRAMFS, "")
    if stale and not blacklist_changed:
        differences.append("the initramfs was not refreshed after an earlier change")
        diff.append({"before": "initramfs of old\n", "after": "initramfs refreshed\n"})
    for path, text in sorted(changed_files.items()):
        differences.append(f"{path} differs")
        diff.append(
            {
                "before_header": path,
                "after_header": path,
                "before": host.read(path) or "",
                "after": text,
            }
        )
        if module.check_mode:
            continue
        if text:
            host.write(path, text)
        else:
            host.remove(path)
    if stale and not module.check_mode:
        refresh_initramfs(module, host)
        host.remove(STALE_INITRAMFS)

    missing = [name for name in wish["modules"] if not kernel.module_present(host, name)]
    for name in missing:
        differences.append(f"module {name} is not loaded")
        diff.append({"before": "", "after": f"module {name} loaded\n"})
        if module.check_mode:
            continue
        answer = host.run(["modprobe", name])
        if answer.code != 0 or not kernel.module_present(host, name):
            fail(
                module,
                f"kernel module {name} does not load",
                answer.said,
                "loaded, or built in",
                "Install the running kernel's modules, or reboot into the installed kernel.",
            )

    # In check mode a module that is yet to be loaded has not brought its keys.
    for key, value in sorted(sysctls.items()):
        now = kernel.sysctl_now(host, key)
        if now == value:
            continue
        differences.append(f"{key} is {now or 'unknown'} instead of {value}")
        diff.append({"before": f"{key} = {now}\n", "after": f"{key} = {value}\n"})
        if module.check_mode:
            continue
        refused = kernel.set_sysctl(host, key, value)
        if refused:
            fail(
                module,
                f"sysctl {key} cannot be set",
                refused,
                value,
                "Check that the kernel has this key and that nothing locks it.",
            )

    blacklisted = [m for m in wish["blacklist"] if host.exists("/sys/module/" + m)]
    for name in blacklisted:
        # A module in use stays until the next reboot, and is reported; nothing is forced.
        if module.check_mode or host.run(["rmmod", name]).code == 0:
            diff.append({"before": f"module {name} loaded\n", "after": ""})
            differences.append(f"module {name} is loaded")

    module.exit_json(
        changed=bool(diff),
        diff=diff,
        differences=differences,
        blacklisted_loaded=[m for m in wish["blacklist"] if host.exists("/sys/module/" + m)],
    )


if __name__ == "__main__":
    main()
