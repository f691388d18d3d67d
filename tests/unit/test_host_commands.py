"""Commands that hosts run: what outlives its time goes with all that it started."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import run_command
from bedplate.provider import on_host

if TYPE_CHECKING:
    from pathlib import Path

#: Starts two children, one of which holds the command's output, and names all three.
FAMILY = (
    "sleep 300 & echo $! >{0}/a; sleep 300 >/dev/null 2>&1 & echo $! >{0}/b; echo $$ >{0}/c; wait"
)
SECONDS = 2.0


def gone(number: int) -> bool:
    """Whether a process has ended, if only its parent has not noticed."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii") as stream:  # noqa: PTH123
            return stream.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_gone(folder: Path) -> bool:
    numbers = [int((folder / name).read_text()) for name in "abc"]
    until = time.monotonic() + 120
    while time.monotonic() < until and not all(map(gone, numbers)):
        time.sleep(0.02)
    return all(map(gone, numbers))


def test_a_command_that_is_out_of_time_ends_with_its_children(tmp_path: Path) -> None:
    answer = run_command(["sh", "-c", FAMILY.format(tmp_path)], SECONDS)
    assert (answer.code, answer.err) == (124, "no answer from sh within 2 s")
    assert all_gone(tmp_path)


def test_so_does_one_of_the_provider(tmp_path: Path) -> None:
    host = on_host.Host(tmp_path, SECONDS)
    with pytest.raises(on_host.FailureError, match=r"^`sh -c` did not end in time: before"):
        host.try_run("sh", "-c", "echo before; " + FAMILY.format(tmp_path))
    assert all_gone(tmp_path)


def test_one_that_has_left_its_group_does_not_keep_the_caller(tmp_path: Path) -> None:
    started = time.monotonic()
    script = f"setsid sleep 600 & echo $! >{tmp_path}/a; wait"
    answer = run_command(["sh", "-c", script], SECONDS)
    assert answer.code == 124
    assert time.monotonic() - started < 300
    os.kill(int((tmp_path / "a").read_text()), 9)


def test_what_no_command_line_can_say_is_an_answer() -> None:
    answer = run_command(["echo", "a\0b"], 10)
    assert (answer.code, answer.out) == (126, "")
    assert answer.err == "echo: an argument with a NUL byte"


def test_a_program_that_cannot_be_started_is_an_answer(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF no")
    program.chmod(0o755)
    answer = run_command([str(program)], 10)
    assert answer.code == 126
    assert "Exec format error" in answer.err
    long = run_command(["echo", "x" * (1 << 22)], 10)
    assert (long.code, "Argument list too long" in long.err) == (126, True)


def test_a_variable_with_a_nul_is_an_answer() -> None:
    assert run_command(["echo"], 10, {"A": "a\0b"}).code == 126


def test_a_command_that_reads_has_its_input_and_its_output() -> None:
    done = on_host.Host(None, 30).try_run("sh", "-c", "cat; echo é >&2; exit 3", stdin="a\n")  # type: ignore[arg-type]
    assert (done.returncode, done.stdout) == (3, "a\né\n")


def test_output_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    done = on_host.Host(tmp_path, 30).try_run("printf", "caf\\351\\n")
    assert done.stdout == "caf\N{REPLACEMENT CHARACTER}\n"
