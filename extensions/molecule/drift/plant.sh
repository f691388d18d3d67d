#!/bin/sh
# Plants one fault of each kind that a real host can have; each is named by the check that is to find it.
set -eu

# A program that answers one question as another version would, and passes every other question on.
other_version() { # PROGRAM QUESTION ANSWER
    real=$(readlink -f "/usr/local/bin/$1")
    rm "/usr/local/bin/$1"
    printf '#!/bin/sh\nif [ "$*" = "%s" ]; then echo "%s"; else exec "%s" "$@"; fi\n' "$2" "$3" "$real" > "/usr/local/bin/$1"
    chmod 0755 "/usr/local/bin/$1"
}

# kernel.sysctls, baseline.settings
sysctl -q -w net.ipv4.ip_forward=0
# driver.packages: what dpkg says is all that apt and we go by
sed -i '/^Package: nvidia-modprobe$/,/^$/s/^Version: .*/Version: 1.0/' /var/lib/dpkg/status
# driver.held
apt-mark unhold nvidia-smi > /dev/null
# driver.kernel: containers share the machine's kernel, so it is the record that moves
sed -i 's/"kernel": "[^"]*"/"kernel": "6.1.0-1-amd64"/' /etc/bedplate/driver.json
# driver.persistence
systemctl stop nvidia-persistenced
# runtime.version
other_version ctr version 'Server: Version: v2.4.1'
# runtime.configuration
echo '# somebody was here' >> /etc/containerd/conf.d/50-bedplate.toml
# toolkit.version
other_version nvidia-ctk --version 'NVIDIA Container Toolkit CLI version 1.0.0'
# cdi.current
sed -i 's/535\.[0-9.]*[0-9]/470.256.02/' /etc/cdi/nvidia.yaml
# devices.links
rm /dev/char/195:255
# cdi.package_file: as NVIDIA's packages bring it
printf '[Service]\nType=oneshot\nExecStart=/usr/local/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml\n' \
    > /etc/systemd/system/nvidia-cdi-refresh.service
mkdir -p /var/run/cdi
cp /etc/cdi/nvidia.yaml /var/run/cdi/nvidia.yaml
# cdi.other_files: of a device of its own, because of two files of one folder that name the same, neither counts
cat > /var/run/cdi/somebody.yaml << 'END'
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices: [{name: somebody, containerEdits: {env: [SOMEBODY=here]}}]
END
# kubelet.version
other_version kubelet --version 'Kubernetes v1.35.0'
# owned.nvidia_device_plugin
echo '# somebody was here' >> /etc/bedplate/device-plugin.yaml
# owned.kubernetes_node
chmod 0600 /etc/crictl.yaml
# owned.programs
echo >> "$(readlink -f /opt/cni/bin/bridge)"
# updates.unattended: as the package would bring it
install -m 0755 /bin/true /usr/bin/unattended-upgrade
echo 'APT::Periodic::Unattended-Upgrade "1";' > /etc/apt/apt.conf.d/20auto-upgrades
systemctl -q unmask apt-daily-upgrade.timer
systemctl -q enable apt-daily-upgrade.timer
