"""What plays get, and when they get nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import load_bill, place
from bedplate.cli import main as cli
from bedplate.common.errors import LockError
from bedplate.components import locked_site as module
from bedplate.components.locked_site import locked_site
from bedplate.lock import load_lock
from bedplate.portable import openpgp
from tests.unit.bill.made import make, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable

DEMO = Path(__file__).parents[2] / "inventories" / "demo"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Copy the demo site with its lock and a bill."""
    copy = tmp_path / "site"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    make(copy)
    return copy


def test_lock_with_artifacts(site: Path) -> None:
    found = locked_site(site)
    assert found["pools"]["pool_train"]["expects"]["count"] == 8
    assert found["artifacts"]["cri-tools"] == {
        "version": "1.36.0",
        "url": "http://10.213.0.1:5080/files/vendor.example.com/cri-tools-1.36.0",
        "sha256": sha256_of("cri-tools"),
        "size": load_bill(site).files["cri-tools"].size,
    }
    pause = "registry.k8s.io/pause:3.10.2"
    assert found["images"]["node"][pause] == f"sha256:{sha256_of(pause)}"
    assert {len(one) for one in found["images"].values()} == {1, 3, 4, 5}


def test_no_lock_names_the_command(site: Path) -> None:
    (site / ".bedplate.lock.yml").unlink()
    with pytest.raises(LockError, match=f"run: bedplate plan {site}"):
        locked_site(site)


def test_stale_lock_shows_the_difference_also_after_a_good_answer(site: Path) -> None:
    locked_site(site)
    pool = site / "group_vars" / "pool_train.yml"
    pool.write_text(pool.read_text().replace("count: 8", "count: 10"))
    with pytest.raises(LockError, match="pool_train: expects count 8 → 10"):
        locked_site(site)


def test_ansibles_own_settings_are_asked_again(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say as whom and where hosts are reached, and the lock has that."""
    locked_site(site)
    monkeypatch.setenv("ANSIBLE_REMOTE_PORT", "2200")
    with pytest.raises(LockError, match="cp1, gpu-a and gpu-b: port 22 → 2200"):
        locked_site(site)


#: As a worker of Ansible's: it has what Ansible imports, and no more.
ANSWER = """
import sys
from pathlib import Path
from bedplate.components.locked_site import locked_site
assert locked_site(Path(sys.argv[1]))["pools"]
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"clingo", "pydantic", "yaml"}))
"""


def test_a_kept_answer_imports_nothing_that_checks(site: Path) -> None:
    """Each task of each host asks in a process of its own: imports cost more than all else."""
    said = [
        subprocess.run(
            [sys.executable, "-c", ANSWER, site], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert said == [["clingo", "pydantic", "yaml"], []]


ASKS = """#!{python}
import json, pathlib
count = int(pathlib.Path({elsewhere!r}).read_text())
with open({asked!r}, "a") as asked:
    asked.write("asked\\n")
hosts = {{"new1": {{"ansible_host": "10.213.0.99"}}}} if count else {{}}
group = {{"hosts": list(hosts)}}
print(json.dumps({{"pool_train": group, "_meta": {{"hostvars": hosts}}}}))
"""
#: As a run of Ansible's: a program whose workers ask one after the other.
RUN = """
import multiprocessing, sys
from pathlib import Path
from bedplate.components.locked_site import locked_site
started = multiprocessing.get_context("fork")
for _ in range(int(sys.argv[2])):
    worker = started.Process(target=locked_site, args=(Path(sys.argv[1]),))
    worker.start()
    worker.join()
sys.exit(worker.exitcode)
"""


def test_a_runs_name_is_that_of_the_program_that_began_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On another boot the same number and time are another run."""
    boot, number, ticks = module._run().split()
    assert (len(boot), number) == (36, str(os.getpid()))
    assert int(ticks) > 0
    monkeypatch.setattr(module.os, "getpid", lambda: 2**30)
    assert not module._run()


