"""A lock is written whole or not at all, whatever fails on the way: write, fsync, rename."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from bedplate.lock import Lock, load_lock, write_lock

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
NAME = ".bedplate.lock.yml"
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the demo's lock."""
    shutil.copy(DEMO / NAME, tmp_path)
    return tmp_path


def changed(site: Path) -> Lock:
    """Return another lock than the site's."""
    lock = load_lock(site)
    assert lock.site_digest != "sha256:other"
    return lock.model_copy(update={"site_digest": "sha256:other"})


def fail(*_arguments: object, **_named: object) -> None:
    """Fail as a full disk does."""
    raise FULL


@pytest.mark.parametrize("step", ["os.fsync", "os.fdopen", "pathlib.Path.replace"])
def test_a_step_that_fails_leaves_what_was_there(
    step: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, lock = (site / NAME).read_bytes(), changed(site)
    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_lock(site, lock)
    monkeypatch.undo()
    assert (site / NAME).read_bytes() == before
    assert [path.name for path in site.iterdir()] == [NAME]


def test_a_first_lock_that_fails_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = load_lock(DEMO)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_lock(tmp_path, lock)
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_on_the_disk_before_they_have_the_name(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, a power failure after the rename leaves an empty lock."""
    lock, done = changed(site), []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        complete = path.is_dir() or path.read_text(encoding="utf-8").endswith("\n")
        done.append("folder synced" if path.is_dir() else f"file synced, {complete=}")
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"{path.parent.name} → {target.name}")
        return replace(path, target)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    assert write_lock(site, lock) is True
    assert done == ["file synced, complete=True", f"{site.name} → {NAME}", "folder synced"]
    assert load_lock(site) == lock
