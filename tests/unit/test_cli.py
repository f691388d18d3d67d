"""The contract of `bedplate plan`: what it prints as JSON, and how it ends."""

from __future__ import annotations

import gc
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cli import main as cli

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
TODAY = ["--today", "2026-11-21"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site with its lock."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    return copy


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    """Run `bedplate plan --json`; the output is one object and nothing else."""
    status = cli.main(["plan", "--json", *TODAY, *map(str, arguments)])
    printed = capsys.readouterr()
    assert printed.err == ""
    content = json.loads(printed.out)
    assert list(content) == ["ok", "lock", "refusals", "not_installable", "warnings"]
    return status, content


def misspell(site: Path) -> None:
    """Add a wish that nobody knows, in the pool's file."""
    path = site / "group_vars/pool_train.yml"
    path.write_text(path.read_text() + "bedplate_drivr: {}\n")


def test_planned(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    status, content = as_json(capsys, site)
    assert (status, content["ok"], content["refusals"]) == (0, True, [])
    written = yaml.safe_load((site / ".bedplate.lock.yml").read_text())
    assert content["lock"] == written
    assert content["lock"]["pools"]["pool_train"]["expects"] == {
        "resource": "nvidia.com/gpu",
        "count": 8,
        "by": "cluster",
    }


def test_the_demos_plan_warns_that_its_branch_has_ended(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = "driver branch R535 reached its end of life on 2026-06-30 (https://docs.nvidia.com/"
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    _, rest = re.split(r"\nWarnings \(\d+ in \d+ kinds\):\n", capsys.readouterr().out)
    assert f"  pool_class, pool_train: {ended.partition(' (')[0]}\n" in rest.partition("\n\n")[0]
    assert cli.main(["plan", *TODAY, "--why", str(site)]) == 0
    _, rest = re.split(r"\nWarnings \(\d+\):\n", capsys.readouterr().out)
    shown = rest.partition("\n\n")[0]
    _, content = as_json(capsys, site)
    for pool in ("pool_class", "pool_train"):
        assert f"  {pool}: {ended}" in shown
        assert [told for told in content["warnings"] if told.startswith(f"{pool}: {ended}")]


def test_garbage_is_collected_again_afterwards(site: Path) -> None:
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert gc.isenabled()
    with pytest.raises(SystemExit):
        cli.main(["plan", "--chek"])
    assert gc.isenabled()


def test_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misspell(site)
    before = (site / ".bedplate.lock.yml").read_bytes()
    status, content = as_json(capsys, site)
    assert status == 3
    lines = (site / "group_vars/pool_train.yml").read_text().splitlines()
    assert content == {
        "ok": False,
        "lock": None,
        "refusals": [
            {
                "rule": "known-keys",
                "what": "unknown setting",
                "file": f"{site}/group_vars/pool_train.yml",
                "line": len(lines),
                "key": "bedplate_drivr",
                "got": "bedplate_drivr",
                "allowed": "bedplate_driver",
                "fix": "write bedplate_driver",
                "sources": [],
            }
        ],
        "not_installable": [],
        "warnings": [],
    }
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_a_rule_names_its_sources(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = site / "group_vars/pool_class.yml"
    text = path.read_text().replace("t4-16gb", "v100-sxm2-32gb")
    path.write_text(text + 'bedplate_driver: {branch: "595"}\n')
    status, content = as_json(capsys, site)
    assert status == 3
    sources = [source for refusal in content["refusals"] for source in refusal["sources"]]
    assert sources
    assert all(source.startswith("https://") for source in sources)


def test_the_rule_is_told_with_and_without_sources(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site / "group_vars/pool_class.yml"
    text = path.read_text().replace("t4-16gb", "v100-sxm2-32gb")
    path.write_text(text + 'bedplate_driver: {branch: "595"}\n')
    assert cli.main(["plan", *TODAY, str(site)]) == 3
    assert "\n  rule gpu-branch, source https://" in capsys.readouterr().err
    misspell(site)
    assert cli.main(["plan", *TODAY, str(site)]) == 3
    assert "\n  rule known-keys\n" in capsys.readouterr().err


def test_check(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, content = as_json(capsys, "--check", site)
    assert (status, content["ok"]) == (0, True)

    path = site / "group_vars/pool_train.yml"
    path.write_text(path.read_text().replace("count: 8", "count: 4"))
    before = (site / ".bedplate.lock.yml").read_bytes()
    status, content = as_json(capsys, "--check", site)
    assert (status, content["ok"], content["refusals"]) == (2, False, [])
    assert content["lock"]["pools"]["pool_train"]["expects"]["count"] == 4
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_check_without_a_lock_is_stale(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    status, content = as_json(capsys, "--check", site)
    assert (status, content["ok"], content["lock"]) == (2, False, None)
    (refusal,) = content["refusals"]
    assert refusal["what"] == "site has no lock"
    assert refusal["fix"] == f"run: bedplate plan {site}"
    assert not (site / ".bedplate.lock.yml").exists()


def test_check_of_a_wrong_site_is_refused_and_not_stale(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    misspell(site)
    assert as_json(capsys, "--check", site)[0] == 3


def test_no_such_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, content = as_json(capsys, tmp_path / "nowhere")
    assert status == 3
    assert content["refusals"][0]["what"] == "no such site"


def test_only_the_lock_is_written(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tree() -> dict[str, bytes]:
        found = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
        return {str(path.relative_to(site)): content for path, content in found.items()}

    before = tree()
    (site / ".bedplate.lock.yml").unlink()
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert f"\nWrote {site}/.bedplate.lock.yml. Reasons: --why.\n" in capsys.readouterr().out
    assert tree() == before


def test_a_lock_that_cannot_be_written(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    (site / ".bedplate.lock.yml").unlink()
    monkeypatch.setattr("tempfile.mkstemp", full)
    assert cli.main(["plan", *TODAY, str(site)]) == 3
    assert capsys.readouterr().err == (
        f"lock cannot be written — {site} — got [Errno 28] No space left on device — make the "
        "site's directory writable\n  rule lock\n\n1 error; no lock was written.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["plan"], "the following arguments are required: SITE"),
        (["paln", "x"], "invalid choice: 'paln'"),
        (["plan", "--today", "soon", "x"], "got 'soon', allowed YYYY-MM-DD"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert words in capsys.readouterr().err


def test_wrong_usage_is_not_a_stale_lock(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["plan", "--chek", "somewhere"])
    assert caught.value.code == 3
    assert "unrecognized arguments: --chek" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["plan", "x"], "planning.command"),
        (["explain", "x", "pool_a"], "planning.explain"),
        (["report", "x"], "evidence.command"),
        (["drift", "x"], "evidence.drift_command"),
    ],
)
def test_a_bug_ends_with_1_and_its_traceback(arguments: list[str], module: str) -> None:
    program = (
        f"import sys; import bedplate.{module} as command; from bedplate.cli.main import main\n"
        f"command.run = lambda *_, **__: 1 / 0\nsys.exit(main({arguments}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_warnings_are_counted_and_the_rest_is_behind_a_flag(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, content = as_json(capsys, site)
    number = len(content["warnings"])
    monkeypatch.setattr("bedplate.planning.screen.WARNINGS", 2)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    _, _, rest = capsys.readouterr().out.partition(f"\nWarnings ({number} in 9 kinds):\n")
    *kinds, more = rest.partition("\n\n")[0].splitlines()
    assert len([kind for kind in kinds if not kind.startswith("    ")]) == 2
    assert more == "  … and 7 more kinds: --why"
    assert cli.main(["plan", *TODAY, "--why", str(site)]) == 0
    _, _, rest = capsys.readouterr().out.partition(f"\nWarnings ({number}):\n")
    assert len(rest.partition("\n\n")[0].splitlines()) == len(content["warnings"])
