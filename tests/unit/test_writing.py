"""Files in one step: what a killed run has left goes with the next; names stay in their folder."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.bedplate.gpu.plugins.plugin_utils import evidence

from bedplate.common import kubeconfig, writing
from bedplate.common.errors import BedplateError
from bedplate.evidence.discovery import store
from bedplate.lock import load_lock, write_lock

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
#: Ends as `kill -9` does, when the bytes are there and before they have their name.
KILLED = """
import os, signal, sys
from pathlib import Path
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
site = Path(sys.argv[1])
{}
"""
WRITERS = {
    "lock": "from bedplate.lock.file import write_text; "
    "write_text(site / '.bedplate.lock.yml', 'x')",
    "kubeconfig": "from bedplate.common.kubeconfig import write; write(site, 'secret')",
    "discovery": "from bedplate.evidence.discovery.store import write_hosts; "
    "write_hosts(site, {'gpu-a': {'format': 1}})",
}


def files(folder: Path) -> list[str]:
    """Return every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("writer", WRITERS)
def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path, writer: str) -> None:
    program = KILLED.format(WRITERS[writer])
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program, tmp_path], timeout=120)
        assert done.returncode == -9
        (left,) = files(tmp_path)  # the second has removed what the first one left
    assert stat.S_IMODE((tmp_path / left).stat().st_mode) in {0o600, 0o644}
    subprocess.run(
        [sys.executable, "-c", program.replace("Path.replace =", "_ ="), tmp_path],
        check=True,
        timeout=120,
    )
    assert files(tmp_path) in (
        [".bedplate.lock.yml"],
        [".bedplate/kubeconfig"],
        [".bedplate/discovered/hosts/gpu-a.json"],
    )


def test_a_lock_that_is_up_to_date_removes_it_too(tmp_path: Path) -> None:
    write_lock(tmp_path, load_lock(DEMO))
    for left in (".bedplate.lock.yml.1aajx29z", ".new-bedplate.lock.yml.1aajx29z"):
        (tmp_path / left).touch()
    (tmp_path / ".bedplate.lock.yml.orig").touch()
    assert write_lock(tmp_path, load_lock(DEMO)) is False
    assert files(tmp_path) == [".bedplate.lock.yml", ".bedplate.lock.yml.orig"]


def test_a_kubeconfig_that_goes_takes_what_was_left_with_it(tmp_path: Path) -> None:
    kubeconfig.write(tmp_path, "secret")
    assert stat.S_IMODE(kubeconfig.path_in(tmp_path).stat().st_mode) == 0o600
    (tmp_path / ".bedplate/.kubeconfig.1aajx29z").touch()
    kubeconfig.remove(tmp_path)
    assert files(tmp_path) == []


def test_what_another_run_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with writing.stream(path) as slow:
        slow.write(b"[]")
        (temporary,) = tmp_path.iterdir()
        writing.replace(path, b"{}")
        assert temporary.exists()
    assert path.read_text() == "[]"
    assert files(tmp_path) == ["a.json"]


def test_a_name_of_any_length_is_written(tmp_path: Path) -> None:
    """A mirror's files have the names of their addresses."""
    for name in ("x" * 255, "ü" * 127):
        writing.replace(tmp_path / name, b"whole")
    assert files(tmp_path) == ["x" * 255, "ü" * 127]


#: Names that an inventory may have, and a file may not.
BAD = ["../../../../PWNED", "/etc/x", "a/b", "..", ".", "", ".hidden", "a\0b", "a\nb", "x" * 300]


@pytest.mark.parametrize("name", BAD)
def test_a_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    site = tmp_path / "a/b/c/d/site"
    site.mkdir(parents=True)
    with pytest.raises(BedplateError, match="name cannot be a file's — host — got '"):
        store.write_hosts(site, {name: {"format": 1}})
    with pytest.raises(AnsibleError, match="name cannot be a file's — host — got '"):
        evidence.place(site, "drift", name)
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["gpu-a", "10.0.0.1", "fe80::1", "rack 1", "ü", "x" * 200])
def test_plain_names_are_files(tmp_path: Path, name: str) -> None:
    store.write_hosts(tmp_path, {name: {"format": 1, "facts": {}}})
    assert list(store.earlier(tmp_path, [name])) == [name]
    path = evidence.place(tmp_path, "host", name)
    assert path.parent == tmp_path
    evidence.write(path, {"a": "\ud800"})
    assert evidence.read(path) == {"a": "?"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("facts", [{"gpus": 7}, {"gpus": [7]}, {"machine": "x"}, {"before": []}, 7])
def test_odd_evidence_of_before_is_none(facts: object) -> None:
    """A play goes on where the last evidence was edited or damaged."""
    document = {"checked": "now", "facts": {}, "checks": []}
    evidence.compare_hardware(document, {"checked": "then", "facts": facts}, drift=True)
    assert [one["result"] for one in document["checks"]] == ["skipped"]
