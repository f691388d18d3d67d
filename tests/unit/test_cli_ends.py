"""How commands end: a verdict outlives its reader, and what goes wrong is one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from bedplate.cli import main as cli
from bedplate.lock import load_lock

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
BEDPLATE = (sys.executable, "-m", "bedplate.cli")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site with its lock, and evidence of one host that passed."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    folder = copy / ".bedplate/evidence"
    folder.mkdir(parents=True)
    evidence = {
        "format": 1,
        "subject": {"kind": "host", "name": "gpu-a", "pool": None},
        "checked": "2026-11-21T10:00:00Z",
        "lock": "sha256:other",
        "checks": [],
    }
    (folder / "host-gpu-a.json").write_text(json.dumps(evidence))
    return copy


def ended(*arguments: object, line: str = '"$@"', **environment: str) -> tuple[int, str]:
    """Run `bedplate` within a line of a shell, and return status and errors."""
    done = subprocess.run(
        ["bash", "-c", line, "bash", *BEDPLATE, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


#: The reader has gone before the first byte.
GONE = 'exec 3> >(exec true); sleep 0.2; "$@" >&3'


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_verdict_outlives_its_reader(site: Path, unbuffered: str) -> None:
    """The report goes on after its reader has gone, and ends with 2: not proven."""
    assert ended("report", site, line=GONE, PYTHONUNBUFFERED=unbuffered) == (2, "")
    assert (site / ".bedplate/junit.xml").exists()


def test_an_output_that_is_full_is_a_refusal(site: Path) -> None:
    status, errors = ended("report", site, line='"$@" >/dev/full')
    said = "output cannot be written — got No space left on device — make room for it, or send it"
    assert (status, errors) == (3, f"{said} elsewhere\n")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_verdict(site: Path, closed: str) -> None:
    pool = site / "group_vars/pool_train.yml"
    pool.write_text(pool.read_text().replace("count: 8", "count: 4"))
    check = ("plan", "--check", "--today", "2026-11-21", site)
    assert ended(*check, line=f'"$@" {closed}') == (2, "")


def test_an_empty_name_is_no_site(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["plan", ""], ["mirror", "resolve", " "], ["init", ""]):
        with pytest.raises(SystemExit, match="3"):
            cli.main(arguments)
        assert "got an empty name / allowed a path" in capsys.readouterr().err


def test_an_interrupt_is_one_line_and_the_signals_status(site: Path) -> None:
    """The inventory asks a program that has begun and doesn't end."""
    program = site / "slow"
    program.write_text("#!/bin/sh\ntouch begun\nexec sleep 120\n")
    program.chmod(0o755)
    run = subprocess.Popen(
        [*BEDPLATE, "plan", site],
        cwd=site,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that the program gets it too, as from a terminal
    )
    until = time.monotonic() + 120
    while not (site / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=120)
    assert (run.returncode, errors) == (-signal.SIGINT, "\nbedplate: interrupted\n")


def test_a_link_of_the_users_stays_one(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock may lie elsewhere: what its link leads to is written, also if it is missing."""
    lock, kept = site / ".bedplate.lock.yml", tmp_path / "kept"
    kept.mkdir()
    lock.unlink()
    lock.symlink_to(os.path.relpath(kept / "lock.yml", site))
    assert cli.main(["plan", str(site)]) == 0
    assert lock.is_symlink()
    assert load_lock(site).hosts.keys() == {"cp1", "gpu-a", "gpu-b"}
    (kept / "lock.yml").write_text("")
    assert cli.main(["plan", str(site)]) == 0
    assert lock.is_symlink()
    assert [path.name for path in kept.iterdir()] == ["lock.yml"]
    assert cli.main(["plan", "--check", str(site)]) == 0
    capsys.readouterr()
    lock.unlink()
    lock.symlink_to(tmp_path / "no/disk/lock.yml")
    assert "No such file or directory" in refused(["plan", site], capsys)
    assert not (tmp_path / "no").exists()
    lock.unlink()
    lock.symlink_to(lock.name)
    assert "Too many levels of symbolic links" in refused(["plan", site], capsys)


#: As pip's program does, interrupted when the first line of `bedplate.cli.main` is run.
EARLY = """
import importlib.abc, os, signal, sys
# As in a shell's foreground: what a shell starts behind it ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "bedplate.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from {module} import {function}
sys.argv = ["bedplate", "--version"]
sys.exit({function}())
"""


def test_an_interrupt_while_it_is_imported_says_nothing() -> None:
    scripts = tomllib.loads((DEMO.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["bedplate"].partition(":")
    run = [sys.executable, "-c", EARLY.format(module=module, function=function)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def refused(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that is refused, and return its one line."""
    assert cli.main([str(one) for one in arguments]) == 3
    errors = capsys.readouterr().err
    line, *more = errors.splitlines()
    assert [one for one in more if one and not one.startswith(("  rule", "1 error;"))] == []
    return line


def test_a_site_of_too_many_letters(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("plan", "report", "drift"):
        assert "File name too long" in refused([command, "x" * 300], capsys)
        with pytest.raises(SystemExit, match="3"):
            cli.main([command, "x" * 5000])
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.endswith("argument SITE: got a name of 5000 bytes / allowed 4095")


def test_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "No such file or directory" in refused(["plan", DEMO], capsys)


def test_a_report_that_is_a_folder(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate/report.html").mkdir()
    line = refused(["report", site], capsys)
    assert f"{site}/.bedplate/report.html" in line
    assert "Is a directory" in line


@pytest.mark.parametrize(
    ("name", "value"), [("ANSIBLE_CONFIG", "/etc/passwd"), ("HOME", "/dev/null")]
)
def test_ansibles_own_refusals(site: Path, name: str, value: str) -> None:
    status, errors = ended("plan", "--check", site, **{name: value})
    lines = [line for line in errors.splitlines() if line and not line.startswith("  rule")]
    assert status == 3
    assert "Traceback" not in errors
    assert value in lines[0]
