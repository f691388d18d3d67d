#!/bin/sh
# Prints what a host has beyond the bare host of /run/tests-bare-*. What a package brings belongs to it, and
# alternatives are the packages' own too.
set -eu
find /etc /opt /usr/local /var/lib/bedplate 2> /dev/null > /run/tests-files || true
grep -vxFf /run/tests-bare-files /run/tests-files | sort | while read -r path; do
    case $path in /etc/alternatives/*) continue ;; esac
    dpkg-query --search "$path" > /dev/null 2>&1 || echo "$path"
done
dpkg-query --show --showformat '${binary:Package}\n' > /run/tests-packages
grep -vxFf /run/tests-bare-packages /run/tests-packages | grep -E 'nvidia|cuda|dkms' || true
