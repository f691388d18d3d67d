"""Evidence that is odd or hostile: refused in one line, or shown without harm."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from bedplate.cli import main as cli
from bedplate.common.errors import BedplateError
from bedplate.common.evidence_file import load_evidence
from tests.unit.test_evidence_report import check, report, site, write

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["site"]
SECRET = "hunter2SECRET"


def deep(levels: int) -> Any:
    """Return lists in lists."""
    found: Any = "x"
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("facts", "got"),
    [
        ({"driver": "x"}, "facts.driver: Input should be a valid dictionary"),
        ({"driver": 7}, "facts.driver: Input should be a valid dictionary"),
        ({"driver": [1]}, "facts.driver: Input should be a valid dictionary"),
        ({"driver": {"stand_in": "perhaps"}}, "facts.driver.stand_in: Input should be"),
        ({"changed_since": "x"}, "facts.changed_since: Input should be"),
        ({"changed_since": None}, "facts.changed_since: Input should be"),
        ({"changed_since": {}}, "facts.changed_since.checked: Field required"),
        ({"changed_since": {"checked": [], "what": []}}, "facts.changed_since.checked"),
        ({"joined": "x"}, "facts.joined: Input should be a valid boolean"),
        (None, "facts: Input should be a valid dictionary"),
        ({"found": deep(400)}, "nested deeper than 40 levels"),
    ],
)
def test_facts_of_another_type_are_no_evidence(site: Path, facts: Any, got: str) -> None:
    write(site, "gpu-a", check(), facts=facts)
    with pytest.raises(BedplateError) as caught:
        load_evidence(site)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("a file is not evidence — ")
    assert f"host-gpu-a.json — got {got}" in line


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def brackets(path: Path) -> None:
    path.write_text("[" * 100_000)


def number(path: Path) -> None:
    path.write_text("9" * 10_000)


def huge(path: Path) -> None:
    with path.open("w") as file:
        file.truncate(1 << 40)


#: What may lie in the place of a file, and what is said of it.
ODD = {
    os.mkfifo: "a pipe, socket or device",
    dangling: "No such file or directory",
    loop: "Too many levels of symbolic links",
    os.mkdir: "Is a directory",
    brackets: "nested deeper than 40 levels",
    number: "Exceeds the limit",
    huge: "bytes, allowed",
}


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_what_is_no_file_of_json_is_no_evidence(site: Path, make: Any) -> None:
    make(site / ".bedplate/evidence/a.json")
    with pytest.raises(BedplateError) as caught:
        load_evidence(site)
    line = str(caught.value)
    assert line.startswith(f"a file is not evidence — {site}/.bedplate/evidence/a.json — got ")
    assert ODD[make] in line


def test_it_ends_the_report_in_one_line(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brackets(site / ".bedplate/evidence/a.json")
    status, lines, errors = report(site, capsys)
    assert (status, lines, errors.count("\n")) == (3, [], 1)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, brackets], ids=lambda make: make.__name__)
def test_what_is_no_file_of_json_says_nothing_of_drift(
    site: Path, capsys: pytest.CaptureFixture[str], make: Any
) -> None:
    make(site / ".bedplate/evidence/drift-gpu-a.json")
    assert cli.main(["drift", str(site)]) == 3
    assert f"drift-gpu-a.json cannot be read ({ODD[make]})" in capsys.readouterr().out


def test_a_secret_is_neither_on_the_page_nor_in_junit_nor_on_the_terminal(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The site's own wherever it stands, and others by what is around them."""
    pool = site / "group_vars/pool_train.yml"
    proxy = f"bedplate_proxy: {{url: 'http://ops:{SECRET}@192.0.2.1:3128'}}\n"
    pool.write_text(pool.read_text() + proxy)
    told = {
        "reason": f"proxy http://u:{SECRET}@h failed: {SECRET}",
        "found": {f"http://u:hun/ter2{SECRET}@h/": [f"token={SECRET}"]},
        "wished": f"http://h/?token={SECRET}",
        "fix": f"curl -x http://u:{SECRET}@h",
        "what": f"Authorization: Basic {SECRET}",
    }
    write(site, "gpu-a", check("fail", **told), labels={"x": SECRET})
    write(site, "cluster", check("fail", **told))
    status, lines, errors = report(site, capsys)
    assert (status, errors) == (2, "")
    shown = {
        "terminal": "\n".join(lines),
        "page": (site / ".bedplate/report.html").read_text(),
        "junit": (site / ".bedplate/junit.xml").read_text(),
    }
    assert {name: text.count("hunter2") + text.count("ter2") for name, text in shown.items()} == {
        "terminal": 0,
        "page": 0,
        "junit": 0,
    }


def test_a_host_steers_no_terminal(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "\x1b]0;owned\x07\x1b[2J\x00\r\x9b31m\u202e"
    write(site, "gpu-a", check("fail", reason=reason, found=reason, fix=reason))
    drift = json.loads((site / ".bedplate/evidence/host-gpu-a.json").read_text())
    (site / ".bedplate/evidence/drift-gpu-a.json").write_text(json.dumps(drift))
    for command in ("report", "drift"):
        cli.main([command, str(site)])
        printed = capsys.readouterr().out
        assert "owned" in printed
        assert printed.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["\0c<b>", "\ud800", "\ufffe", "\x1b]", "]]>", "\"&'<"])
def test_junit_is_well_formed_whatever_names_are(
    site: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    subject = {"kind": "cluster", "name": name, "pool": None}
    write(site, "cluster", check("fail", reason=name), check("skipped", reason=name))
    path = site / ".bedplate/evidence/cluster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"subject": subject}))
    assert report(site, capsys)[0] == 2
    root = ET.fromstring((site / ".bedplate/junit.xml").read_bytes())  # noqa: S314 - our own
    assert len(root.findall("testsuite/testcase")) == 5
