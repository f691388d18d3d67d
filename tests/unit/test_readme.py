"""What README and pages show is real: the refusal, every command of ours, playbooks and links."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible.cli.playbook import PlaybookCLI

from bedplate.cli import main as cli

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("roles/*/README.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted(ROOT.glob("docs/proof/*.md")),
    *sorted((ROOT / "templates" / "site").iterdir()),
    *sorted(path for path in (ROOT / "inventories" / "example").rglob("*.yml")),
]
COMMAND = "$ bedplate plan inventories/mysite\n"
WISHES = """\
bedplate_gpu: {model: v100-sxm2-32gb, count: 4}
bedplate_driver: {branch: "595"}
bedplate_sharing: {mode: mps, replicas: 50}
"""
#: A line of a console or of a block, without its comment; or a command in a sentence.
LINE = re.compile(r"^(?: *\$ |    )?((?:bedplate|ansible-playbook) .*?)(?:  +#.*)?$", re.MULTILINE)
INLINE = re.compile(r"`((?:bedplate|ansible-playbook) [^`\n]+)`")
CONSOLE = re.compile(r"^ *```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: What a reader may leave out.
OPTIONAL = re.compile(r"(?<= )\[([^\]]*)\]")
PLAYBOOK = re.compile(r"bedplate\.gpu\.([a-z_]+)\b(?!/)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
#: Fewer words are a title: they do not say what a picture shows.
MEANT = 8
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def commands(path: Path) -> Iterator[str]:
    """Yield every command line of ours, and of Ansible's, in a file."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in (*LINE.findall(text), *INLINE.findall(text)):
        for one in line.split(" && "):
            if one.startswith(("bedplate ", "ansible-playbook ")):
                yield OPTIONAL.sub(r"\1", one)


def parser(program: str) -> argparse.ArgumentParser:
    """Return what reads the words of a command."""
    if program == "bedplate":
        return cli.parser(with_mirror=True)
    playbook = PlaybookCLI([program])
    playbook.init_parser()
    return playbook.parser


def mistake(line: str, capsys: pytest.CaptureFixture[str], *, whole: bool = False) -> str:
    """Return what the parser has against a command; a part of one may lack what it is about."""
    program, *words = shlex.split(line, comments=True)
    try:
        parser(program).parse_args(words)
    except SystemExit as ended:
        told = capsys.readouterr().err.splitlines()
        lacks = not whole and bool(told) and "the following arguments are required" in told[-1]
        return "" if ended.code == 0 or lacks else f"{line}: {told[-1]}"
    return ""


def test_the_refusal_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "inventories" / "mysite"
    ignore = shutil.ignore_patterns(".bedplate*")
    shutil.copytree(ROOT / "inventories" / "demo", site, ignore=ignore)
    (site / "group_vars" / "pool_class.yml").write_text(WISHES)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "inventories/mysite"]) == 3
    shown = (ROOT / "README.md").read_text().split(COMMAND)[1].split("$ ")[0]
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_is_one_that_we_have(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [told for line in commands(path) if (told := mistake(line, capsys))] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_console_is_shell(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = CONSOLE.findall(path.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in re.findall(r"^ *\$ (.*)$", block, re.MULTILINE)]
    read = subprocess.run(["bash", "-n"], input="\n".join(lines), capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")
    each = [OPTIONAL.sub(r"\1", one) for line in lines for one in line.split(" && ")]
    ours = [one for one in each if one.startswith("bedplate ")]
    assert [told for line in ours if (told := mistake(line, capsys, whole=True))] == []


def test_the_commands_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    readme = list(commands(ROOT / "README.md"))
    verbs = {line.split()[1] for line in readme if line.startswith("bedplate")}
    assert {"init", "gpus", "plan", "explain", "mirror", "report", "drift"} <= verbs
    assert len(list(commands(ROOT / "templates" / "site" / "README.md.j2"))) >= 3
    assert "unrecognized arguments: --chek" in mistake("bedplate plan SITE --chek", capsys)
    assert "invalid choice: 'paln'" in mistake("bedplate paln SITE", capsys)
    assert "ansible-playbook -i inventory bedplate.gpu.site" in readme
    assert "unrecognized arguments: --limt" in mistake("ansible-playbook X.yml --limt a", capsys)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_playbook_and_link_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    roles_too = {*(ROOT / "roles").iterdir(), *(ROOT / "plugins").rglob("*.py")}
    known = {one.stem for one in (*(ROOT / "playbooks").glob("*.yml"), *roles_too)}
    assert set(PLAYBOOK.findall(text)) <= known
    links = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    assert links == []


def test_every_page_is_in_the_index() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "index.md").read_text()))
    there = {page.name for page in PAGES if page.parent.name == "docs"} - {"index.md"}
    assert there <= listed


def test_every_picture_says_what_it_shows() -> None:
    """Also to a reader who cannot see it: the pages of the package come without pictures."""
    shown = {
        path.name: PICTURE.findall(path.read_text(encoding="utf-8"))
        for path in PAGES
        if path.parent.name != "proof"
    }
    assert {name for name, its in shown.items() if its} >= {
        "README.md",
        "courses.md",
        "first-servers.md",
    }
    short = [alt for its in shown.values() for alt, _ in its if len(alt.split()) < MEANT]
    assert short == []
