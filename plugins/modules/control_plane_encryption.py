#!/usr/bin/python
"""The keys by which a control plane's API server encrypts Secrets: read them, and replace one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_encryption
short_description: Replace the key by which Secrets are encrypted in etcd
description:
  - A key is replaced in steps, each on all control planes before the next. By V(known) an API
    server learns to read with all keys, by V(first) it writes with the newest. By V(secrets), on
    one control plane, every Secret in etcd that another key has encrypted, or none, is written
    again. By V(alone) an API server has the newest key alone, where etcd has no Secret that another
    key has encrypted.
  - The API server is restarted where it was started before its file was written, and has to be
    ready again. One without encryption gets the option for it, and kubeadm's configuration too.
  - Keys appear neither in the diff nor in the log. What V(read) returns holds them, so that task
    needs C(no_log). By V(check) the same is asked, and refused, without the keys.
  - Refused where the cluster has a control plane that is not among O(control_planes), where the API
    server has keys that Bedplate has not written, and where another run has brought one meanwhile.
  - A host without an API server is left alone.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  step:
    description: What is to be done.
    type: str
    choices: [check, read, known, first, secrets, alone]
    default: check
  files:
    description: The files of all control planes, as V(read) returned them.
    type: list
    elements: str
    default: []
  secret:
    description: A new key, as V(read) returned it. Without it none is added.
    type: str
    default: ""
  control_planes:
    description: All control planes that take part, by the names of their nodes.
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds for the API server to be ready again.
    type: int
    default: 300
attributes:
  check_mode:
    description: Says what would be changed; V(secrets) counts what would be written again.
  diff_mode:
    description: Shows the names of the keys, never the keys.
"""

EXAMPLES = r"""
- name: Read the keys
  bedplate.gpu.control_plane_encryption:
    step: read
    control_planes: "{{ groups.control_plane }}"
  register: found
  no_log: true

- name: Have the API server read with each key
  bedplate.gpu.control_plane_encryption:
    step: known
    control_planes: "{{ groups.control_plane }}"
    files: "{{ groups.control_plane | map('extract', hostvars, 'found') | map(attribute='file') }}"
    secret: "{{ found.secret }}"
"""

RETURN = r"""
there:
  description: Whether the host has an API server.
  returned: success
  type: bool
keys:
  description: The names of the keys that the file has now, or would have. The first is the one that
    Secrets are encrypted with; an empty name stands for no encryption.
  returned: success
  type: list
  elements: str
file:
  description: The file with its keys, empty where there is none.
  returned: for V(read)
  type: str
secret:
  description: A key that nothing has used yet.
  returned: for V(read)
  type: str
rewritten:
  description: How many Secrets were written again, or would be.
  returned: for V(secrets)
  type: int
"""

import contextlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    backup,
    certificates,
    encryption,
    encryption_keys,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import (
    ImpossibleError,
    refuse,
)

STEPS = (encryption_keys.KNOWN, encryption_keys.FIRST, encryption_keys.ALONE)
Keys = list[encryption_keys.Key]


def names(keys: Keys) -> list[str]:
    return [key.name for key in keys]


def change(module: AnsibleModule, host: Host, known: Keys) -> dict[str, object]:
    """Carry out one of the steps that change the file."""
    step = module.params["step"]
    # From reading the file to writing it: another run may be at it.
    with contextlib.nullcontext() if module.check_mode else backup.alone(host):
        text = encryption.file(host)
        wanted = encryption_keys.after(step, text, known)
        changed = text != wanted
        if not module.check_mode:
            if step == encryption_keys.ALONE and changed:
                encryption.refuse_left(host, known[0].name)
            changed = encryption.put(host, wanted, module.params["timeout"])
    # Not earlier: a control plane that comes is given the key by one that has it.
    if step == encryption_keys.FIRST and not module.check_mode:
        changed = encryption.configure(host) or changed
    had, has = names(encryption_keys.read(text)), names(encryption_keys.read(wanted))
    shown = {"before": f"{', '.join(had)}\n", "after": f"{', '.join(has)}\n"}
    return {"changed": changed, "keys": has, "diff": shown}


def carried_out(module: AnsibleModule, host: Host) -> dict[str, object]:
    step, params = module.params["step"], module.params
    # By V(known) all have been asked a moment ago.
    if step != encryption_keys.KNOWN:
        encryption.refuse_without(host, params["control_planes"])
    if step in ("check", "read"):
        text = encryption.file(host)
        keys = {"file": text, "secret": encryption_keys.fresh()} if step == "read" else {}
        return {"changed": False, "keys": names(encryption_keys.read(text)), **keys}
    try:
        known = encryption_keys.all_of(params["files"], params["secret"])
        if step in STEPS:
            return change(module, host, known)
    except ValueError as error:
        raise ImpossibleError(
            str(error),
            "those that it has read",
            "Wait until no other run is at it, and run it again.",
        ) from None
    newest = known[0].name
    if module.check_mode:
        number = len(encryption.otherwise(host, newest))
    else:
        number = encryption.rewrite(host, newest)
    return {"changed": number > 0, "keys": [newest], "rewritten": number}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "choices": ["check", "read", *STEPS[:2], "secrets", STEPS[2]],
                "default": "check",
            },
            "files": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "secret": {"type": "str", "default": "", "no_log": True},
            "control_planes": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    host = Host()
    if not host.exists(certificates.API_SERVER):
        module.exit_json(changed=False, there=False, keys=[])
    try:
        module.exit_json(there=True, **carried_out(module, host))
    except ImpossibleError as error:
        refuse(module, "the key of Secrets is not replaced", error.got, error.allowed, error.fix)
    except certificates.UnreadError as error:
        refuse(
            module,
            "the key of Secrets is not replaced",
            str(error),
            "'crictl ps' ends well",
            "Run it by hand, fix what it says, and run the play again.",
        )


if __name__ == "__main__":
    main()
