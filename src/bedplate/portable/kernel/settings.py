"""Kernel settings that must hold now and after a reboot.

Modules, blacklist, module options, sysctls and huge pages: what is there, and what differs.
"""

import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..host import Host

#: A module that is built into the kernel need not show below /sys/module; what it brings does.
PROVIDES = {
    "overlay": ("/proc/filesystems", "overlay"),
    "br_netfilter": ("/proc/sys/net/bridge/bridge-nf-call-iptables", ""),
}
HEADER = "# Managed by Bedplate (role {}): changes here are lost.\n"
#: Written before the files, removed after the refresh: a run killed between the two leaves it.
STALE_INITRAMFS = "/var/lib/bedplate/initramfs-is-stale"
#: Every kernel's, because the pinned one need not be the newest.
INITRAMFS = (
    ("/usr/sbin/update-initramfs", ("-u", "-k", "all")),
    ("/usr/bin/dracut", ("--regenerate-all", "--force")),
)
MODPROBE = "/etc/modprobe.d/"
#: sysctl.d(5): files of all folders in the order of their names; of one name the first one counts.
SYSCTLS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
#: Late, so that a parameter that the site wishes holds whatever an image or a guide says.
SYSCTL_FILE = "99-zz-bedplate-{}.conf"
#: What it was called once, when those had the last word.
FORMER_SYSCTL_FILE = "60-bedplate-{}.conf"
MODULES_LOAD = "systemd-modules-load.service"
POOL = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
#: The pool of pages of the kernel's default size, which is a sysctl too.
DEFAULT_POOL = "vm.nr_hugepages"
_UNITS = {"K": 1, "M": 1024, "G": 1024 * 1024}
_SIZE = re.compile(r"^(\d+)([KMG])$")


class Settings(NamedTuple):
    """What is wished. ``hugepages`` holds numbers of pages by size, as ``{"2M": 512}``."""

    modules: Sequence[str] = ()
    blacklist: Sequence[str] = ()
    options: Mapping[str, Mapping[str, str]] = {}
    sysctls: Mapping[str, str] = {}
    hugepages: Mapping[str, int] = {}


class Differences(NamedTuple):
    """What is not as wished: ``files`` by path with their wished text (empty: no such file),
    ``sysctls`` and ``pools`` by key with their running value. ``outdone`` names lines of others'
    files that undo ours at boot, as ``path: key = value``."""

    files: Dict[str, str]
    modules: List[str]
    sysctls: Dict[str, str]
    pools: Dict[str, str]
    blacklisted: List[str]
    stale_initramfs: bool
    outdone: List[str]

    def told(self, wish: "Resolved") -> List[str]:
        """One line each, for messages."""
        found = []
        if self.stale_initramfs:
            found.append("the initramfs was not refreshed after an earlier change")
        found += [f"{path} differs" for path in sorted(self.files)]
        found += [f"module {name} is not loaded" for name in self.modules]
        for key, now in sorted(self.sysctls.items()):
            found.append(f"{key} is {now or 'unknown'} instead of {wish.sysctls[key]}")
        for path, now in sorted(self.pools.items()):
            found.append(f"{path} is {now or 'unknown'} instead of {wish.pools[path]}")
        return found + [f"module {name} is loaded" for name in self.blacklisted]


class Resolved(NamedTuple):
    """Settings as this host's kernel takes them: ``pools`` are huge pages beyond the default size,
    by the file that takes their number."""

    settings: Settings
    sysctls: Dict[str, str]
    pools: Dict[str, str]


def module_folder(name: str) -> str:
    """Where the kernel tells of a loaded module; a name's dashes are underscores there."""
    return "/sys/module/{}".format(name.replace("-", "_"))


def module_present(host: Host, name: str) -> bool:
    """Whether a module is loaded, or its function is built in."""
    if host.exists(module_folder(name)):
        return True
    if name not in PROVIDES:
        return False
    path, word = PROVIDES[name]
    text = host.read(path)
    return text is not None and (not word or word in text.split())


def unloadable(host: Host, names: Sequence[str]) -> List[str]:
    """Those of loaded modules that rmmod would take one after the other, as nothing uses them.

    One whose uses nobody counts is built in, or its kernel unloads none at all.
    """
    going: List[str] = []
    for name in names:
        folder = module_folder(name)
        uses = (host.read(folder + "/refcnt") or "").strip()
        # A module that stands on this one, and goes before it, counts for one use.
        gone = {module_folder(each) for each in going}
        users = [each for each in host.list(folder + "/holders") if module_folder(each) in gone]
        if uses.isdigit() and int(uses) <= len(users):
            going.append(name)
    return going


def sysctl_path(key: str) -> str:
    """``net.ipv4.ip_forward`` as a path below /proc/sys.

    As sysctl.d(5) has it: of ``.`` and ``/`` the one that comes first separates the words of a key,
    and the other one stands for it inside a word.
    """
    first = next((letter for letter in key if letter in "./"), "/")
    return "/proc/sys/" + (key if first == "/" else key.translate(str.maketrans("./", "/.")))


def sysctl_now(host: Host, key: str) -> str:
    """The running value, fields separated by single spaces; empty where there is no such key."""
    return " ".join((host.read(sysctl_path(key)) or "").split())


def put(host: Host, path: str, value: str) -> Optional[str]:
    """Write a value to a file of the kernel's; the reason where the kernel refuses it."""
    try:
        with open(host.path(path), "w", encoding="utf-8") as stream:
            stream.write(value)
    except OSError as error:
        return error.strerror or str(error)
    return None


