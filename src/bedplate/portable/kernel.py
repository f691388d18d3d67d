"""Kernel settings that must hold now and after a reboot: modules, blacklist, options, sysctls."""

from typing import Dict, List, Mapping, Optional, Sequence

from .host import Host

#: A module that is built into the kernel need not show below /sys/module; what it brings does.
PROVIDES = {
    "overlay": ("/proc/filesystems", "overlay"),
    "br_netfilter": ("/proc/sys/net/bridge/bridge-nf-call-iptables", ""),
}
HEADER = "# Managed by Bedplate (role {}): changes here are lost.\n"


def module_present(host: Host, name: str) -> bool:
    """Whether a module is loaded, or its function is built in."""
    if host.exists("/sys/module/{}".format(name.replace("-", "_"))):
        return True
    if name not in PROVIDES:
        return False
    path, word = PROVIDES[name]
    text = host.read(path)
    return text is not None and (not word or word in text.split())


def sysctl_path(key: str) -> str:
    """``net.ipv4.ip_forward`` as a path below /proc/sys; ``/`` separates keys that contain dots."""
    return "/proc/sys/" + (key if "/" in key else key.replace(".", "/"))


def sysctl_now(host: Host, key: str) -> str:
    """The running value, fields separated by single spaces; empty where there is no such key."""
    return " ".join((host.read(sysctl_path(key)) or "").split())


def set_sysctl(host: Host, key: str, value: str) -> Optional[str]:
    """Set the running value; the reason where the kernel refuses it."""
    try:
        with open(host.path(sysctl_path(key)), "w", encoding="utf-8") as stream:
            stream.write(value)
    except OSError as error:
        return error.strerror or str(error)
    return None


def files(
    name: str,
    modules: Sequence[str],
    blacklist: Sequence[str],
    options: Mapping[str, Mapping[str, str]],
    sysctls: Mapping[str, str],
) -> Dict[str, str]:
    """The files that keep the settings over a reboot; empty text means: no such file."""
    header = HEADER.format(name)
    modprobe: List[str] = []
    for module in blacklist:
        modprobe += [f"blacklist {module}", f"install {module} /bin/false"]
    for module in sorted(options):
        pairs = [f"{k}={options[module][k]}" for k in sorted(options[module])]
        if pairs:
            modprobe.append("options {} {}".format(module, " ".join(pairs)))
    contents = {
        "/etc/modules-load.d/bedplate-{}.conf": list(modules),
        "/etc/modprobe.d/bedplate-{}.conf": modprobe,
        "/etc/sysctl.d/60-bedplate-{}.conf": [f"{k} = {sysctls[k]}" for k in sorted(sysctls)],
    }
    return {
        path.format(name): header + "\n".join(lines) + "\n" if lines else ""
        for path, lines in contents.items()
    }
