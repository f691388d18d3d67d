"""Programs that are missing, refuse, or never end: one line, and nothing of theirs is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bedplate.bill import own
from bedplate.bill.errors import ResolveError
from bedplate.common import programs
from bedplate.common.programs import MissingError, ProgramError
from bedplate.lock.model import Sources
from bedplate.provider import passwords
from bedplate.provider.errors import ProviderError

#: It ends at once, and what it has started keeps its output open and listens to no signal.
LEAVES = "(trap '' TERM; echo $BASHPID > child; exec sleep 300) & until test -s child; do :; done"
#: As it does not end either.
HANGS = f"{LEAVES}; sleep 300"


def gone(child: Path) -> bool:
    """Say whether the process whose id is in a file has ended, at most as a zombie."""
    stat = Path("/proc", child.read_text().strip(), "stat")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A file that nobody may run."""
    file = tmp_path / "locked"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o644)
    return file


def test_what_a_program_says_comes_back() -> None:
    done = programs.run(["cat"], 60, given=b"\xffa\n")
    assert (done.status, done.content, done.text, done.errors) == (0, b"\xffa\n", "\ufffda\n", "")
    assert programs.run(["cat"], 60).content == b"", "its input is closed"
    words = ["sh", "-c", 'echo no; echo " $WHY " >&2; exit 3']
    done = programs.run(words, 60, own={"WHY": "since"}, check=False)
    assert (done.status, done.text, done.said) == (3, "no\n", "since")
    with pytest.raises(ProgramError) as failed:
        programs.run(words, 60, own={"WHY": "since"})
    assert str(failed.value) == (
        "a program fails — sh — got since — run it by hand, correct what it says, and run the "
        "command again"
    )
    with pytest.raises(ProgramError) as failed:
        programs.run(["false"], 60)
    assert failed.value.got == "exit status 1"


def test_what_cannot_be_started_is_said(locked: Path, tmp_path: Path) -> None:
    for words, got in (
        (["no-such-program"], "no no-such-program"),
        ([str(tmp_path / "none")], f"{tmp_path / 'none'}: No such file or directory"),
    ):
        with pytest.raises(MissingError) as missing:
            programs.run(words, 60)
        assert missing.value.got == got
    for words, folder, got in (
        ([str(locked)], None, f"{locked}: Permission denied"),
        (["true", "a\0b"], None, "an argument with a NUL byte"),
        (["true"], tmp_path / "none", f"{tmp_path / 'none'}: No such file or directory"),
    ):
        with pytest.raises(ProgramError) as failed:
            programs.run(words, 60, folder=folder)
        assert (failed.value.got, type(failed.value)) == (got, ProgramError)


@pytest.mark.parametrize("line", [HANGS, LEAVES])
def test_at_the_limit_all_that_it_started_ends(line: str, tmp_path: Path) -> None:
    since = time.monotonic()
    with pytest.raises(ProgramError) as failed:
        programs.run(["bash", "-c", line], 1, folder=tmp_path)
    assert failed.value.got == "bash without an end after 1 s"
    assert time.monotonic() - since < 60
    assert gone(tmp_path / "child")


def test_an_interrupt_ends_all_that_it_started(tmp_path: Path) -> None:
    """The signal reaches this program alone, as one from elsewhere does."""
    asks = (
        "import signal, sys; from bedplate.common import programs; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "programs.run(['bash', '-c', sys.argv[1]], 300)"
    )
    errors = tmp_path / "errors"
    with errors.open("w") as written:
        run = subprocess.Popen([sys.executable, "-c", asks, HANGS], cwd=tmp_path, stderr=written)
    until = time.monotonic() + 60
    while not ((tmp_path / "child").exists() and (tmp_path / "child").read_text()):
        assert run.poll() is None, errors.read_text()
        assert time.monotonic() < until
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == -signal.SIGINT
    assert gone(tmp_path / "child")


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site; whatever reads it never ends, nor does what that has started.

    It takes the place of Python: with Ansible to import, the limit might come first.
    """
    program = tmp_path / "python"
    program.write_text(f"#!/bin/bash\ncd {tmp_path}\n{HANGS}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def test_a_login_that_is_never_read_is_refused(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "SECONDS", 5)
    sources = Sources(mode="mirror", registry="r.example/a", files="https://f.example")
    with pytest.raises(ResolveError) as refused:
        own.own_of(hanging, sources)
    assert str(refused.value).startswith(
        f"login to the site's own servers cannot be read — {hanging} — got python without an end "
        "after 5 s / allowed a site that `bedplate plan` can read, with its vault password — "
    )
    assert gone(hanging.parent / "child")


async def test_a_password_that_is_never_read_is_refused(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "SECONDS", 5)
    with pytest.raises(ProviderError) as refused:
        await passwords.Passwords(hanging, "sudo").of("h")
    said = str(refused.value)
    assert f"sudo's password cannot be read — {hanging} — got no end within 5 s" in said
    assert gone(hanging.parent / "child")


def test_no_program_of_the_mirror_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each has its own package to install; one that may not be run says so too."""
    from bedplate.bill.signatures import signed
    from bedplate.mirror import skopeo
    from bedplate.mirror.errors import MirrorError
    from bedplate.mirror.packages import deb, keys, rpm, running
    from tests.substrate.standin.signing import Key

    key = Key(tmp_path / "gnupg")
    public, fingerprint = key.public, key.fingerprint
    key.close()
    asked = {
        "gpg": lambda: keys.SigningKey.made(tmp_path / "home", "x"),
        "apt-ftparchive": lambda: deb._release({}),
        "createrepo_c": lambda: rpm._run("createrepo_c", str(tmp_path)),
        "gpgv": lambda: signed(b"x", public, fingerprint, "https://r.example"),
        "skopeo": lambda: skopeo.run(["copy"], "image a cannot be pushed", "try again"),
        "apt-get": lambda: running.run(["apt-get", "update"], {}, "debian-12", 60),
    }
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for program, ask in asked.items():
        with pytest.raises((MirrorError, ResolveError)) as missing:
            ask()
        assert f"got no {program} / allowed " in str(missing.value)
        file = tmp_path / "bin" / program
        file.write_text("#!/bin/sh\n")
        file.chmod(0o644)
        with pytest.raises((MirrorError, ResolveError)) as refused:
            ask()
        assert f"got {program}: Permission denied / allowed " in str(refused.value)
    assert os.environ["PATH"] == str(tmp_path / "bin")