def test_a_program_is_asked_once_by_each_run(site: Path, tmp_path: Path) -> None:
    """By each of its workers it would cost seconds for each task of each host."""
    elsewhere, asked = tmp_path / "elsewhere", tmp_path / "asked"
    elsewhere.write_text("0")
    program = site / "more"
    program.write_text(
        ASKS.format(python=sys.executable, elsewhere=str(elsewhere), asked=str(asked))
    )
    program.chmod(0o755)

    def run(workers: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RUN, site, str(workers)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first = run(1)
    assert first.returncode == 0, first.stderr
    once = asked.read_text()
    assert run(3).returncode == 0
    assert asked.read_text() == 2 * once
    elsewhere.write_text("1")  # no file of the site changes
    assert "new1 is new" in run(1).stderr


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("notes.yml", "all: {}\n", True),
        ("cloud.yml", "plugin: constructed\nstrict: false\n", False),
        ("group_vars/all/more.yml", "more: \"{{ lookup('env', 'HOME') }}\"\n", False),
    ],
)
def test_what_comes_from_elsewhere_is_kept_for_the_run(
    site: Path, name: str, text: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / name).write_text(text)
    checks = count()
    monkeypatch.setattr(module, "_checked", lambda _: {"check": next(checks)})

    def asked(run: str) -> int:
        monkeypatch.setattr(module, "_run", lambda: run)
        return int(locked_site(site)["check"])

    assert [asked("one"), asked("one"), asked("another")] == [0, 0, 0 if kept else 1]
    if not kept:  # a system that does not say which run it is
        assert [asked(""), asked("")] == [2, 3]


@pytest.mark.parametrize("name", ["common/new.py", "resolver/rules.lp", "catalogue/facts/gpu.yml"])
def test_another_version_of_the_package_is_another_answer(
    site: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    monkeypatch.setattr(module, "__file__", str(package / "components" / "locked_site.py"))
    (package / name).parent.mkdir(parents=True)
    before = module._looked_at(site)
    (package / name).write_text("new")
    assert module._looked_at(site) != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: 2\n<<<<<<< HEAD\n", ".*:2: lock has conflict markers — "),
        ("format: 1\n", "lock is of another format — .* format — got 1 / allowed 2"),
        ("[garbage", "lock cannot be read"),
        ("format: 2\n", "lock cannot be read"),
    ],
)
def test_unusable_locks(site: Path, text: str, message: str) -> None:
    (site / ".bedplate.lock.yml").write_text(text)
    with pytest.raises(LockError, match=message):
        load_lock(site)


def test_a_lock_that_was_edited_is_stale_whatever_its_size_and_time(site: Path) -> None:
    locked_site(site)
    lock = site / ".bedplate.lock.yml"
    before = lock.stat()
    text = lock.read_text()
    lock.write_text(text.replace("10.244.0.0/16", "10.245.0.0/16"))
    os.utime(lock, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (lock.stat().st_size, lock.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(LockError, match=r"pod_subnet 10\.245\.0\.0/16 → 10\.244\.0\.0/16"):
        locked_site(site)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_no_lock(site: Path, make: Callable[[Path], None]) -> None:
    """A pipe would be waited for."""
    (site / ".bedplate.lock.yml").unlink()
    make(site / ".bedplate.lock.yml")
    with pytest.raises(LockError, match=r"lock cannot be read — .* — got (a pipe|Is a directory)"):
        locked_site(site)


def test_a_pipe_in_place_of_what_was_kept_is_not_waited_for(site: Path) -> None:
    (site / ".bedplate").mkdir()
    os.mkfifo(site / ".bedplate" / module.CACHE)
    assert locked_site(site)["pools"]


def _public_key() -> bytes:
    """Return a packet that has the form of a public key: enough for its fingerprint."""
    body = b"\x04" + bytes(20)
    return bytes([0x80 | 6 << 2, len(body)]) + body


def test_packages_come_from_the_mirror_once_it_has_them(site: Path) -> None:
    assert locked_site(site)["packages"] == {}  # the demo's hosts have sources of their own
    wishes = site / "group_vars/all/bedplate.yml"
    wishes.write_text(wishes.read_text().replace("  packages: hosts\n", ""))
    assert cli.main(["plan", str(site)]) == 0
    with pytest.raises(LockError, match=f"no file .* run: bedplate mirror packages {site}"):
        locked_site(site)
    key = openpgp.armoured(_public_key())
    (fingerprint,) = openpgp.fingerprints(key.encode())
    one = place.Place(fingerprint=fingerprint, key=key, systems=["debian-12"])
    place.write(site, one)
    with pytest.raises(LockError, match="nothing for debian-13"):
        locked_site(site)
    place.write(site, one.model_copy(update={"systems": ["debian-12", "debian-13"]}))
    found = locked_site(site)["packages"]
    assert found["url"] == f"http://10.213.0.1:5080/files/{one.address}"
    assert found["key"] == key


def test_a_site_that_takes_no_file_is_answered_too(site: Path) -> None:
    """Nothing can be kept in it: here a file is in the way, elsewhere its user may only read."""
    (site / ".bedplate").write_text("")
    assert locked_site(site)["pools"]
