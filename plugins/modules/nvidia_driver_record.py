#!/usr/bin/python
"""Keep the record of the drivers that worked on a host, and say where a rollback goes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_record
short_description: Keep the record of the drivers that worked on a host
description:
  - The record in C(/etc/bedplate/driver.json) names the last good driver, the one before it, the
    one that a change is about to bring, and one that was given up.
  - M(bedplate.gpu.nvidia_driver_module) records a driver that was seen to work.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  state:
    description:
      - V(changing) writes down that a change to O(driver) begins, so that a run that is killed in
        the middle still knows whose packages these are.
      - V(failed) returns whether the host must roll back because the change to O(driver) failed.
      - V(rollback) returns where a rollback goes that the user asks for.
      - V(given_up) writes down that O(driver) was rolled back, and why.
    type: str
    choices: [changing, failed, rollback, given_up]
    required: true
  driver:
    description: The driver, as C(version), C(flavour), C(source) and C(packages).
    type: dict
    default: {}
  reason:
    description: Why O(driver) was given up.
    type: str
    default: ""
attributes:
  check_mode:
    description: Writes nothing.
  diff_mode:
    description: Shows the record before and after.
"""

EXAMPLES = r"""
- name: See where a rollback goes
  bedplate.gpu.nvidia_driver_record:
    state: rollback
"""

RETURN = r"""
needed:
  description: Whether the host must be changed to be back at RV(target).
  returned: always
  type: bool
target:
  description: The driver to roll back to. Empty where none worked before.
  returned: always
  type: dict
target_name:
  description: RV(target), as V(535.309.01 (proprietary\)), or V(no driver).
  returned: always
  type: str
present:
  description: The driver that the rollback takes away.
  returned: always
  type: dict
present_name:
  description: RV(present), as RV(target_name).
  returned: always
  type: str
unfinished:
  description: Whether a change was begun and its driver has not been seen to work.
  returned: always
  type: bool
remove:
  description: Packages that go with it.
  returned: always
  type: list
  elements: str
joined:
  description: Whether the host is a cluster node.
  returned: always
  type: bool
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    record as driver_record,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver import (
    rollback as driver_rollback,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.driver.record import Driver
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def given(wish: dict[str, Any]) -> Driver:
    version, flavour, source = (str(wish.get(key, "")) for key in ("version", "flavour", "source"))
    kernel, packages = os.uname().release, dict(wish.get("packages") or {})
    return Driver(version, flavour, source, kernel, packages)


def shown(driver: Driver | None) -> dict[str, Any]:
    return {**driver._asdict(), "packages": dict(driver.packages)} if driver else {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["changing", "failed", "rollback", "given_up"],
                "required": True,
            },
            "driver": {"type": "dict", "default": {}},
            "reason": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    host, state, driver = Host(), module.params["state"], given(module.params["driver"])
    old = host.read(driver_record.PATH) or ""
    record = driver_record.read_or_refuse(module, host)
    if state == "rollback":
        plan = driver_rollback.asked_for(host, record)
    else:
        plan = driver_rollback.after_failure(host, record, driver)
    present = driver_rollback.present(record)
    if state == "rollback" and plan.target is not None:
        record = record._replace(back=True)
    elif state == "changing":
        record = driver_record.begun(record, driver)
    elif state == "given_up":
        record = driver_record.gave_up(record, driver, module.params["reason"])
    elif state == "failed" and not plan.needed and plan.target is not None:
        record = record._replace(changing=None)  # it failed before it changed anything
    # A host that was never changed has no record, and reading it makes none.
    new = driver_record.render(record) if record != driver_record.Record() else old
    if record == driver_record.parse(old):
        new = old
    if new != old and not module.check_mode:
        host.write(driver_record.PATH, new)
    module.exit_json(
        changed=new != old,
        needed=plan.needed,
        target=shown(plan.target),
        target_name=plan.target.name if plan.target else "no driver",
        present=shown(present),
        present_name=present.name if present else "no driver",
        unfinished=record.changing is not None,
        remove=plan.remove,
        joined=host.joined,
        diff=Change(driver_record.PATH, old, new).diff,
    )


if __name__ == "__main__":
    main()
