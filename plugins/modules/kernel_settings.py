#!/usr/bin/python
"""Kernel modules, blacklist, module options and sysctls: now and after a reboot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_settings
short_description: Keep kernel modules, blacklist, module options and sysctls
description:
  - Writes one file below each of C(/etc/modules-load.d), C(/etc/modprobe.d) and C(/etc/sysctl.d)
    that has something to say, and removes those that no longer have.
  - A change below C(/etc/modprobe.d) refreshes the initramfs, also when an earlier run was killed
    between the two.
  - Loads the modules and sets the sysctls that differ now.
  - Unloads blacklisted modules where nothing uses them.
  - Refuses a host where a file that is read after ours at boot gives one of the sysctls another
    value. It is named, and left alone.
  - One round trip for all of it.
extends_documentation_fragment: [bedplate.gpu.common]
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
    description: Modules that must never be loaded.
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
  hugepages:
    description: Number of huge pages by their size, as V(2M) or V(1G).
    type: dict
    default: {}
  unpinned:
    description: Whether the host is to keep no kernel, so that packages of kernels which
      M(bedplate.gpu.kernel_pin) held are upgraded with the others again. Holds of the user's stay.
    type: bool
    default: false
attributes:
  diff_mode:
    description: Shows files and sysctls before and after.
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
  description: What was not as requested, one line each.
  returned: always
  type: list
  elements: str
blacklisted_loaded:
  description: Blacklisted modules that are loaded now and go at the next reboot.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import owned
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.kernel import pin as kernel_pin
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.kernel import settings as kernel
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def write_files(module: AnsibleModule, host: Host, found: kernel.Differences) -> None:
    """Write the files, and the initramfs after those of modprobe."""
    stale = found.stale_initramfs or any(path.startswith(kernel.MODPROBE) for path in found.files)
    if stale:
        host.write(kernel.STALE_INITRAMFS, "")
    for path, text in sorted(found.files.items()):
        if text:
            host.write(path, text)
        else:
            host.remove(path)
    if not stale:
        return
    refused = kernel.refresh_initramfs(host)
    if refused:
        refuse(
            module,
            "the initramfs could not be refreshed",
            refused,
            "it ends well",
            "Run it by hand, fix what it says, and run the play again.",
        )
    host.remove(kernel.STALE_INITRAMFS)


def record(host: Host, wanted: dict[str, str]) -> None:
    """Record which files are ours, for drift and reset; empty text means: no such file."""
    ours = {path: text for path, text in wanted.items() if text}
    owned.keep(host, [owned.Writing(p, t, 0o644, host.content(p)) for p, t in ours.items()])
    owned.forget(host, sorted(set(wanted) - set(ours)))


def load(module: AnsibleModule, host: Host, name: str) -> None:
    """Load a module."""
    answer = host.run(["modprobe", name])
    if answer.code != 0 or not kernel.module_present(host, name):
        refuse(
            module,
            f"kernel module {name} does not load",
            answer.said,
            "loaded, or built in",
            "Install the running kernel's modules, or reboot into the installed kernel.",
        )


def put(module: AnsibleModule, host: Host, key: str, value: str) -> None:
    """Set a sysctl."""
    refused = kernel.set_sysctl(host, key, value)
    if refused:
        refuse(
            module,
            f"sysctl {key} cannot be set",
            refused,
            value,
            "Check that the kernel has this key and that nothing locks it.",
        )


def reserve(module: AnsibleModule, host: Host, path: str, count: str) -> None:
    """Reserve huge pages; the kernel takes what number it can, and says so only when it is read."""
    refused = kernel.put(host, path, count)
    now = (host.read(path) or "").strip()
    if refused or now != count:
        refuse(
            module,
            "huge pages cannot be reserved",
            refused or f"{path} is {now}",
            count,
            "Reserve them at boot, before memory is in pieces (hugepagesz and hugepages on the"
            " kernel's command line), or ask for fewer.",
        )


def let_go(module: AnsibleModule, host: Host, names: list[str]) -> None:
    """Let upgrades have the packages of a kernel that the site names no longer."""
    refused = kernel_pin.let_go(host, names)
    if refused:
        refuse(
            module,
            "kernel packages stay held although no kernel is named",
            refused,
            "'apt-mark unhold' ends well for " + ", ".join(names),
            "Run it by hand, fix what it says, and run the play again.",
        )


def shown(host: Host, found: kernel.Differences, wish: kernel.Resolved) -> list[dict[str, str]]:
    """The differences as Ansible shows them."""
    diff = []
    if found.stale_initramfs:
        diff.append({"before": "initramfs of old\n", "after": "initramfs refreshed\n"})
    for path, text in sorted(found.files.items()):
        diff.append(Change(path, host.read(path), text).diff)
    diff += [{"before": "", "after": f"module {name} loaded\n"} for name in found.modules]
    running = [*found.sysctls.items(), *found.pools.items()]
    wanted = {**wish.sysctls, **wish.pools}
    for key, now in sorted(running):
        diff.append({"before": f"{key} = {now}\n", "after": f"{key} = {wanted[key]}\n"})
    return diff


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "modules": {"type": "list", "elements": "str", "default": []},
            "blacklist": {"type": "list", "elements": "str", "default": []},
            "options": {"type": "dict", "default": {}},
            "sysctls": {"type": "dict", "default": {}},
            "hugepages": {"type": "dict", "default": {}},
            "unpinned": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params: dict[str, Any] = module.params
    host = Host()
    settings = kernel.Settings(**{field: params[field] for field in kernel.Settings._fields})
    try:
        wish = kernel.resolve(host, settings)
    except ValueError as error:
        module.fail_json(msg=str(error))
    found = kernel.compare(host, params["name"], wish)
    if found.outdone:
        wished = [f"{key} = {wish.sysctls[key]}" for key in sorted(wish.sysctls)]
        refuse(
            module,
            "files that are read after ours at boot set kernel parameters to other values",
            ", ".join(found.outdone),
            ", ".join(wished),
            "Take these lines out of those files and run the play again.",
        )
    differences = found.told(wish)
    diff = shown(host, found, wish)
    held = kernel_pin.ours(host) if params["unpinned"] else []
    differences += [f"package {name} is held although no kernel is named" for name in held]
    diff += [{"before": f"package {name} held\n", "after": ""} for name in held]
    if not module.check_mode:
        record(host, kernel.files(params["name"], wish))
        write_files(module, host, found)
        for name in found.modules:
            load(module, host, name)
        # A module brings keys with it that were unknown before: all are looked at again.
        for key in sorted(kernel.compare(host, params["name"], wish).sysctls):
            if kernel.sysctl_path(key) == kernel.sysctl_path(kernel.DEFAULT_POOL):
                reserve(module, host, kernel.sysctl_path(key), wish.sysctls[key])
            else:
                put(module, host, key, wish.sysctls[key])
        for path in sorted(found.pools):
            reserve(module, host, path, wish.pools[path])
        if held:
            let_go(module, host, held)
    # A host that lost its power in the middle of a change booted without its modules, and systemd
    # would call it degraded until the next boot. With somebody else's module at fault it stays so.
    owed = bool(settings.modules) and kernel.boot_list_failed(host)
    if owed and (module.check_mode or kernel.load_boot_list(host)):
        diff.append({"before": "modules of the boot not loaded\n", "after": ""})
    # A module in use stays until the next reboot, and is reported; nothing is forced.
    if module.check_mode:
        gone = kernel.unloadable(host, found.blacklisted)
    else:
        gone = [name for name in found.blacklisted if host.run(["rmmod", name]).code == 0]
    diff += [{"before": f"module {name} loaded\n", "after": ""} for name in gone]
    loaded = [m for m in settings.blacklist if host.exists(kernel.module_folder(m))]
    loaded = [name for name in loaded if name not in gone]
    module.exit_json(
        changed=bool(diff), diff=diff, differences=differences, blacklisted_loaded=loaded
    )


if __name__ == "__main__":
    main()
