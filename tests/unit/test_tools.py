"""The builds' data and their promises, without building anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.substrate.tools import build

TOOLS = build.tools()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "tools").mkdir(parents=True)
    return tmp_path / "cache"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_module_file_pins_the_tools_module_with_checksums(tool: build.Tool) -> None:
    lines = (tool.folder / "go.mod").read_text().splitlines()
    pins = [line.split() for line in lines if tool.module in line.split()]
    versions = {(words[words.index(tool.module) :] + [""])[1] for words in pins}
    # The Kubernetes provider has no tag of its own release: its module is pinned by commit.
    expected = f"v{tool.version}" if tool.name != "pulumi-kubernetes" else "v4.0.0-20260115033456"
    assert [v for v in versions if v.startswith(expected)], versions
    sums = (tool.folder / "go.sum").read_text()
    assert f"\n{tool.module} " in f"\n{sums}"


def test_every_folder_is_a_tool() -> None:
    folders = {path.parent.name for path in build.FOLDER.glob("*/go.mod")}
    assert folders == set(TOOLS)


def test_a_failed_build_leaves_nothing_and_is_not_taken_for_built(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = TOOLS["etcd"]

    def fails(*_: object) -> None:
        raise build.BuildError("broken")

    monkeypatch.setattr(build, "shown", fails)
    with pytest.raises(build.BuildError, match="broken"):
        build.build(tool, Path("/nonexistent/go"))
    assert not build.built(tool)
    assert list((own_cache / "tools").iterdir()) == []


def program(folder: Path, says: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "pulumi"
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("says", "taken"),
    [("v3.259.0", True), ("v3.300.1", True), ("v3.258.9", False), ("v4.0.0", False), ("?", False)],
)
def test_the_users_own_program_is_taken_if_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, *, taken: bool
) -> None:
    own = program(tmp_path / "bin", says)
    monkeypatch.setenv("PATH", str(own.parent))
    assert build.users_own(TOOLS["pulumi"]) == (own if taken else None)


def test_a_program_of_our_own_cache_is_not_the_users(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = program(own_cache / "bin", "v3.259.0")
    monkeypatch.setenv("PATH", str(ours.parent))
    assert build.users_own(TOOLS["pulumi"]) is None


def test_a_full_disk_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5e9))
    with pytest.raises(build.BuildError, match=r"got 5 GB free, allowed at least \d+ GB"):
        build.check_machine(list(TOOLS.values()))


def test_the_users_go_settings_do_not_reach_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOFLAGS", "GOROOT", "GOPATH", "CGO_ENABLED"):
        monkeypatch.setenv(name, "users-own")
    variables = build.environment(Path("/opt/go/bin/go"), cgo=False)
    assert "users-own" not in variables.values()


def test_unknown_tool_is_an_error_that_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build.main(["pulumy"])
    assert "unknown: pulumy — allowed: kubernetes, pulumi" in capsys.readouterr().err
