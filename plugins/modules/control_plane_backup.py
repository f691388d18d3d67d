#!/usr/bin/python
"""Save etcd's data and the cluster's authorities, encrypted, on a control plane."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_backup
short_description: Save a cluster's state, encrypted
description:
  - Takes a snapshot of etcd, restores it once to see that it is good, and puts it with the keys of
    the cluster's authorities and kubeadm's configuration into one file, which is encrypted with
    C(openssl cms) for the owner of a certificate.
  - The file is C(/var/lib/bedplate/backup.cms) until the next one. Nothing else stays on the host.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  certificate:
    description: The certificate, in PEM. Only who has its key can read the backup.
    type: str
    required: true
attributes:
  check_mode:
    description: Writes nothing.
  diff_mode:
    description: There is no text to show.
    support: none
"""

EXAMPLES = r"""
- name: Save the cluster's state
  bedplate.gpu.control_plane_backup:
    certificate: "{{ lookup('ansible.builtin.file', 'backup.pem') }}"
"""

RETURN = r"""
file:
  description: Where the backup is on the host.
  returned: success
  type: str
about:
  description: What was saved, as it stands in the backup too. C(made) is the time in UTC, C(keys)
    is how many keys etcd had at C(revision). Empty in check mode.
  returned: success
  type: dict
"""

from datetime import datetime, timezone

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import backup
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import (
    ImpossibleError,
    refuse,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={"certificate": {"type": "str", "required": True}}, supports_check_mode=True
    )
    if module.check_mode:
        module.exit_json(changed=True, file=backup.SEALED, about={})
    certificate = module.params["certificate"]
    try:
        said = backup.save(Host(), certificate, datetime.now(timezone.utc))
    except ImpossibleError as error:
        refuse(module, "the cluster's state was not saved", error.got, error.allowed, error.fix)
    module.exit_json(changed=True, file=backup.SEALED, about=said)


if __name__ == "__main__":
    main()
