"""Loaded modules and what follows from them: device nodes, /proc and /sys, bound cards."""

import os
import shutil
import stat

from . import cards, driver, libraries, mig, paths

#: What each of NVIDIA's modules needs to be loaded first.
NEEDS = {
    "nvidia": (),
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset",),
    "nvidia_peermem": ("nvidia",),
}
SIZES = {"nvidia": 56823808, "nvidia_uvm": 1540096, "nvidia_modeset": 1314816, "nvidia_drm": 77824}
#: Part of the distribution's kernel, for the cards that NVIDIA's modules drive.
NOUVEAU = "nouveau"
#: Part of every kernel that hosts are made of, whether built in (as here) or as files.
COMMON = frozenset(
    """
    br_netfilter bridge dummy ip6_tables ip6table_filter ip6table_nat ip_set ip_tables ip_vs
    ip_vs_rr ip_vs_sh ip_vs_wrr iptable_filter iptable_mangle iptable_nat loop nf_conntrack
    nf_nat nf_tables
    overlay tun veth vxlan wireguard xt_MASQUERADE xt_REDIRECT xt_comment xt_conntrack xt_mark
    xt_set
    """.split()  # noqa: SIM905 - a list of thirty lines is no easier to read
)
#: Some of the options that NVIDIA's module has, as it shows them without their prefix NVreg_. Real
#: ones modify device files unless told not to, and the container toolkit's hook then covers this
#: file in each container: a container here has the machine's /proc, and no such file.
PARAMETERS = {
    "DeviceFileMode": "438",
    "EnableGpuFirmware": "18",
    "ModifyDeviceFiles": "0",
    "PreserveVideoMemoryAllocations": "0",
}
MAJOR, UVM_MAJOR, CONTROL_MINOR, MODESET_MINOR = 195, 510, 255, 254


def normal(name):
    """A module's own name: Debian's nvidia-current-uvm is nvidia_uvm once it is loaded."""
    name = name.replace("-", "_")
    if name.startswith("nvidia"):
        variant = next((w for w in ("current_open", "current", "tesla", "open") if w in name), None)
        last = name.rsplit("_", 1)[-1]
        if variant or last.isdigit():
            return "nvidia_" + last if "nvidia_" + last in NEEDS else "nvidia"
    return name


def loaded():
    """Loaded modules of the simulation and their versions."""
    return {
        name: paths.read(paths.MODULES + "/" + name).partition("\n")[0]
        for name in paths.names(paths.MODULES)
    }


def built_in(name):
    """Whether the machine's own kernel has it, as far as can be seen."""
    machine = paths.MACHINE + "/module/" + name
    return os.path.isdir(paths.path(machine)) or name in COMMON


def users(name):
    """Loaded modules that need this one, and whether a process holds it: the persistence daemon, or
    one that computes."""
    holders = sorted(other for other in loaded() if name in NEEDS.get(other, ()))
    daemon = name == "nvidia" and os.path.exists(paths.path("/run/nvidia-persistenced/socket"))
    planted = (paths.read(paths.PLANTED) or "").splitlines()
    computes = name in ("nvidia", "nvidia_uvm") and any(p.startswith("process ") for p in planted)
    return holders, daemon or computes


def insert(requested, parameters=()):
    """Load one module that is there, dependencies aside; the kernel's complaint, or None.

    Of several installed drivers, the requested name (``nvidia-current-open``) says which.
    ``parameters`` are its options, as ``NVreg_EnableGpuFirmware=0``.
    """
    with paths.locked():
        return _insert(normal(requested), requested, parameters)


def _insert(name, requested, parameters):
    if name in loaded() or (name in COMMON and os.path.isdir(paths.path("/sys/module/" + name))):
        return None
    version, flavour = "", ""
    if name in NEEDS:
        found = driver.installed(requested)
        version, flavour = found.version, "open" if found.is_open else "proprietary"
        if name == "nvidia" and not cards.plugged():
            return "No such device"
        if name == "nvidia_peermem":
            return "Invalid argument"  # there is no InfiniBand for it to work with
        if any(loaded().get(needed) != version for needed in NEEDS[name]):
            return "Invalid argument"  # symbols of another version
    paths.write(paths.MODULES + "/" + name, f"{version}\n{flavour}\n{' '.join(parameters)}\n")
    show()
    return None