def set_sysctl(host: Host, key: str, value: str) -> Optional[str]:
    """Set the running value; the reason where the kernel refuses it."""
    return put(host, sysctl_path(key), value)


def page_kib(size: str) -> int:
    """``1G`` as KiB. Raises ValueError for what is no size."""
    found = _SIZE.match(size)
    if found is None:
        raise ValueError(f"{size} is no size of a page, such as 2M or 1G")
    return int(found.group(1)) * _UNITS[found.group(2)]


def resolve(host: Host, wish: Settings) -> Resolved:
    """Huge pages of the kernel's default size are a sysctl, those of others have files."""
    found = re.search(r"^Hugepagesize:\s*(\d+) kB", host.read("/proc/meminfo") or "", re.MULTILINE)
    default = int(found.group(1)) if found else 0
    sysctls = {key: " ".join(str(value).split()) for key, value in wish.sysctls.items()}
    pools = {}
    for size, count in wish.hugepages.items():
        if page_kib(size) == default:
            sysctls[DEFAULT_POOL] = str(count)
        else:
            pools[POOL.format(page_kib(size))] = str(count)
    return Resolved(wish, sysctls, pools)


def files(name: str, wish: Resolved) -> Dict[str, str]:
    """The files that keep the settings over a reboot; empty text means: no such file."""
    header = HEADER.format(name)
    modprobe: List[str] = []
    for module in wish.settings.blacklist:
        modprobe += [f"blacklist {module}", f"install {module} /bin/false"]
    options = wish.settings.options
    for module in sorted(options):
        pairs = [f"{k}={options[module][k]}" for k in sorted(options[module])]
        if pairs:
            modprobe.append("options {} {}".format(module, " ".join(pairs)))
    sysctls, pools = wish.sysctls, wish.pools
    contents = {
        "/etc/modules-load.d/bedplate-{}.conf": list(wish.settings.modules),
        MODPROBE + "bedplate-{}.conf": modprobe,
        f"{SYSCTLS[0]}/{SYSCTL_FILE}": [f"{k} = {sysctls[k]}" for k in sorted(sysctls)],
        f"{SYSCTLS[0]}/{FORMER_SYSCTL_FILE}": [],
        "/etc/tmpfiles.d/bedplate-{}.conf": [f"w {p} - - - - {pools[p]}" for p in sorted(pools)],
    }
    return {
        path.format(name): header + "\n".join(lines) + "\n" if lines else ""
        for path, lines in contents.items()
    }


def outdone(host: Host, name: str, sysctls: Mapping[str, str]) -> List[str]:
    """Lines that give our keys other values at boot, since their files are read after ours.

    /etc/sysctl.conf is read only where a link among the others leads to it. Keys with wildcards are
    passed over: they never count for a key that a file spells out, as ours does.
    """
    paths: Dict[str, str] = {}
    for folder in reversed(SYSCTLS):
        paths.update((each, f"{folder}/{each}") for each in host.list(folder))
    wanted = {sysctl_path(key): " ".join(value.split()) for key, value in sysctls.items()}
    last: Dict[str, Tuple[str, str]] = {}
    for each in sorted(paths):
        if each <= SYSCTL_FILE.format(name) or not each.endswith(".conf"):
            continue
        for line in (host.read(paths[each]) or "").splitlines():
            key, assigns, value = line.strip().partition("=")
            # A dash says that it is no error where the kernel refuses the value.
            key, value = key.strip(), " ".join(value.split())
            path = sysctl_path(key.removeprefix("-"))
            if assigns and path in wanted and not key.startswith(("#", ";")):
                last[path] = (value, f"{_led_to(host, paths[each])}: {key} = {value}")
    return [line for path, (value, line) in sorted(last.items()) if value != wanted[path]]


def _led_to(host: Host, path: str) -> str:
    """The file that a link leads to, which is the one to edit."""
    real = host.path(path)
    if not os.path.islink(real):
        return path
    return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(real)))


def compare(host: Host, name: str, wish: Resolved) -> Differences:
    """What differs from the wish, in files and in the running kernel."""
    wanted = files(name, wish)
    sysctls = {key: sysctl_now(host, key) for key in wish.sysctls}
    pools = {path: (host.read(path) or "").strip() for path in wish.pools}
    return Differences(
        files={p: text for p, text in wanted.items() if text != (host.content(p) or "")},
        modules=[m for m in wish.settings.modules if not module_present(host, m)],
        sysctls={key: now for key, now in sysctls.items() if now != wish.sysctls[key]},
        pools={path: now for path, now in pools.items() if now != wish.pools[path]},
        blacklisted=[m for m in wish.settings.blacklist if host.exists(module_folder(m))],
        stale_initramfs=host.exists(STALE_INITRAMFS),
        outdone=outdone(host, name, wish.sysctls),
    )


def boot_list_failed(host: Host) -> bool:
    """Whether loading modules at boot failed, and nobody has tried again since."""
    return host.run(["systemctl", "is-failed", "--quiet", MODULES_LOAD]).code == 0


def load_boot_list(host: Host) -> bool:
    """Load once more what is to be loaded at boot; whether that ends well now."""
    return host.run(["systemctl", "restart", MODULES_LOAD]).code == 0


def refresh_initramfs(host: Host) -> Optional[str]:
    """Make the initramfs carry what /etc/modprobe.d says; the reason where that fails.

    A blacklist counts early in the boot only if the initramfs has it. A host without one has
    nothing to refresh.
    """
    for program, arguments in INITRAMFS:
        if host.exists(program):
            answer = host.run([program, *arguments], timeout=1800)
            return None if answer.code == 0 else f"{program}: {answer.said}"
    return None
