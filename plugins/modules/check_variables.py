#!/usr/bin/python
"""Documentation of the action plugin of the same name; nothing runs on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Refuse inventory variables of roles that would be ignored or are wrong
description:
  - An inventory variable that the lock decides would be ignored without a word, as would a misspelt
    role variable. Both are refused, with the setting or the name to use instead, and so is a value
    of a type that the role does not take. C(bedplate plan) refuses the same.
  - One task checks all hosts of the play, on the control side. No host is contacted.
extends_documentation_fragment: [bedplate.gpu.common.reads]
"""

EXAMPLES = r"""
- name: Refuse variables that would be ignored
  bedplate.gpu.check_variables:
  run_once: true
"""

RETURN = r""" # """
