"""Everything about a host that a driver's change may touch, to be compared as a whole."""

from __future__ import annotations

from tests.substrate.hosts import containers

#: What changes by itself, or is only a copy of what is compared anyway.
VOLATILE = (
    "/etc/ld.so.cache",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/passwd-",
    "/etc/shadow-",
    "/etc/subgid-",
    "/etc/subuid-",
    "/etc/.pwd.lock",
    "/etc/.updated",
    "/etc/mtab",
    "/etc/hosts",
)
COMMANDS = {
    "packages": "dpkg-query --show --showformat='${binary:Package} ${Version} ${db:Status-Want}"
    " ${db:Status-Status}\\n'",
    "audit": "dpkg --audit",
    "journal": "ls /var/lib/dpkg/updates",
    "holds": "apt-mark showhold",
    "automatic": "apt-mark showauto",
    "alternatives": "update-alternatives --get-selections",
    # systemd loads fuse by itself, and a boot what belongs to a display: a host that lost its power
    # has them, one that did not has not.
    "modules": "lsmod | cut -d' ' -f1 | grep -Ev '^(fuse|nvidia_drm|nvidia_modeset)$' | sort",
    "loaded": "cat /proc/driver/nvidia/version",
    "nodes": "ls /dev | grep nvidia | grep -v modeset",
    "units": "systemctl list-unit-files --no-legend 'nvidia*' 'systemd-modules-load*'",
    "active": "systemctl is-active nvidia-persistenced.service",
    "failed": "systemctl list-units --failed --no-legend",
    "gpus": "nvidia-smi --query-gpu=index,uuid,driver_version,persistence_mode --format=csv",
    "dkms": "ls /var/lib/dkms /var/lib/dkms/*",
    # mtimes and the order of a folder are no state: names, kinds, modes and contents are.
    "files": "find /etc /usr/src /usr/lib/modprobe.d /var/lib/bedplate /lib/modules"
    " \\( -type f -o -type l \\) -printf '%p %y %m %l\\n' | sort",
    "contents": "find /etc /usr/src /var/lib/bedplate /lib/modules -type f -print0"
    " | sort -z | xargs -0 sha256sum",
}


def read(container: str) -> dict[str, list[str]]:
    """Read the state of a host, as lines by what they are about."""
    found = {}
    for name, command in COMMANDS.items():
        text = containers.execute(
            container, "sh", "-c", f"LC_ALL=C; export LC_ALL; {command} 2>&1 || true"
        )
        found[name] = [line for line in text.splitlines() if not _volatile(line)]
    return found


def _volatile(line: str) -> bool:
    return any(path in line.split() for path in VOLATILE)


def difference(expected: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    """Say what differs, a line each; empty where nothing does."""
    lines = []
    for name in expected:
        lines += [f"{name}: missing {one}" for one in expected[name] if one not in found[name]]
        lines += [f"{name}: unexpected {one}" for one in found[name] if one not in expected[name]]
    return lines
