"""When the client's certificate in a kubeconfig ends."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import yaml
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.certificates import day
from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
name: kubeconfig_end
short_description: When the client's certificate in a kubeconfig ends
description:
  - Takes the first user's certificate, which is the only one in what kubeadm writes.
options:
  _input:
    description: The text of the kubeconfig.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show how long the site's kubeconfig is good for
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', '/root/.kube/config') | bedplate.gpu.kubeconfig_end }}"
"""

RETURN = r"""
_value:
  description: The end, as C(2027-11-30 04:30:00 UTC). Empty where there is no certificate.
  type: str
"""


def kubeconfig_end(text: str) -> str:
    """Return when the client's certificate ends; empty where there is none to read."""
    try:
        data = yaml.safe_load(text)["users"][0]["user"]["client-certificate-data"]
        end = x509.load_pem_x509_certificate(base64.b64decode(data)).not_valid_after_utc
    except (ValueError, KeyError, IndexError, TypeError, yaml.YAMLError):
        return ""
    return day(end)


class FilterModule:
    """The collection's filters of this file."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"kubeconfig_end": kubeconfig_end}
