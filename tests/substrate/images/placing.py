"""Files that are made here, at their vendors' addresses (``HOST/PATH``) in a mirror."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from bedplate.common import writing
from bedplate.mirror import FileEntry
from bedplate.mirror.download import Part
from bedplate.mirror.store import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.mirror import Contents
    from bedplate.mirror.store import Store


def put_file(store: Store, made: Path, address: str, recipe: str = "") -> FileEntry:
    """Copy a file there and return its entry; one with the same bytes stays.

    Without a *recipe* its own digest is that.
    """
    with made.open("rb") as file:
        sha256 = digest_of(file)
    entry = FileEntry(sha256=sha256, size=made.stat().st_size, recipe=recipe or f"sha256:{sha256}")
    if not is_intact(store, address, entry):
        with made.open("rb") as source, writing.stream(store.place(address)) as target:
            shutil.copyfileobj(source, target)
    return entry


def put(store: Store, content: bytes, address: str) -> FileEntry:
    """Write a small file there and return its entry."""
    made = store.root / f"{writing.UNFINISHED}content"
    writing.replace(made, content)
    try:
        return put_file(store, made, address)
    finally:
        made.unlink()


def is_intact(store: Store, address: str, entry: FileEntry) -> bool:
    """Say whether a file is there with the bytes of its entry."""
    return not Part(address, "", entry.sha256, entry.size, store.place(address)).damage()


def remove_others(store: Store, contents: Contents) -> None:
    """Remove files that no entry names, so that the root does not grow with every version."""
    for path in store.files.rglob("*"):
        if path.is_file() and str(path.relative_to(store.files)) not in contents.files:
            path.unlink()
