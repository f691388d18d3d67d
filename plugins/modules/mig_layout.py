#!/usr/bin/python
"""Divide a host's GPUs by MIG and set their compute mode, changing only what differs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_layout
short_description: Have the GPUs of a host in their MIG layout and compute mode
description:
  - Reads the current layout and changes only GPUs that differ. A MIG device that is destroyed
    takes its workload with it, so a layout is changed only where no process holds a GPU.
  - Instances that a run which was cut off has left without compute instances are made again.
  - GPUs that are set to drive displays cannot be divided; a cluster node with such ones is refused
    before anything is drained for them.
  - The persistence daemon is stopped while a GPU changes its mode, DCGM's service while GPUs are
    divided. Where a run that was killed has left them stopped, the next one starts them.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.change_joined]
options:
  profiles:
    description: What every GPU is cut into, as V(1g.10gb), one entry per instance. Empty divides
      none.
    type: list
    elements: str
    default: []
  layout:
    description: What GPUs are cut into where they differ, in place of O(profiles). A GPU that it
      does not name is not divided.
    type: list
    elements: dict
    default: []
    suboptions:
      cards:
        description: The GPUs, by their numbers on the host.
        type: list
        elements: int
        required: true
      profiles:
        description: "Instances by MIG profile, as C({1g.10gb: 7}). None is a whole GPU."
        type: dict
        default: {}
  compute_mode:
    description: Who may compute on a GPU that is not divided. Empty leaves it to other tools.
    type: str
    choices: ["", default, exclusive-process, prohibited]
    default: ""
attributes:
  check_mode:
    description: Says what would change, or what is against it.
  diff_mode:
    description: Shows each GPU's layout before and after.
"""

EXAMPLES = r"""
- name: Cut every A100 into seven
  bedplate.gpu.mig_layout:
    profiles: "{{ ['1g.10gb'] * 7 }}"

- name: Cut the first into two sizes, and leave the others whole
  bedplate.gpu.mig_layout:
    layout:
      - cards: [0]
        profiles: {3g.40gb: 1, 1g.10gb: 3}
"""

RETURN = r"""
layout:
  description: The layout of each GPU afterwards, in words.
  returned: always
  type: dict
  sample: {GPU 0: 7 x 1g.10gb}
pending:
  description: What waits because the host is a cluster node.
  returned: always
  type: list
  elements: str
reboot_required:
  description: Whether a GPU's mode waits for a reset that only a reboot brings.
  returned: always
  type: bool
reason:
  description: Why a reboot is required.
  returned: always
  type: str
python:
  description: The interpreter that this module ran under.
  returned: always
  type: str
"""

import os
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import mig
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def text(state: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in state.items())


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "profiles": {"type": "list", "elements": "str", "default": []},
            "layout": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "cards": {"type": "list", "elements": "int", "required": True},
                    "profiles": {"type": "dict", "default": {}},
                },
            },
            "compute_mode": {"type": "str", "choices": ["", *mig.COMPUTE_MODES], "default": ""},
            "change_joined": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wish = mig.wish(
        module.params["profiles"], module.params["compute_mode"], module.params["layout"]
    )
    host = Host()
    answer: dict[str, Any] = {"pending": [], "python": sys.executable}
    try:
        if host.joined and not module.params["change_joined"]:
            cards = mig.read(host)
            answer["pending"] = mig.pending(host, cards, wish, os.uname().nodename)
        if answer["pending"]:
            state = {f"GPU {card.number}": mig.described(card) for card in cards}
            outcome = mig.Outcome(False, state, state)
        else:
            outcome = mig.apply(host, wish, os.uname().nodename, module.check_mode)
    except mig.MigError as error:
        # In check mode on a bare host the driver is yet to come.
        if module.check_mode and host.run(["nvidia-smi", "-L"]).code == 127:
            cut = bool(wish.profiles) or any(wish.cards.values())
            outcome = mig.Outcome(cut, {}, {"every GPU": mig.wished_layout(wish)})
        else:
            module.fail_json(msg=str(error), **answer)
    module.exit_json(
        changed=outcome.changed,
        layout=outcome.after,
        reboot_required=bool(outcome.waiting),
        reason=outcome.waiting,
        diff={"before": text(outcome.before), "after": text(outcome.after)},
        **answer,
    )


if __name__ == "__main__":
    main()
