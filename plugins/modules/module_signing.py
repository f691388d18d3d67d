#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: the key that signs the kernel modules which DKMS builds on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: module_signing
short_description: Have a key pair with which DKMS signs kernel modules
description:
  - Under Secure Boot the kernel loads only modules that are signed by a key it knows. Modules that
    DKMS builds are signed with a pair of the host's own.
  - Uses the pair that the user's DKMS configuration names, or the one that is there already, and
    makes one otherwise. The private key never leaves the host.
  - DKMS reads the drop-in of ours after the user's file, so where that names a pair, the drop-in
    goes.
  - Says whether the pair is enrolled. Enrolling it needs a person at the host's console.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  name:
    description: The host's name, which the certificate carries.
    type: str
    required: true
attributes:
  check_mode:
    description: Says what would be made.
  diff_mode:
    description: Shows DKMS's drop-in. Keys are never shown.
"""

EXAMPLES = r"""
- name: Sign what DKMS builds
  bedplate.gpu.module_signing:
    name: "{{ inventory_hostname }}"
"""

RETURN = r"""
certificate:
  description: The certificate to enrol, in DER.
  returned: always
  type: str
enrolled:
  description: Whether the machine's owner has enrolled it; null where that is unknown.
  returned: always
  type: bool
to_do:
  description: What a person has to do at the console; empty where the pair is enrolled.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import owned
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.kernel import secure_boot
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.message import problem


def make(module: AnsibleModule, host: Host, pair: secure_boot.Pair) -> None:
    """Make the pair."""
    refused = secure_boot.make(host, pair, module.params["name"])
    if refused:
        module.fail_json(
            msg=problem(
                "no key pair could be made for signing kernel modules",
                module.params["name"],
                refused,
                "a pair from 'openssl req'",
                "Fix what openssl says, or install it where there is none, and run the play again.",
            )
        )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True
    )
    host = Host()
    pair = secure_boot.pair(host)
    missing = not pair.present(host)
    if missing and pair.foreign:
        module.fail_json(
            msg=problem(
                "DKMS is configured with a key pair that is not there",
                f"{module.params['name']}:{secure_boot.CONFIGURATION}",
                f"no {pair.key} or no {pair.certificate}",
                "both files, or no mok_signing_key and mok_certificate of your own",
                "Put the pair there, or take both lines away, and run the play again.",
            )
        )
    # The user's own configuration speaks for itself, and ours would be heard after it.
    before = host.content(secure_boot.DROP_IN)
    after = None if pair.foreign else secure_boot.drop_in(pair)
    if not module.check_mode:
        if missing:
            make(module, host, pair)
        if after is not None:
            kept = owned.Writing(secure_boot.DROP_IN, after, 0o644, None, role="host_baseline")
            owned.keep(host, [kept])
            if after != before:
                host.write(secure_boot.DROP_IN, after)
        else:
            if before is not None:
                host.remove(secure_boot.DROP_IN)
            owned.forget(host, [secure_boot.DROP_IN])
    enrolled = (
        None if missing and module.check_mode else secure_boot.enrolled(host, pair.certificate)
    )
    module.exit_json(
        changed=missing or after != before,
        certificate=pair.certificate,
        enrolled=enrolled,
        to_do="" if enrolled else secure_boot.how_to_enrol(pair.certificate),
        diff=Change(secure_boot.DROP_IN, before, after or "").diff,
    )


if __name__ == "__main__":
    main()
