#!/usr/bin/python
# Copyright the Bedplate authors
# SPDX-License-Identifier: Apache-2.0

"""Ansible module: a vendor's package repository, in files of our own, trusted by fingerprint."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_repository
short_description: Offer a vendor's package repository to apt or dnf
description:
  - Writes the repository's definition and its key into files of its own. Other repositories of the
    host are never touched. Where the user offers the same address to apt already, that entry is
    used and none is written, since apt refuses two with different keys. Nor is one where packages
    come from the site's mirror (M(bedplate.gpu.mirror_sources)), which has the vendor's too.
  - With apt, packages of the repository stay behind those from elsewhere, so that only what is
    asked for at an exact version comes from it, unless O(priority) says otherwise. With dnf it
    stands next to the others.
  - The key is trusted by its fingerprint, whatever its file looks like.
  - Fetches no index. M(bedplate.gpu.debian_packages) and M(bedplate.gpu.dnf_packages) do.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  name:
    description: Part of the files' names, lower-case letters, digits and dashes.
    type: str
    required: true
  owner:
    description: The role that the files are recorded for, so that a reset takes them away.
    type: str
    required: true
  description:
    description: What it is, for people.
    type: str
    default: Packages of a vendor
  url:
    description: The repository's address.
    type: str
    required: true
  suite:
    description: The suite for apt, V(/) for a flat repository.
    type: str
    default: /
  components:
    description: The suite's components for apt, where it is not a flat repository.
    type: str
    default: main
  origin:
    description: What its Release file says of its origin, for apt's pin.
    type: str
    required: true
  priority:
    description: The priority of apt's pin. More than 500 prefers it to the distribution.
    type: int
    default: 1
  key:
    description: Address of the signing key, armoured or not.
    type: str
    required: true
  fingerprint:
    description: The key's fingerprint, 40 hexadecimal digits.
    type: str
    required: true
  signed_index:
    description: Whether dnf is to check a signature of the index, besides those of the packages.
    type: bool
    default: false
  module_stream:
    description: A stream of a dnf module to enable, as V(nvidia-driver:580-open), in place of any
      other. Empty for repositories without modules.
    type: str
    default: ""
  state:
    description: Whether the repository is offered.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Says what would change. The key is not fetched.
  diff_mode:
    description: Shows the files before and after, of the key its fingerprint.
"""

EXAMPLES = r"""
- name: Offer NVIDIA's repository
  bedplate.gpu.package_repository:
    name: nvidia
    owner: nvidia_driver
    url: https://mirror.example/cuda/ubuntu2404/x86_64/
    origin: NVIDIA
    key: https://mirror.example/cuda/ubuntu2404/x86_64/key.pub
    fingerprint: "0123456789ABCDEF0123456789ABCDEF01234567"
"""

RETURN = r"""
files:
  description: Files that changed.
  returned: always
  type: list
  elements: str
offered_by:
  description: The user's own file that offers the repository, or that of the site's mirror.
  returned: always
  type: str
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import (
    addresses,
    fetch,
    mirror_sources,
    openpgp,
    os_release,
    owned,
    repositories,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import Change
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host, shown
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse


def fetched(module: AnsibleModule, fingerprint: str) -> bytes:
    """Return the key, once it is known to be the one that is trusted."""
    url, content = module.params["key"], b""
    try:
        content = fetch.read(url)
    except fetch.FetchError as error:
        module.fail_json(msg=f"the repository's key: {error}")
    try:
        found = openpgp.fingerprints(content)
    except openpgp.KeyFileError as error:
        found = [str(error)]
    if found != [fingerprint]:
        refuse(
            module,
            "the repository's key is another one",
            f"{addresses.shown(url)}: {', '.join(found)}",
            fingerprint,
            "Nothing was changed. Do not trust this source, unless its owner announced a new key.",
        )
    return openpgp.binary(content)


def keep(host: Host, owner: str, path: str, text: str, before: str | None = None) -> None:
    """Record a file of the repository as ours, with its text before us: a reset puts that back."""
    owned.keep(host, [owned.Writing(path, text, 0o644, before, role=owner)])


def put(host: Host, owner: str, path: str, text: str) -> None:
    """Write a file of the repository, or take it away where there is no text."""
    if text:
        keep(host, owner, path, text)
        host.write(path, text)
    else:
        host.remove(path)
        owned.forget(host, [path])


def enable(module: AnsibleModule, host: Host, name: str, stream: str) -> None:
    """Put a module's stream in place of another."""
    for argv in (["reset", name], ["enable", f"{name}:{stream}"]):
        answer = host.run(["dnf", "--assumeyes", "--quiet", "module", *argv], timeout=600)
        if answer.code != 0:
            refuse(
                module,
                f"the module stream {name}:{stream} cannot be enabled",
                answer.said,
                "a stream that the repository offers",
                "See 'dnf module list' on the host.",
            )


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "name": text,
            "owner": text,
            "description": {"type": "str", "default": "Packages of a vendor"},
            "url": text,
            "suite": {"type": "str", "default": "/"},
            "components": {"type": "str", "default": "main"},
            "origin": text,
            "priority": {"type": "int", "default": 1},
            "key": {"type": "str", "required": True, "no_log": False},
            "fingerprint": text,
            "signed_index": {"type": "bool", "default": False},
            "module_stream": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    wish, host = module.params, Host()
    wish["fingerprint"] = wish["fingerprint"].replace(" ", "").upper()
    fields = repositories.Repository._fields
    repository = repositories.Repository(**{field: wish[field] for field in fields})
    apt = os_release.family(host) == "Debian"
    path = repositories.key_path(repository, apt)
    wanted = repositories.apt_files(repository) if apt else repositories.rpm_files(repository)
    present = wish["state"] == "present"
    mirrored = mirror_sources.in_force(host)
    theirs = (repositories.offered_by(host, repository) if apt else mirrored) if present else None
    keyed = present and not theirs
    for name in wanted:
        # The pin counts for the user's entry too.
        if not present or (theirs and name.endswith((".sources", ".repo"))):
            wanted[name] = ""
    diff = []
    known = openpgp.fingerprints_in(host, path) == [repository.fingerprint]
    if (keyed and not known) or (not keyed and host.exists(path)):
        printed = f"{repository.fingerprint}\n"
        before, after = ("", printed) if keyed else (printed, "")
        diff.append(Change(path, before, after).diff)
        if not module.check_mode:
            key = openpgp.armoured(fetched(module, repository.fingerprint)) if keyed else ""
            put(host, wish["owner"], path, key)
    elif keyed and not module.check_mode:
        keep(host, wish["owner"], path, host.content(path) or "")
    for name, text in sorted(wanted.items()):
        before = host.content(name) or ""
        if text == before:
            if text and not module.check_mode:
                keep(host, wish["owner"], name, text)
            continue
        diff.append(Change(name, shown(before), text).diff)
        if not module.check_mode:
            put(host, wish["owner"], name, text)
    name, _, stream = ("" if mirrored else wish["module_stream"]).partition(":")
    path = repositories.stream_path(name)
    before = host.content(path)
    now = repositories.stream(host, name)
    if present and stream and now != stream:
        diff.append(Change(f"module {name}", f"{now or ''}\n", f"{stream}\n").diff)
        if not module.check_mode:
            enable(module, host, name, stream)
    if present and stream and not module.check_mode:
        keep(host, wish["owner"], path, host.content(path) or "", before)
    module.exit_json(
        changed=bool(diff),
        files=[part["after_header"] for part in diff],
        offered_by=theirs or "",
        diff=diff,
    )


if __name__ == "__main__":
    main()
