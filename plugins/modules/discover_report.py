#!/usr/bin/python
"""Documentation of the action plugin of the same name; nothing runs on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: discover_report
short_description: Propose pools for what was read, and compare it with settings and lock
description:
  - Judges what M(bedplate.gpu.discover) read of all hosts at once, and writes it to
    C(SITE/.bedplate/discovered/), one JSON file per host below C(hosts/) and one YAML file per
    proposed pool below C(pools/). Ansible reads no inventory there.
  - What an earlier run read of hosts that this one leaves out still counts for the proposals.
  - Runs on the control side. No host is contacted, and check mode writes nothing.
extends_documentation_fragment: [bedplate.gpu.common.reads]
options:
  site:
    description: The site's directory.
    type: path
    required: true
  answers:
    description: By host, what M(bedplate.gpu.discover) returned.
    type: dict
    required: true
  inventory:
    description: All hosts of the inventory. What was read of others is removed.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    description: It writes nothing then.
"""

EXAMPLES = r"""
- name: Propose pools
  bedplate.gpu.discover_report:
    site: "{{ inventory_dir }}"
    answers: {gpu-a: "{{ __bedplate_discovered }}"}
    inventory: "{{ groups.all }}"
  run_once: true
"""

RETURN = r"""
lines:
  description: The report, for people.
  returned: always
  type: list
  elements: str
problems:
  description: By host, what differs from the site, or why the host could not be read.
  returned: always
  type: dict
proposals:
  description: By name of the proposed pool, its hosts and variables.
  returned: always
  type: dict
"""
