"""Every bad site is refused with the file, the line and the key of its mistake, and nothing else.

The sites come from `mutations.py`, in this process; the seed is printed with what went wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bedplate.cli import main as cli
from tests.properties.mutations import BadSite, bad_sites, bases, with_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SEED = 20261121
#: In the default layer: some of each kind, and this many at least.
AT_LEAST = 150
REFUSED = 3
LOCK = b"# an older lock\nformat: 1\n"


#: What Python tells of before it opens a connection, or starts another program.
REACHING = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "pty.spawn",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendmsg",
    "socket.sendto",
    "subprocess.Popen",
}
#: What Ansible's plugins ask of this very machine when the first template imports them.
AT_HOME = ("socket.getaddrinfo ('127.0.0.1'", "subprocess.Popen ('/sbin/ldconfig'")
#: Those who look at what is reached for: a hook can never be taken out again.
WATCHING: list[list[str]] = []


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if WATCHING and event in REACHING:
        told = f"{event} {arguments}"
        if not told.startswith(AT_HOME):
            WATCHING[-1].append(told)


sys.addaudithook(_notice)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Notice every connection and every program that is started meanwhile."""
    WATCHING.append([])
    try:
        yield WATCHING[-1]
    finally:
        WATCHING.pop()


def planned(site: Path) -> tuple[int, str, str]:
    """Run `bedplate plan --json` and return its exit status and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(["plan", str(site), "--json", "--today", "2026-11-21"])
    return status, out.getvalue(), err.getvalue()


def wrong(bad: BadSite, site: Path, *, lock: bool) -> str | None:
    """Plan a bad site and return what its refusal lacks, if anything."""
    bad.write(site)
    path = site / ".bedplate.lock.yml"
    if lock:
        path.write_bytes(LOCK)
    try:
        with watched() as found:
            status, out, err = planned(site)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found:
        return f"a refusal reached out: {found}"
    if status != REFUSED:
        return f"exit status {status}: {err}"
    if "Traceback" in err:
        return err
    if path.exists() != lock or (lock and path.read_bytes() != LOCK):
        return "the lock was touched"
    refusals = json.loads(out)["refusals"]
    file = str(site / bad.file) if bad.file else str(site)
    others = {(str(site / name), key) for name, key in bad.or_else}
    for one in refusals:
        if not (one["what"] and one["fix"]):
            return f"a refusal without what or fix: {one}"
        here = one["file"] == file and bad.line in (None, one["line"])
        if (here and bad.key in (None, one["key"])) or (one["file"], one["key"]) in others:
            return None
    got = [f"{one['file']}:{one['line']} {one['key']}: {one['what']}" for one in refusals]
    return f"wanted {bad.file}:{bad.line} {bad.key}, got {got}"


def some_of_each(sites: Sequence[BadSite]) -> list[BadSite]:
    """Return a part of the sites in which every kind is."""
    seen: Counter[str] = Counter()
    chosen = []
    share = max(1, len(sites) // AT_LEAST)
    for site in sites:
        if seen[site.kind] % share == 0:
            chosen.append(site)
        seen[site.kind] += 1
    return chosen


def check(sites: Sequence[BadSite], folder: Path, seed: int) -> None:
    """Plan all and fail with every site that was not refused as it should be."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    started, failures = time.monotonic(), []
    for number, bad in enumerate(sites):
        if said := wrong(bad, folder / str(number), lock=chance.random() < 0.5):
            failures.append(f"{bad.kind}, {bad.base}, {bad.said}: {said}")
    kinds = Counter(bad.kind for bad in sites)
    seconds = time.monotonic() - started
    print(f"seed {seed}: {len(sites)} bad sites of {len(kinds)} kinds in {seconds:.0f} s: {kinds}")
    assert not failures, f"seed {seed}, {len(failures)} of {len(sites)}:\n" + "\n".join(failures)


@pytest.mark.parametrize("base", sorted(bases()))
def test_sites_before_mutation_are_read(base: str, tmp_path: Path) -> None:
    """A refusal is the mutation's own: what the sites start from has no mistake of form."""
    from bedplate.site import load_site

    files = bases()[base]
    sound = BadSite("sound", base, "", with_text(files, "hosts.yml", files["hosts.yml"]), "", 0, "")
    assert load_site(sound.write(tmp_path / base)).hosts


def test_what_reaches_out_is_noticed() -> None:
    """Else the trap of the others would be none."""
    with watched() as found:
        subprocess.run(["true"], check=True)
        with socket.socket() as plug, contextlib.suppress(OSError):
            plug.connect(("127.0.0.1", 9))
        told = len(found)
    subprocess.run(["true"], check=True)
    assert found[0].startswith("subprocess.Popen ")
    assert any(one.startswith("socket.connect ") for one in found)
    assert len(found) == told


def test_bad_sites_are_refused_at_the_right_place(tmp_path: Path) -> None:
    sites = some_of_each(bad_sites(SEED))
    assert len(sites) >= AT_LEAST
    check(sites, tmp_path, SEED)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(1, 6))
def test_sweep_all_bad_sites_are_refused_at_the_right_place(seed: int, tmp_path: Path) -> None:
    """All of them, misspelt in other places each time: `make prove AREA=bad-sites`."""
    check(bad_sites(seed), tmp_path, seed)
