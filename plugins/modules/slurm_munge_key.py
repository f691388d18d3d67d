#!/usr/bin/python
"""Ansible module: the key by which the hosts of a Slurm cluster know each other."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_munge_key
short_description: Keep munge's key and run munge with it
description:
  - Puts the key in place with mode 0400 for munge's user, and restarts munge where it still runs
    with another one, also after a run that was ended in between.
  - The key appears neither in the log nor in the diff nor in what the module returns.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  key:
    description: The key in Base64. Without it, the key that munge's package made stays.
    type: str
attributes:
  check_mode:
    description: Says whether the key or the service would change.
  diff_mode:
    description: Says that the key differs, never what it is.
"""

EXAMPLES = r"""
- name: Give the node the cluster's key
  bedplate.gpu.slurm_munge_key:
    key: "{{ vault_munge_key }}"
"""

RETURN = r"""
present:
  description: Whether the host has a key now. Only in check mode it may have none.
  returned: success
  type: bool
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import services
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.slurm import (
    munge as slurm_munge,
)

UNIT = "munge.service"


def wished_key(module: AnsibleModule) -> bytes:
    """The wished key's bytes, empty where none is wished."""
    try:
        return slurm_munge.decoded(module.params["key"] or "")
    except ValueError as error:
        refuse(
            module,
            "munge's key cannot be used",
            str(error),
            "the Base64 of 32 to 1024 random bytes",
            "Make one with 'head --bytes=128 /dev/urandom | base64 --wrap=0', and keep it in a"
            " vault.",
        )
        raise


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"key": {"type": "str", "no_log": True}}, supports_check_mode=True
    )
    host, key = Host(), wished_key(module)
    have = slurm_munge.present(host)
    if not have and not key and not module.check_mode:
        refuse(
            module,
            "there is no munge key",
            f"no {slurm_munge.PATH}",
            "the key that munge's package makes, or the one in slurm_munge_key",
            "Run 'mungekey --create' on this host as user munge, or set slurm_munge_key.",
        )
    wished = key or have
    differs, loose = wished != have, not slurm_munge.well_kept(host)
    if (differs or loose) and not module.check_mode:
        slurm_munge.put(host, wished)
    now = services.state(host, UNIT)
    down = not services.running(now) or now.get("UnitFileState") != "enabled"
    stale = services.older_than(host, now, [slurm_munge.PATH])
    if (down or stale) and not module.check_mode:
        host.run(["systemctl", "enable", UNIT])
        host.run(["systemctl", "restart", UNIT], timeout=120)
        if not services.running(services.settled(host, UNIT, 30)):
            refuse(
                module,
                "munge does not run",
                services.last_words(host, UNIT),
                "an active munge.service",
                "See 'systemctl status munge' on the host.",
            )
    lines = {"the key differs": differs, "owner or mode differ": loose and not differs}
    lines["the service runs without it"] = down or stale or differs or loose
    told = [line for line, true in lines.items() if true]
    module.exit_json(
        changed=bool(told),
        present=bool(have if module.check_mode else wished),
        diff={"before": "".join(f"{line}\n" for line in told), "after": ""},
    )


if __name__ == "__main__":
    main()
