"""The lock of a site, for plays: see DOCUMENTATION."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lock
author: Bedplate
short_description: The decided versions of a site
description:
  - Returns the lock that C(bedplate plan SITE) wrote, together with where its files come from.
  - Refuses a site without a lock, and a site whose settings or facts have changed since, with the
    difference.
  - What was checked once is kept in C(SITE/.bedplate/) until a file of the site changes, so that a
    play over many hosts resolves once. Where an inventory is a program or has lookups, it is kept
    for the run.
options:
  _terms:
    description: The site's directory, usually C(inventory_dir).
    type: list
    elements: path
    required: true
notes:
  - A dynamic inventory whose answer changes while no file does is noticed by the next run, and by
    C(bedplate plan SITE --check). A run that refreshes its inventory goes on with the first answer.
"""

EXAMPLES = r"""
- name: Show the driver of each pool
  ansible.builtin.debug:
    msg: "{{ item.key }}: {{ item.value.nvidia_driver.version }}"
  loop: "{{ lookup('bedplate.gpu.lock', inventory_dir).pools | dict2items }}"
"""

RETURN = r"""
_raw:
  description:
    - The lock as a dictionary, with C(gpu_memory_gib) by model and, from the bill of materials,
      C(artifacts) and C(images) added. An artifact has C(version), C(url) and C(sha256). Images are
      digests by name, under C(control_plane), C(node), C(gpu) and C(nobody). C(packages) has the
      C(url), C(systems) and C(key) of the mirror's repositories, and is empty where hosts have
      sources of their own.
  type: list
  elements: dict
"""

import os  # noqa: E402
from pathlib import Path  # noqa: E402

from ansible.errors import AnsibleLookupError  # noqa: E402
from ansible.plugins.lookup import LookupBase  # noqa: E402
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package  # noqa: E402

# Variables that are made of others ask many times in one task, and each task of a host has a
# process of its own: what was checked there holds for as long as it lives.
_checked: dict[tuple[int, str], dict] = {}


class LookupModule(LookupBase):
    """The lock, checked against its site."""

    def run(self, terms, variables=None, **kwargs):
        """Return one dictionary per site."""
        BedplateError = package("common.errors").BedplateError  # noqa: N806
        locked_site = package("components.locked_site").locked_site
        self.set_options(var_options=variables, direct=kwargs)
        found = []
        for term in terms:
            key = (os.getpid(), str(term))
            try:
                if key not in _checked:
                    _checked[key] = locked_site(Path(str(term)))
            except BedplateError as error:
                raise AnsibleLookupError(str(error)) from None  # the chain would say it twice
            found.append(_checked[key])
        return found
