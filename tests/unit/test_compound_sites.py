"""Sites with several independent faults: all come in the first round, and two rounds are enough.

What a fix says is done to the letter, by a program: it writes the word at the place of the message.
"""

from __future__ import annotations

import json
import re
import shutil
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from bedplate.cli import main as cli

if TYPE_CHECKING:
    from collections.abc import Iterable

SITE = Path(__file__).with_name("two_pools")
TRAIN, CLASS, ALL = (f"group_vars/{name}.yml" for name in ("pool_train", "pool_class", "all/more"))
ENTRY = re.compile(r'(?P<key>[\w-]+)(?P<between>:\s*)(?P<value>"[^"]*"|[\w.-]+)')
WORD = re.compile(r"write (?:mode: )?(\"[^\"]*\"|[\w.-]+)")


class Fault(NamedTuple):
    """A line that is wrong by itself, and the rule and key by which it is refused."""

    file: str
    text: str
    rule: str
    key: str


#: Each at another place of what a plan does: form, names, rules of the solver, what is installed.
FAULTS = {
    "key": Fault(ALL, "bedplate_proxy: {urll: 'http://p.example:1'}", "setting-form", "urll"),
    "setting": Fault(ALL, "bedplate_pinz: {}", "known-keys", "bedplate_pinz"),
    "role": Fault(
        CLASS,
        "nvidia_driver_reboot_alowed: true",
        "role-variables",
        "nvidia_driver_reboot_alowed",
    ),
    "value": Fault(
        TRAIN, "nvidia_driver_remove_foreign: perhaps", "role-variables", "remove_foreign"
    ),
    "number": Fault(
        TRAIN, "bedplate_driver: {branch: 535, source: distro}", "setting-form", "branch"
    ),
    "scheduler": Fault(ALL, "bedplate_schedulers: [kueu]", "addon-known", "bedplate_schedulers"),
    "cuda": Fault(CLASS, 'bedplate_cuda: ["99.9"]', "cuda-known", "bedplate_cuda"),
    "branch": Fault(CLASS, 'bedplate_driver: {branch: "595"}', "gpu-branch", "branch"),
    "mps": Fault(CLASS, "bedplate_sharing: {mode: mps, replicas: 99}", "mps-clients", "replicas"),
    "installed": Fault(ALL, "bedplate_operators: [gpu-operator]", "installable", "operators"),
}


def site(folder: Path, faults: Iterable[Fault]) -> Path:
    """Make a sound site with faults."""
    made = folder / "site"
    shutil.copytree(SITE, made)
    for fault in faults:
        with (made / fault.file).open("a", encoding="utf-8") as file:
            file.write(f"{fault.text}\n")
    return made


def planned(made: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Plan a site, and return all that is refused or cannot be installed."""
    cli.main(["plan", str(made), "--json"])
    found = json.loads(capsys.readouterr().out)
    return [*found["refusals"], *found["not_installable"]]


def obey(problem: dict[str, Any]) -> None:
    """Do what a fix says, at the place of its problem: write, quote or remove."""
    path, fix = Path(problem["file"]), problem["fix"]
    lines = path.read_text(encoding="utf-8").splitlines()
    line = lines[problem["line"] - 1]
    name = re.split(r"[.\[]", problem["key"].rstrip("]"))[-1]
    if fix.startswith(("remove", "correct")) or fix == "write one of these, or remove it":
        entry = re.search(rf"\b{name}: (\[.*\]|{{.*}}|[^,}}]*)", line) or re.match(".*", line)
        assert entry is not None
        lines[problem["line"] - 1] = line.replace(entry[0], "")
    elif quoted := re.fullmatch('quote it: (".*")', fix):
        lines[problem["line"] - 1] = line.replace(quoted[1].strip('"'), quoted[1])
    else:
        word = WORD.match(fix)
        assert word is not None, fix
        got = re.split(" with | on |, ", problem["got"])[0].strip('"')
        lines[problem["line"] - 1] = re.sub(rf'"?\b{re.escape(got)}\b"?', word[1], line, count=1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def clashes(names: Iterable[str]) -> bool:
    """Say whether two faults write one setting of one file: the second would replace the first."""
    roots = [(FAULTS[name].file, FAULTS[name].text.partition(":")[0]) for name in names]
    return len(set(roots)) < len(roots)


TRIPLES = [names for names in combinations(FAULTS, 3) if not clashes(names)]


@pytest.mark.parametrize("names", [*TRIPLES[::8], tuple(FAULTS)], ids="-".join)
def test_all_faults_come_at_once_and_their_fixes_lead_to_a_plan(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [FAULTS[name] for name in names]
    made = site(tmp_path, faults)
    first = planned(made, capsys)
    said = [(problem["rule"], problem["key"]) for problem in first]
    for fault in faults:
        assert any(rule == fault.rule and fault.key in key for rule, key in said), (fault, said)
    assert len(said) == len(faults), said
    for problem in first:
        obey(problem)
    for problem in planned(made, capsys):
        obey(problem)
    assert planned(made, capsys) == []


def test_the_first_example_takes_one_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Branch and clients are refused by the solver, the system's MPS by no role."""
    made = site(tmp_path, [FAULTS["branch"], FAULTS["mps"]])
    settings = made / "group_vars" / "all" / "bedplate.yml"
    settings.write_text(settings.read_text().replace("debian-12", "ubuntu-24.04"))
    rules = [problem["rule"] for problem in planned(made, capsys)]
    assert rules == ["gpu-branch", "installable", "mps-clients"]