def remove(name):
    """Unload one module that nothing uses."""
    with paths.locked():
        os.unlink(paths.path(paths.MODULES + "/" + name))
        show()


def show():
    """Make everything that depends on the loaded modules and plugged cards say so."""
    now = loaded()
    _show_modules(now)
    _show_cards(now)
    _show_nodes(now)
    libraries.refresh()


def _show_modules(now):
    folder = paths.SHOWN + "/module"
    for name in paths.names(folder):
        entry = paths.path(folder + "/" + name)
        if not os.path.islink(entry) and name not in now:
            shutil.rmtree(entry)
    lines = []
    for name, version in now.items():
        holders, held = users(name)
        size, count = SIZES.get(name, 65536), len(holders) + held
        lines.append(
            "{} {} {} {} Live 0x0000000000000000\n".format(
                name, size, count, "".join(h + "," for h in holders) or "-"
            )
        )
        if os.path.islink(paths.path(folder + "/" + name)):
            continue
        paths.write(f"{folder}/{name}/refcnt", f"{count}\n")
        paths.write(f"{folder}/{name}/initstate", "live\n")
        if version:
            paths.write(f"{folder}/{name}/version", version + "\n")
    paths.write(
        paths.SHOWN + "/modules", "".join(lines) + (paths.read(paths.MACHINE + "/modules") or "")
    )
    for name in ("nvidia", "nvidia-caps"):
        shutil.rmtree(paths.path(paths.SHOWN + "/driver/" + name), ignore_errors=True)
    if "nvidia" in now:
        paths.write(paths.SHOWN + "/driver/nvidia/version", _version_text(now["nvidia"]))
        paths.write(paths.SHOWN + "/driver/nvidia/params", _parameters_text())
        for card in cards.plugged():
            where = f"{paths.SHOWN}/driver/nvidia/gpus/{card.address}/information"
            lines = (
                f"Model: \t\t {card['name']}",
                f"GPU UUID: \t {card['uuid']}",
                "Bus Type: \t PCIe",
                f"Bus Location: \t {card.address}",
                f"Device Minor: \t {card['minor']}",
            )
            paths.write(where, "".join(line + "\n" for line in lines))


def _parameters_text():
    given = (paths.read(paths.MODULES + "/nvidia") or "").splitlines()[2:]
    pairs = (word.partition("=") for line in given for word in line.split())
    shown = {**PARAMETERS, **{name.replace("NVreg_", "", 1): value for name, _, value in pairs}}
    return "".join(f"{name}: {value}\n" for name, value in shown.items())


def _version_text(version):
    flavour = paths.read(paths.MODULES + "/nvidia").split()[1]
    kernel = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
    # Real drivers end with the compiler's line: the last one here says that there is no silicon.
    return (
        f"NVRM version: NVIDIA UNIX {kernel}  {version}  Release Build\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"
        "Simulated: bedplate\n"
    )


def _show_cards(now):
    from . import sysfs

    sysfs.show(cards.plugged(), "nvidia" if "nvidia" in now else None, now)


def _show_nodes(now):
    wanted = {}
    if "nvidia" in now:
        wanted["nvidiactl"] = (MAJOR, CONTROL_MINOR)
        for card in cards.plugged():
            wanted["nvidia" + card["minor"]] = (MAJOR, int(card["minor"]))
    if "nvidia_uvm" in now:
        wanted.update({"nvidia-uvm": (UVM_MAJOR, 0), "nvidia-uvm-tools": (UVM_MAJOR, 1)})
    if "nvidia_modeset" in now:
        wanted["nvidia-modeset"] = (MAJOR, MODESET_MINOR)
    _make_nodes("/dev", wanted)
    capabilities = mig.show(cards.plugged(), "nvidia" in now)
    if capabilities or paths.names("/dev/nvidia-caps"):
        os.makedirs(paths.path("/dev/nvidia-caps"), exist_ok=True)
        _make_nodes("/dev/nvidia-caps", capabilities)


def _make_nodes(folder, wanted):
    for name in paths.names(folder):
        node = paths.path(f"{folder}/{name}")
        if name.startswith("nvidia") and name not in wanted and not os.path.isdir(node):
            os.unlink(node)
    for name, numbers in wanted.items():
        node = paths.path(f"{folder}/{name}")
        if not os.path.exists(node):
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(*numbers))
            os.chmod(node, 0o666)  # noqa: S103 - as the driver makes them
