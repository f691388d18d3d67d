#!/usr/bin/env bash
# A host whose being unreachable is ignored ends the play all the same, if the task has run_once.
#
# Seen 2026-11-30 with ansible-core 2.19.14 and 2.21.5. A task asks one of two control planes and ignores
# that it cannot be reached. Of a task that each host of the play runs that is all: the play goes on. With
# run_once no host gets any further task. "...ignoring" is printed, the recap counts nothing failed or
# unreachable and leaves out the hosts that did not run the task, and only the status, 2, says that the
# rest of the play never ran. With ignore_errors as well, which says nothing of unreachable hosts, it goes on.
# https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_error_handling.html
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export ANSIBLE_HOME=$folder/home ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_SSH_RETRIES=0 NO_COLOR=1

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ansible-core==2.19.14

# Nobody listens at port 1.
cat >hosts.yml <<EOF
all:
  vars: {ansible_python_interpreter: "$folder/venv/bin/python"}
  children:
    nodes: {hosts: {one: {ansible_connection: local}, two: {ansible_connection: local}}}
    planes: {hosts: {off: {ansible_host: 127.0.0.1, ansible_port: 1}}}
EOF
play() { # RUN_ONCE IGNORE_ERRORS
  cat >play.yml <<EOF
- hosts: nodes
  gather_facts: false
  tasks:
    - ansible.builtin.command: "true"
      delegate_to: "off"
      run_once: $1
      ignore_unreachable: true
      ignore_errors: $2
      changed_when: false
    - ansible.builtin.debug: {msg: went on}
EOF
}

wrong=0
expect() { # RUN_ONCE IGNORE_ERRORS EXPECTED
  local got status=0
  play "$1" "$2"
  venv/bin/ansible-playbook --inventory hosts.yml play.yml >output.txt 2>&1 || status=$?
  got="status $status, $(grep -c 'msg: went on\|"msg": "went on"' output.txt || true) of 2 hosts went on,"
  got="$got $(grep -c 'unreachable=0 *failed=0' output.txt || true) in the recap, none failed"
  printf 'run_once: %-6s ignore_errors: %-6s %s\n' "$1" "$2" "$got"
  if [ "$got" != "$3" ]; then
    echo "  changed: expected $3"
    wrong=1
  fi
}
all="status 0, 2 of 2 hosts went on, 2 in the recap, none failed"
expect "false" "false" "$all"
expect "true" "false" "status 2, 0 of 2 hosts went on, 1 in the recap, none failed"
expect "true" "true" "$all"
exit "$wrong"
