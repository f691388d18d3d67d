"""A command imports what it needs and no more: each runs in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.lock import digest

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
#: Runs a command without showing what it says, then tells its status and what was imported.
RUN = """\
import contextlib, io, json, sys
from bedplate.cli import main as cli
with contextlib.redirect_stdout(io.StringIO()):
    try:
        status = cli.main(sys.argv[1:])
    except SystemExit as ended:
        status = ended.code
print(json.dumps([status, sorted(sys.modules)]))
"""
#: The heavy packages: what a command may be slow for.
HEAVY = {
    "ansible",
    "argcomplete",
    "asyncssh",
    "clingo",
    "grpc",
    "jinja2",
    "matplotlib",
    "pulumi",
    "pydantic",
    "rich",
    "yaml",
}
PARTS = {
    "catalogue",
    "evidence.discovery",
    "evidence.report",
    "lock",
    "mirror",
    "resolver.plan",
    "planning.simulation.run",
    "portable.evidence",  # of `portable`, every command has the form of messages
    "provider",
    "resolver",
    "site",
    "components.cluster",
    "components.frameworks",
    "components.schedulers",
}
READING = {"ansible", "jinja2", "pydantic", "yaml"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site with evidence of one host."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    evidence = copy / ".bedplate" / "evidence" / "host-gpu-a.json"
    evidence.parent.mkdir(parents=True)
    check = {"id": "driver.loaded_version", "what": "the loaded driver", "result": "pass"}
    content = {
        "format": 1,
        "subject": {"kind": "host", "name": "gpu-a", "pool": None},
        "checked": "2026-11-21T10:00:00Z",
        "lock": digest(copy),
        "checks": [check],
    }
    evidence.write_text(json.dumps(content), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    ("command", "status", "heavy", "parts"),
    [
        (["--help"], 0, set(), set()),
        (["plan", "--help"], 0, set(), set()),
        (["init", "--help"], 0, set(), set()),
        (["render", "--help"], 0, set(), set()),
        (["--version"], 0, {"pydantic", "yaml"}, {"catalogue"}),
        (["gpus", "h100"], 0, {"pydantic", "rich", "yaml"}, {"catalogue"}),
        (["completion", "bash"], 0, {"argcomplete"}, set()),
        (
            ["plan", "SITE"],
            0,
            READING | {"clingo", "rich"},
            {"catalogue", "lock", "resolver.plan", "resolver", "site"},
        ),
        (
            ["explain", "SITE", "pool_train"],
            0,
            READING | {"clingo"},
            {"catalogue", "lock", "resolver.plan", "resolver", "site"},
        ),
        (
            ["simulate", "SITE", "JOBS"],
            0,
            READING | {"clingo", "rich"},
            {"catalogue", "lock", "resolver.plan", "planning.simulation.run", "resolver", "site"},
        ),
        (["report", "SITE"], 2, READING, {"evidence.report", "lock", "portable.evidence", "site"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_a_command_imports(
    command: list[str], status: int, heavy: set[str], parts: set[str], site: Path
) -> None:
    jobs = site / "jobs.csv"
    jobs.write_text("name,gpus\none,1\n")
    asked = [{"SITE": str(site), "JOBS": str(jobs)}.get(word, word) for word in command]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *asked],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    ended, modules = json.loads(done.stdout)
    assert ended == status
    assert {name for name in HEAVY if name in modules} == heavy
    assert {part for part in PARTS if f"bedplate.{part}" in modules} == parts
