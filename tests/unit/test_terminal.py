"""Tables, colours, documents and progress: on a terminal, and where nobody looks at one."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.common import progress, terminal
from bedplate.common.progress import Progress
from bedplate.common.streams import harmless

BEDPLATE = Path(sys.executable).with_name("bedplate")
DEMO = str(Path(__file__).parents[2] / "inventories" / "demo")
ESCAPE = "\x1b"
LONG = "x" * 300


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(*words: str, **own: str) -> str:
    """Run bedplate on a terminal of its own, 80 columns wide, and return what it printed."""
    ours, its = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80", **own}
    with subprocess.Popen(
        [str(BEDPLATE), *words], stdin=its, stdout=its, stderr=its, env=environment
    ) as running:
        os.close(its)
        found = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # Linux: the other side is closed
                break
            found += block
        assert running.wait() in {0, 3}
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def test_a_table_in_a_pipe_is_plain_and_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless():
        terminal.show(
            "first", terminal.table(("A", "BYTES", "C"), [(LONG, 7, ""), ("b", 123, "d")], [1])
        )
    assert capsys.readouterr().out.splitlines() == [
        "first",
        f"A{' ' * 299}  BYTES  C",
        f"{LONG}      7",
        f"b{' ' * 299}    123  d",
    ]


def test_what_came_from_elsewhere_steers_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with harmless():
        terminal.show(terminal.table(None, [("\x1b[8mhidden", "[red]text[/red]")]))
        terminal.refuse("site.yml:2:1: no \x1b[2Jname — got a / allowed b — write \x1b[8mb")
    printed = capsys.readouterr()
    for text in printed:
        assert ESCAPE in text
        assert re.sub(r"\x1b\[(0|1|31|32|36)m", "", text).count(ESCAPE) == 0
    assert "\ufffd[8mhidden" in printed.out
    assert "[red]text[/red]" in printed.out


@pytest.mark.parametrize(
    ("own", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_has_colours_unless_they_are_not_wanted(
    own: dict[str, str], coloured: bool
) -> None:
    assert (f"{ESCAPE}[36mh200" in on_terminal("gpus", "h200", **own)) == coloured
    refusal = on_terminal("gpus", "h20x", **own)
    assert (f"{ESCAPE}[31mno such GPU" in refusal) == coloured
    assert re.sub(r"\x1b\[\d+m", "", refusal).startswith("no such GPU — got h20x / allowed a word")


def test_a_table_fits_its_terminal() -> None:
    lines = re.sub(r"\x1b\[\d+m", "", on_terminal("gpus", "h100", COLUMNS="60")).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 6


@pytest.mark.parametrize(
    "words", [("-o", "json"), ("--output", "yaml"), ("--format", "json"), ("--json",)]
)
def test_a_document_is_all_that_is_printed(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["gpus", "h200-sxm", *words]) == 0
    printed = capsys.readouterr()
    load = yaml.safe_load if "yaml" in words else json.loads
    (model,) = load(printed.out)
    assert (model["model"], model["memory_gib"], printed.err) == ("h200-sxm-141gb", 141, "")


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["explain", DEMO, "pool_class"], {"subject", "component", "decided", "because"}),
        (["explain", DEMO, "cluster", "kubernetes=1.20"], {"decided", "source", "why_not"}),
        (["explain", DEMO, "pool_class", "gpu"], {"decided", "because"}),
        (["frameworks", DEMO], {"name", "cuda", "requirement", "pools"}),
    ],
)
def test_what_a_list_has_is_data(
    words: list[str], keys: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for form in ("json", "yaml"):
        assert cli.main([*words, "--format", form]) == 0
        found.append(yaml.safe_load(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]
    assert all(keys <= set(one) for one in found[0])


def test_progress_without_a_terminal_is_a_line_at_intervals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1.0, 15.0, 16.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with Progress(total=40, unit="looked up", _started=0, _shown=0) as run:
        run.add(10, fetched=True)
        run.now = "etcd"
        for _ in range(3):
            run.show()
    assert capsys.readouterr().err == "10 of 40 looked up, 45 s left: etcd\n"


def test_progress_on_a_terminal_is_a_bar_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", err)
    with harmless(), Progress(total=3_000_000) as run:
        run.now = "a file\x1b[2J"
        run.add(1_000_000, fetched=True)
        run.show()
    text = err.getvalue()
    assert "1.0/3.0 MB" in text
    assert "a file\ufffd" in text
    assert text.index(f"{ESCAPE}[?25l") < text.index(f"{ESCAPE}[?25h")  # the cursor comes back
    assert text.rstrip().endswith(f"{ESCAPE}[2K")


def test_an_interrupt_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")

    def run() -> None:
        with Progress(total=2, unit="looked up") as running:
            running.show()
            raise KeyboardInterrupt

    with harmless(), pytest.raises(KeyboardInterrupt):
        run()
    assert f"{ESCAPE}[?25h" in err.getvalue()
