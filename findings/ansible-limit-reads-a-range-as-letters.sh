#!/usr/bin/env bash
# A range that an inventory understands means other hosts in --limit, and nothing is said.
#
# Seen 2026-11-28 with ansible-core 2.19.4. An inventory's `gpu[1:6].example` is six hosts. In a
# pattern the brackets are a set of characters, as in a shell: `gpu[2:5].example` is gpu2, gpu5 and a
# host "gpu:", never gpu3 and gpu4. The run goes over half of the nodes and ends with status 0.
# https://docs.ansible.com/ansible/latest/inventory_guide/intro_patterns.html
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export ANSIBLE_HOME=$folder/home ANSIBLE_LOCALHOST_WARNING=false

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ansible-core==2.19.4
printf 'gpus:\n  hosts:\n    gpu[1:6].example:\n' >hosts.yml

wrong=0
expect() { # PATTERN EXPECTED
  local got status=0
  got=$(venv/bin/ansible all --inventory hosts.yml --limit "$1" --list-hosts 2>errors.txt) || status=$?
  got="$status: $(sed -n 's/^    //p' <<<"$got" | paste -sd ' ')"
  printf '%-45s %s\n' "$1" "$got"
  if [ "$got" != "$2" ]; then
    echo "  changed: expected $2"
    wrong=1
  fi
}
expect "gpus" "0: gpu1.example gpu2.example gpu3.example gpu4.example gpu5.example gpu6.example"
expect "gpu[2:5].example" "0: gpu2.example gpu5.example"
expect "gpu[2-5].example" "0: gpu2.example gpu3.example gpu4.example gpu5.example"
expect "gpus[1:4]" "0: gpu2.example gpu3.example gpu4.example gpu5.example"
exit "$wrong"
