"""The record of the packages that Bedplate holds with apt-mark: dpkg does not say who held one.

A package that the user had held before is not recorded. dnf's list of locks needs no such record:
ours carry a mark there.
"""

import json
from typing import Dict, Sequence

from .. import documents
from ..host import Host

RECORD = "/var/lib/bedplate/held.json"


def load(host: Host) -> Dict[str, str]:
    """By package, the role that had it held, empty where that is not known."""
    found = documents.table(host.read(RECORD))
    return {name: role for name, role in found.items() if isinstance(role, str)}


def keep(host: Host, names: Sequence[str], role: str) -> None:
    """Record packages that are held next, so that a run which is killed has told of them."""
    known = load(host)
    _write(host, known, {**known, **dict.fromkeys(names, role)})


def forget(host: Host, names: Sequence[str]) -> None:
    """Drop packages from the record, which are held no longer."""
    known = load(host)
    _write(host, known, {name: role for name, role in known.items() if name not in names})


def _write(host: Host, before: Dict[str, str], after: Dict[str, str]) -> None:
    if after != before:
        host.write(RECORD, json.dumps(after, indent=1, sort_keys=True) + "\n")
