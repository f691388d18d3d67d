"""What was found, below the site's own dot folder: Ansible reads no inventory there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.common import reading, writing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bedplate.evidence.discovery.propose import Proposal

FOLDER = Path(".bedplate") / "discovered"
HOSTS, POOLS = "hosts", "pools"


def put(path: Path, text: str) -> None:
    """Write a file in one step, readable by all: there is no secret in it."""
    writing.replace(path, text.encode(errors="replace"), durable=False)


def write_hosts(site: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what was read of each host."""
    for name, record in records.items():
        name = writing.file_name(name, "host")
        text = json.dumps(record, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        put(site / FOLDER / HOSTS / f"{name}.json", text)


def earlier(site: Path, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return what an earlier run read of hosts, by name: one of a few hosts forgets no others."""
    found = {}
    for name in names:
        try:
            record = reading.document(site / FOLDER / HOSTS / f"{name}.json")
            if record["format"] == 1 and record["facts"] is not None:
                found[name] = record
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not read yet, or written by another version: it will be read again
    return found


def forget(site: Path, known: Collection[str]) -> None:
    """Remove what was read of hosts that the inventory no longer has."""
    for path in (site / FOLDER / HOSTS).glob("*.json"):
        if path.stem not in known:
            path.unlink()


def write_pools(site: Path, proposals: Iterable[Proposal], shown: str) -> list[Path]:
    """Write a file for each proposal, remove those of earlier runs, and return what there is."""
    folder = site / FOLDER / POOLS
    written = {
        folder / f"{writing.file_name(one.name, 'pool')}.yml": one.render(shown)
        for one in proposals
    }
    for path, text in written.items():
        put(path, text)
    for path in folder.glob("*.yml"):
        if path not in written:
            path.unlink()
    return sorted(written)
