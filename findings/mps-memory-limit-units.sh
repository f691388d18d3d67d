#!/usr/bin/env bash
# NVIDIA's MPS control daemon reads a memory limit in its own units and reports another number.
#
# Seen 2026-11-27 with nvidia-cuda-mps 535.261.03 of Debian 12 (non-free), which needs no GPU for it:
#   - a limit of 1024 MiB or more is reported in whole GiB, rounded down: 5461M reads back as 5G;
#   - the suffix K is taken for M (1000K is 1000M), and a number without a suffix is MiB, not bytes;
#   - "1.5G" is 1M, with no error;
#   - a percentage of threads over 100 is refused without a word: status 0, and the old value stays.
# So a limit can't be compared with what is read back, and the exit status says nothing.
# The manual names only the form "<dev id> <mem limit>": https://docs.nvidia.com/deploy/mps/
set -euo pipefail
folder=$(mktemp -d)
control=
finish() {
  if [ -n "$control" ]; then echo quit | "$control" >/dev/null 2>&1 || true; fi
  rm -rf "$folder"
}
trap finish EXIT
cd "$folder"
mkdir -p state/lists/partial cache/archives/partial root pipe log

# The machine's own mirror of Debian, with the component that has NVIDIA's packages.
mirror=$(apt-get indextargets --format '$(SITE)' 'Codename: bookworm' | head -n 1)
[ -n "$mirror" ] || { echo "apt knows no mirror of bookworm: run apt-get update, on Debian 12" >&2; exit 2; }
cat >debian.sources <<SOURCES
Types: deb
URIs: $mirror
Suites: bookworm
Components: non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
apt=(apt-get -q=2 -o "Dir::Etc::SourceList=$folder/debian.sources" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State=$folder/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$folder/cache"
  -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" download nvidia-cuda-mps=535.261.03-1
dpkg-deb --extract nvidia-cuda-mps_*.deb root

export CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log
control=$folder/root/usr/bin/nvidia-cuda-mps-control
"$control" -d
ask() { echo "$*" | "$control"; }
for _ in $(seq 100); do
  if ask get_default_active_thread_percentage >/dev/null 2>&1; then break; fi
  sleep 0.1
done

wrong=0
expect() { # SET GET EXPECTED
  ask "$1" >/dev/null || { echo "status not 0: $1"; wrong=1; }
  local got
  got=$(ask "$2")
  printf '%-50s %s\n' "$1" "$got"
  if [ "$got" != "$3" ]; then
    echo "  changed: expected $3"
    wrong=1
  fi
}
memory=set_default_device_pinned_mem_limit read="get_default_device_pinned_mem_limit 0"
expect "$memory 0 320M" "$read" 320M
expect "$memory 0 5461M" "$read" 5G
expect "$memory 0 2047M" "$read" 1G
expect "$memory 0 1000K" "$read" 1000M
expect "$memory 0 5000000" "$read" 4882G
expect "$memory 0 1.5G" "$read" 1M
expect "set_default_active_thread_percentage 33" get_default_active_thread_percentage 33.0
expect "set_default_active_thread_percentage 101" get_default_active_thread_percentage 33.0
exit "$wrong"
