"""Files that a newcomer, an editor or a forge looks for: what they name is there."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cli import reference
from bedplate.site import schema

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("src", "plugins", "roles", "playbooks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".yml", ".j2"} and path.is_file()
]


def targets() -> set[str]:
    """Return the Makefile's."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def loaded(name: str) -> Any:
    """Return a file of the root as YAML has it."""
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_makefile_is_short_and_its_targets_are_explained() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    assert len(targets()) <= 8
    assert {name for name in targets() if f"make {name}" not in pages} <= {"env"}
    assert set(re.findall(r"make ([a-z]+)`", pages)) <= targets()


def test_the_forge_runs_what_contributors_run() -> None:
    jobs = loaded(".github/workflows/checks.yml")["jobs"]
    run = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert run == ["make check", "make test"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec make test")


def test_a_release_is_built_from_a_checked_tag_and_published_without_a_token() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    release = yaml.safe_load(text)
    build, publish = release["jobs"].values()
    assert release[True] == {"push": {"tags": ["v*"]}}, "YAML 1.1 reads the key `on` as true"
    assert next(step["run"] for step in build["steps"] if "run" in step) == "make check"
    assert "permissions" not in build, "only what publishes may ask for an identity"
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets" not in text
    assert not [step for step in publish["steps"] if "run" in step]


def test_an_older_python_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number that pip would only compare after it has looked for every dependency."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    config = whole["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert f">={config['python']}" == whole["project"]["requires-python"]
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Python(str(ROOT), config)
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    with pytest.raises(SystemExit) as refused:
        module.Python(str(ROOT), config)
    said = str(refused.value)
    assert said.startswith(f"bedplate needs Python {config['python']} or newer — got 3.11.2 (")
    assert f"uv venv --seed --python {config['python']}" in said


def test_hooks_are_tools_of_the_environment() -> None:
    (local,) = loaded(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    locked = (ROOT / "requirements.lock").read_text()
    for hook in local["hooks"]:
        program = hook["entry"].split()[0]
        tool = Path(program).name
        assert program.startswith(".venv/bin/")
        assert tool == "python" or re.search(rf"^{tool}==", locked, re.MULTILINE)


def test_the_page_of_the_command_line_is_the_programs() -> None:
    """Write it again with: python -m bedplate.cli.reference"""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.text()


def test_every_message_of_the_page_is_one_of_ours() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) >= 20
    texts = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert [message for message in messages if message not in texts] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "inventories/example/group_vars").rglob("*.yml")), ids=lambda p: p.name
)
def test_editors_find_the_schema_of_the_example(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / named).resolve() == schema.PATH.resolve()


def test_types_are_for_others_too() -> None:
    assert (ROOT / "src" / "bedplate" / "py.typed").read_bytes() == b""
