#!/usr/bin/python
"""Documentation of the action plugin of the same name; nothing runs on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_unfinished
short_description: Replace a host's evidence while work on it goes on, or after it failed
description:
  - Old evidence would still say that all is well on a host that a run has excluded, could not
    reach, or was killed on. Written before the work, this stays until the verification.
  - Runs on the control side. No host is contacted, and evidence never counts as a change.
extends_documentation_fragment: [bedplate.gpu.common.reads, bedplate.gpu.common.lock_digest]
options:
  name:
    description: The host's name.
    type: str
    required: true
  pool:
    description: The host's pool. Empty for hosts without one.
    type: str
    default: ""
  reason:
    description: Why there is no better evidence.
    type: str
    required: true
  playbook:
    description: What is to be run again once the reason is fixed.
    type: str
    default: bedplate.gpu.site
  evidence_dir:
    description: Folder on the control side that takes the evidence.
    type: str
    required: true
attributes:
  check_mode:
    description: Writes nothing.
"""

EXAMPLES = r"""
- name: Forget old evidence
  bedplate.gpu.evidence_unfinished:
    name: "{{ inventory_hostname }}"
    reason: bedplate.gpu.site has not come to its end
    evidence_dir: "{{ inventory_dir }}/.bedplate/evidence"
"""

RETURN = r""" # """
