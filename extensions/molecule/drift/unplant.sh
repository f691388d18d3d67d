#!/bin/sh
# Takes away what is somebody else's, and what site.yml therefore never would.
set -eu
rm /usr/local/bin/ctr /usr/local/bin/nvidia-ctk /usr/local/bin/kubelet
rm /usr/bin/unattended-upgrade /etc/apt/apt.conf.d/20auto-upgrades
rm /var/run/cdi/somebody.yaml
systemctl -q mask --now apt-daily-upgrade.timer
