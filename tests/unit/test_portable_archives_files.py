"""Configuration files of one owner: whole, held, or refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from bedplate.portable import owned
from bedplate.portable.files import Change, File, ensure_files, take_back
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CONFIG = "/etc/containerd/config.toml"
OURS = "# Managed by Bedplate (role x).\nversion = 3\n"


def dpkg(default: str = "") -> object:
    """Answer as dpkg-query does: nobody owns the file, or `containerd` with this default text."""

    def run(argv: Sequence[str], _timeout: float, _environment: dict[str, str] | None) -> Result:
        if argv[1] == "--search":
            return Result(0, f"containerd: {CONFIG}\n", "") if default else Result(1, "", "no path")
        digest = hashlib.md5(default.encode(), usedforsecurity=False).hexdigest()
        return Result(0, f"\n {CONFIG} {digest}\n /etc/other {'0' * 32}\n", "")

    return run


def host(root: Path, default: str = "") -> Host:
    return Host(str(root), dpkg(default))  # type: ignore[arg-type]


def place(root: Path, text: str) -> Path:
    path = root / CONFIG.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


def test_writes_once_with_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = File(CONFIG, OURS, 0o640)
    assert ensure_files(host(tmp_path), [file]).changes == [Change(CONFIG, None, OURS)]
    written = tmp_path / CONFIG.lstrip("/")
    assert written.read_text() == OURS
    assert written.stat().st_mode & 0o7777 == 0o640
    assert [entry.name for entry in written.parent.iterdir()] == ["config.toml"]
    assert ensure_files(host(tmp_path), [file]) == ([], [], [])


def test_a_mode_that_differs_is_a_change(tmp_path: Path) -> None:
    path = place(tmp_path, OURS)
    path.chmod(0o666)
    assert ensure_files(host(tmp_path), [File(CONFIG, OURS)]).changes
    assert path.stat().st_mode & 0o7777 == 0o644


def test_check_writes_nothing(tmp_path: Path) -> None:
    told = ensure_files(host(tmp_path), [File(CONFIG, OURS)], check=True)
    assert told.changes == [Change(CONFIG, None, OURS)]
    assert list(tmp_path.iterdir()) == []


def test_a_change_is_shown_under_its_files_name() -> None:
    named = {"before_header": CONFIG, "after_header": CONFIG}
    assert Change(CONFIG, None, OURS).diff == {**named, "before": "", "after": OURS}
    assert Change(CONFIG, MIRROR, "").diff == {**named, "before": MIRROR, "after": ""}


def test_hold_keeps_what_is_there_and_writes_what_is_absent(tmp_path: Path) -> None:
    path = place(tmp_path, "# Managed by Bedplate.\nold\n")
    files = [File(CONFIG, OURS), File("/etc/crictl.yaml", "new\n")]
    outcome = ensure_files(host(tmp_path), files, hold=True)
    assert outcome.pending == [f"{CONFIG}: another content or mode"]
    assert [change.path for change in outcome.changes] == ["/etc/crictl.yaml"]
    assert "old" in path.read_text()


def test_a_foreign_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = place(tmp_path, "version = 2\n# mine\n")
    files = [File("/etc/crictl.yaml", "new\n"), File(CONFIG, OURS, refuse_foreign=True)]
    assert ensure_files(host(tmp_path), files).problems == [
        (
            f"the file is not managed by Bedplate and would be replaced — {CONFIG} — got a file"
            " without "
            "the mark 'Managed by Bedplate' that no package installed so / allowed no file, the "
            "package's default, or a file that Bedplate wrote — Move your settings into a drop-in "
            "of your own, move the file away, and run again."
        )
    ]
    assert path.read_text() == "version = 2\n# mine\n"
    assert not (tmp_path / "etc/crictl.yaml").exists()


def test_what_somebody_has_made_of_our_file_is_put_right(tmp_path: Path) -> None:
    """It is drift of ours, and what drift proposes must mend it; on a node it waits."""
    ours = File(CONFIG, OURS, refuse_foreign=True)
    assert not ensure_files(host(tmp_path), [ours]).problems
    path = tmp_path / CONFIG.lstrip("/")
    path.write_text("version = 2\n# mine\n")
    waits = ensure_files(host(tmp_path), [ours], hold=True)
    assert (waits.problems, len(waits.pending)) == ([], 1)
    assert not ensure_files(host(tmp_path), [ours]).problems
    assert path.read_text() == OURS


def test_the_packages_own_default_is_replaced_but_not_an_edited_one(tmp_path: Path) -> None:
    place(tmp_path, "version = 2\n")
    file = File(CONFIG, OURS, refuse_foreign=True)
    edited = ensure_files(host(tmp_path, default="version = 2 # as shipped\n"), [file])
    assert len(edited.problems) == 1
    assert ensure_files(host(tmp_path, default="version = 2\n"), [file]).problems == []
    assert (tmp_path / CONFIG.lstrip("/")).read_text() == OURS


CERTS = "/etc/containerd/certs.d"
MIRROR = "# Managed by Bedplate (role x).\nserver = 'mirror'\n"


def mirrors(root: Path, *names: str) -> list[File]:
    """Have files of ours for these registries, after one of the user's for the first."""
    path = root / f"{CERTS[1:]}/{names[0]}/hosts.toml"
    path.parent.mkdir(parents=True)
    path.write_text("server = 'mine'\n")
    files = [File(f"{CERTS}/{name}/hosts.toml", MIRROR) for name in names]
    ensure_files(host(root), [*files, File("/etc/crictl.yaml", OURS)])
    return files


def test_files_that_are_no_longer_wished_go_and_what_was_there_comes_back(tmp_path: Path) -> None:
    first, second, third = mirrors(tmp_path, "a.example", "b.example", "c.example")
    machine = host(tmp_path)
    assert take_back(machine, [CERTS], [first, second, third]) == []
    gone = [Change(third.path, MIRROR, "")]
    assert take_back(machine, [CERTS], [first, second], check=True) == gone
    assert machine.read(third.path) == MIRROR
    assert take_back(machine, [CERTS], [first, second]) == gone
    assert machine.list(CERTS) == ["a.example", "b.example"]
    assert [change.path for change in take_back(machine, [CERTS], [])] == [first.path, second.path]
    assert machine.read(first.path) == "server = 'mine'\n"
    assert machine.list(CERTS) == ["a.example"]
    assert list(owned.load(machine)) == ["/etc/crictl.yaml"]
    assert take_back(machine, [CERTS], []) == []


def test_a_file_that_has_become_somebody_elses_stays_and_is_theirs(tmp_path: Path) -> None:
    (file,) = mirrors(tmp_path, "a.example")
    (tmp_path / file.path[1:]).write_text("server = 'theirs'\n")
    assert take_back(host(tmp_path), [CERTS], []) == []
    assert host(tmp_path).read(file.path) == "server = 'theirs'\n"
    assert file.path not in owned.load(host(tmp_path))


def test_a_removal_that_was_ended_before_its_record_went_is_made_up_for(tmp_path: Path) -> None:
    (file,) = mirrors(tmp_path, "a.example")
    (tmp_path / file.path[1:]).unlink()
    assert take_back(host(tmp_path), [CERTS], []) == []
    assert file.path not in owned.load(host(tmp_path))
