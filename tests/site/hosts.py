"""What the end-to-end tests look at on a host: its whole state, for comparison with another's."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

# Everything that an installation may leave: packages with their holds, unit states, and each file
# and link under the folders that the roles write to. What names the host itself is left out; the
# cards' identities in the CDI specification are made equal. An archive's own mark (.bedplate.json)
# notes when its files were unpacked; the files themselves are compared.
# Whether the simulated modprobe is there when systemd asks for fuse, as a host starts, is chance.
SNAPSHOT = r"""
set -e
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
echo == holds; apt-mark showhold
echo == units
systemctl list-unit-files --state=enabled,masked --no-legend | awk '{print $1, $2}'
echo == active
systemctl list-units --type=service --state=active,failed --no-legend --plain |
  awk '{print $1, $3}'
echo == modules; lsmod | cut -d' ' -f1 | grep -vx fuse | sort
echo == files
find /etc /opt /usr/local/bin \( -type f -o -type l \) \
  ! -path '/etc/ssh/*' ! -name machine-id ! -path '/etc/hostname' ! -path '/etc/hosts' \
  ! -path '/etc/resolv.conf' ! -name 'ld.so.cache' ! -path '/etc/.pwd.lock' ! -name '*-' \
  ! -path '/etc/cdi/nvidia.yaml' ! -name .bedplate.json ! -name 10-kubeadm.conf \
  -printf '%p %y %m %l ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) |
  sed 's/ \/.*$//' | sort
echo == kubelet
cat /etc/systemd/system/kubelet.service.d/10-kubeadm.conf 2>&1 | sed -E 's/ip=[0-9.]+/ip=IP/'
echo == cdi; sed -E 's/GPU-[0-9a-f-]{36}/UUID/g' /etc/cdi/nvidia.yaml | sort
"""


#: What NVIDIA's toolkit packages bring from 1.18 on: a specification of their own, written at boot
#: and when a module changes.
PACKAGE_UNITS = """
cat > /usr/lib/systemd/system/nvidia-cdi-refresh.service <<'END'
[Unit]
ConditionPathExists=|/usr/bin/nvidia-smi
[Service]
Type=oneshot
ExecStart=/usr/local/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
[Install]
WantedBy=multi-user.target
END
cat > /usr/lib/systemd/system/nvidia-cdi-refresh.path <<'END'
[Path]
PathChanged=/etc/ld.so.cache
[Install]
WantedBy=multi-user.target
END
systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service
"""


def package_specification(site: SiteCommands, host: str) -> bool:
    """Tell whether a host has the specification of NVIDIA's packages."""
    return "there" in on_host(site, host, "test ! -e /run/cdi/nvidia.yaml || echo there")


def boot_id(site: SiteCommands, host: str) -> str:
    """Return the id of a host's present boot."""
    return on_host(site, host, "cat /proc/sys/kernel/random/boot_id").strip()


def on_host(site: SiteCommands, host: str, script: str) -> str:
    """Run a script on a host over SSH with the run's key and known host keys; return its output.

    Raises:
        subprocess.CalledProcessError: the script failed.
    """
    keys = site.site / ".bedplate" / "ssh"
    address = yaml.safe_load(site.description.read_text())["hosts"][host]["address"]
    done = subprocess.run(
        ["ssh", "-i", keys / "id_ed25519", "-o", f"UserKnownHostsFile={keys / 'known_hosts'}",
         "-o", "ConnectTimeout=10", f"root@{address}", "bash -s"],
        input=script, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, f"on {host}", done.stdout, done.stderr)
    return done.stdout


def snapshot(site: SiteCommands, host: str) -> list[str]:
    """Return the state of a host as comparable lines, the host's own name written as HOST."""
    text = on_host(site, host, SNAPSHOT)
    return re.sub(rf"\b{host}\b", "HOST", text).splitlines()
