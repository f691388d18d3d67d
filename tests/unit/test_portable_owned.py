"""The record of what Bedplate owns: who wrote what, what was before, and what became of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import owned
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from pathlib import Path

MINE = "# Managed by Bedplate (role container_runtime).\nversion = 3\n"
PATH = "/etc/containerd/conf.d/50-bedplate.toml"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


def test_a_written_file_is_recorded_with_role_and_folders(host: Host, tmp_path: Path) -> None:
    ensure_files(host, [File(PATH, MINE)])
    assert owned.load(host)[PATH] == {
        "sha256": owned.digest(MINE),
        "mode": "0644",
        "role": "container_runtime",
        "watched": True,
        "before": None,
        "added": None,
        "edited": False,
        "was": None,
        "folders": ["/etc/containerd/conf.d", "/etc/containerd", "/etc"],
    }
    assert (tmp_path / owned.RECORD.lstrip("/")).stat().st_mode & 0o777 == 0o600
    assert owned.differences(host) == {"container_runtime": []}


def test_a_mark_with_a_hyphen_names_its_writer(host: Host) -> None:
    ensure_files(host, [File(PATH, "# Managed by Bedplate (role nvidia-options).\n")])
    assert owned.load(host)[PATH]["role"] == "nvidia-options"


def test_check_mode_records_nothing(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE)], check=True)
    assert owned.load(host) == {}


def test_a_lost_record_comes_back_without_a_change(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE)])
    host.remove(owned.RECORD)
    assert ensure_files(host, [File(PATH, MINE)]).changes == []
    assert owned.load(host)[PATH]["sha256"] == owned.digest(MINE)


def test_a_record_that_is_no_record_is_written_anew(host: Host) -> None:
    host.write(owned.RECORD, "{")
    ensure_files(host, [File(PATH, MINE)])
    assert list(owned.load(host)) == [PATH]


def test_what_was_there_first_is_kept_however_often_the_file_changes(host: Host) -> None:
    host.write(PATH, "the user's\n")
    ensure_files(host, [File(PATH, MINE)])
    ensure_files(host, [File(PATH, MINE + "more\n")])
    entry = owned.load(host)[PATH]
    assert (entry["before"], entry["folders"]) == ("the user's\n", [])


def test_an_older_text_of_our_own_is_nothing_to_go_back_to(host: Host) -> None:
    host.write(PATH, MINE)
    ensure_files(host, [File(PATH, MINE + "more\n")])
    assert owned.load(host)[PATH]["before"] is None


def test_a_held_file_keeps_the_record_of_what_was_written_last(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE)])
    assert ensure_files(host, [File(PATH, MINE + "more\n")], hold=True).pending != []
    assert owned.differences(host) == {"container_runtime": []}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda real: real.write_text(MINE + "# mine\n"), "edited"),
        (lambda real: real.unlink(), "missing"),
        (lambda real: real.chmod(0o600), "mode 0600 (was 0644)"),
    ],
)
def test_what_became_of_a_file_is_told(
    host: Host, tmp_path: Path, damage: object, said: str
) -> None:
    ensure_files(host, [File(PATH, MINE)])
    damage(tmp_path / PATH.lstrip("/"))  # type: ignore[operator]
    assert owned.differences(host) == {"container_runtime": [f"{PATH}: {said}"]}


def test_files_that_others_may_change_are_not_judged(host: Host, tmp_path: Path) -> None:
    ensure_files(host, [File("/etc/cdi/nvidia.yaml", "cdiVersion: x\n")], watched=False)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text("anything")
    assert owned.differences(host) == {}


def test_a_run_killed_before_the_file_is_written_shows_as_a_difference(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE)])
    owned.keep(host, [owned.Writing(PATH, MINE + "new\n", 0o644, MINE)])
    assert owned.differences(host) == {"container_runtime": [f"{PATH}: edited"]}
    ensure_files(host, [File(PATH, MINE + "new\n")])
    assert owned.differences(host) == {"container_runtime": []}


def test_a_forgotten_file_is_nobodys(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE)])
    owned.forget(host, [PATH, "/etc/never-known"])
    assert json.loads(host.read(owned.RECORD) or "") == {"files": {}, "format": 1}
