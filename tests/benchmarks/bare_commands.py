"""The same GPU host by bare commands, as an administrator would type them: the yardstick.

The configuration files are at hand (taken from a host that the playbook has made); packages,
archives and the image come from where the playbook takes them, in the same versions.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from bedplate.components.locked_site import locked_site
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

PROGRAMS = {
    "containerd": ("", "bin/", ["containerd", "containerd-shim-runc-v2", "ctr"]),
    "nvidia-container-toolkit-base": (
        "",
        "usr/bin/",
        ["nvidia-ctk", "nvidia-container-runtime", "nvidia-cdi-hook"],
    ),
    "nvidia-container-toolkit": ("", "usr/bin/", ["nvidia-container-runtime-hook"]),
    "kubernetes-node": ("--strip-components=3", "", ["kubelet", "kubeadm", "kubectl"]),
    "cri-tools": ("", "", ["crictl"]),
}  # fmt: skip
RUNTIME_PACKAGES = "runc iptables conntrack ebtables ethtool socat"
FILES = """
/etc/apt/sources.list /etc/apt/sources.list.d /etc/modules-load.d /etc/modprobe.d /etc/sysctl.d
/etc/containerd /etc/crictl.yaml /etc/systemd/system/containerd.service
/etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d
/etc/bedplate /usr/local/libexec/bedplate
"""
#: What must be equal in the end for the yardstick to be one.
STATE = """
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'
apt-mark showhold
dkms status
systemctl is-enabled containerd kubelet nvidia-persistenced
systemctl is-active containerd nvidia-persistenced
readlink /usr/local/bin/* | xargs -n1 basename | sort
ls /opt/cni/bin
nvidia-smi -L | wc -l
"""


def configuration(site: SiteCommands, host: str) -> str:
    """Pack the configuration files of a finished host, as text."""
    there = "".join(f"ls -d {path} 2>/dev/null;" for path in FILES.split())
    return on_host(site, host, f"tar -czf - $({there}) 2>/dev/null | base64 -w0")


def script(site: SiteCommands, files: str) -> str:
    """Return the commands that make a host what the playbook makes it."""
    lock = locked_site(site.site)
    (pool,) = lock["pools"].values()
    driver: dict[str, str] = pool["nvidia_driver"]["packages"]
    exact = " ".join(f"{name}={version}" for name, version in sorted(driver.items()))
    lines = [
        "set -e; export DEBIAN_FRONTEND=noninteractive; cd /tmp",
        f"echo {files} | base64 -d | tar -xzf - -C /",
        "apt-get -q update",
        f"apt-get -q -y --no-install-recommends install {exact} {RUNTIME_PACKAGES}",
        f"apt-mark hold {' '.join(sorted(driver))}",
        "systemctl daemon-reload",
        "for m in overlay br_netfilter nvidia nvidia_uvm; do modprobe $m || true; done",
        "sysctl -q -p /etc/sysctl.d/99-zz-bedplate-host.conf",
        "systemctl enable --now nvidia-persistenced",
    ]
    for name in [*PROGRAMS, "cni-plugins"]:
        lines += archive(name, lock["artifacts"][name])
    image = lock["cluster"]["nvidia_device_plugin"]["image"]
    lines += [
        "systemctl enable --now containerd",
        "mkdir -p /etc/cdi; nvidia-ctk --quiet cdi generate --output=/etc/cdi/nvidia.yaml",
        "systemctl enable kubelet",
        f"crictl pull {image}",
    ]
    return "\n".join(lines)


def archive(name: str, source: dict[str, Any]) -> list[str]:
    """Return the commands that fetch, check, unpack and link a release archive."""
    strip, inside, programs = PROGRAMS.get(name, ("", "", []))
    folder = f"/opt/by-hand/{name}/{source['version']}"
    fetch, packed = "/usr/lib/apt/apt-helper download-file", "/tmp/archive"
    unpack = f"tar -xf {packed} {strip} -C {folder}"
    if source["url"].endswith(".deb"):
        unpack = f"dpkg-deb --extract {packed} {folder}"
    lines = [
        f"{fetch} {source['url']} {packed} SHA256:{source['sha256']}",
        f"mkdir -p {folder}; {unpack}; rm {packed}",
    ]
    lines += [
        f"ln -sfn {folder}/{inside}{program} /usr/local/bin/{program}" for program in programs
    ]
    if not programs:
        lines.append(f"mkdir -p /opt/cni/bin; ln -sfn {folder}/* /opt/cni/bin/")
    return lines


def make_host(site: SiteCommands, host: str, files: str) -> None:
    """Run the commands over one SSH session.

    Raises:
        AssertionError: one of them failed; says what it printed.
    """
    try:
        on_host(site, host, script(site, files))
    except subprocess.CalledProcessError as error:
        raise AssertionError(f"{error.stdout}\n{error.stderr}") from None


def differences(site: SiteCommands, one: str, other: str) -> list[str]:
    """Say in what the state of two hosts differs: nothing, if the yardstick is one."""
    first, second = (on_host(site, host, STATE).splitlines() for host in (one, other))
    return sorted({f"{one}: {x}" for x in first if x not in second}
                  | {f"{other}: {x}" for x in second if x not in first})  # fmt: skip
