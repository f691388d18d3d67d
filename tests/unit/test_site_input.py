"""Files that are no inventory, and secrets: each has its message, and none is waited for."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible.inventory import manager
from ansible.parsing.vault import VaultLib, VaultSecret

from bedplate.common.errors import LockError, SiteError
from bedplate.lock import load_lock
from bedplate.lock.model import FORMAT
from bedplate.site import files, load_site
from tests.unit.test_site_broken import broken, plan

if TYPE_CHECKING:
    from collections.abc import Callable


def said(site: Path) -> str:
    """Load a bad site and return its message, with the site's path left out."""
    with pytest.raises(SiteError) as caught:
        load_site(site)
    return str(caught.value).replace(str(site), "site")


@pytest.mark.parametrize("name", ["group_vars/pool_train.yml", "more.yml", "notes", "data.json"])
def test_a_hundred_megabytes_are_not_read(name: str, tmp_path: Path) -> None:
    site = broken(tmp_path, {})
    with (site / name).open("wb") as out:
        out.truncate(100_000_000)
    started = time.process_time()
    assert said(site) == (
        f"file is too large for an inventory — site/{name} — got 100000000 bytes / allowed "
        "10485760 bytes — keep data that is no inventory out of the site"
    )
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "name",
    ["README.md", "disk.rpm", "notes.rst", ".hosts.yml.swp", "group_vars/pool_train/rack.png",
     "group_vars/all.txt", "host_vars/old.csv"],
)  # fmt: skip
@pytest.mark.parametrize("content", [b"\x00\x01\xff", b"x" * 11_000_000], ids=["binary", "big"])
def test_what_ansible_passes_over_is_no_part_of_the_site(
    name: str, content: bytes, tmp_path: Path
) -> None:
    """By its settings of names that are no inventory, and of variables by their ending."""
    site = broken(tmp_path, {})
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_bytes(content)
    assert files.check(site)[1] == []


def test_ansible_says_itself_what_is_no_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "IGNORED", re.compile(rb"\.iso$"))
    site = broken(tmp_path, {})
    for name in ("disk.iso", "README.md"):
        (site / name).write_bytes(b"\x00")
    (problem,) = files.check(site)[1]
    assert (problem.what, problem.file) == ("file is binary", str(site / "README.md"))


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            _pipe,
            "no plain file — site/group_vars/x.yml — got a pipe, socket or device / allowed a ",
        ),
        (_broken_link, "file cannot be read — site/group_vars/x.yml — got No such file or direct"),
        (_link_to_itself, "file cannot be read — site/group_vars/x.yml — got Too many levels of "),
    ],
)
def test_what_is_no_file(make: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    site = broken(tmp_path, {})
    make(site / "group_vars" / "x.yml")
    assert said(site).startswith(message)


@pytest.mark.parametrize(
    "address",
    [
        "http://[fd00::1",
        "http://[1:2]:5080",
        "http://[::1]x:5080",
        "http://m.example:0",
        "http://m.example:99999",
        "http://m.example:abc",
        "http://:5080",
        "m.example:5080",
    ],
)
@pytest.mark.parametrize(
    "setting",
    [
        "bedplate_sources: {{mode: mirror, url: '{}'}}",
        "bedplate_sources: {{pip: '{}'}}",
        "bedplate_proxy: {{url: '{}'}}",
        "bedplate_hub: {{url: '{}'}}",
    ],
)
def test_an_address_without_a_host_or_with_an_odd_port(
    setting: str, address: str, tmp_path: Path
) -> None:
    site = broken(tmp_path, {"write": {"group_vars/gpu_pools.yml": setting.format(address) + "\n"}})
    line = said(site)
    assert line.startswith("site/group_vars/gpu_pools.yml:1:")
    assert "wrong value — bedplate_" in line


def test_folders_may_be_links_and_circles(tmp_path: Path) -> None:
    site = broken(tmp_path, {})
    (site / "group_vars").rename(tmp_path / "shared")
    (site / "group_vars").symlink_to(tmp_path / "shared")
    (site / "group_vars" / "all" / "again").symlink_to(site / "group_vars" / "all")
    assert load_site(site).hosts.keys() == {"cp1", "gpu-a", "gpu-b"}
    (tmp_path / "shared" / "pool_train.yml").write_bytes(b"\xff")
    assert said(site).startswith("site/group_vars/pool_train.yml:1: file is not UTF-8 text — ")


@pytest.mark.parametrize("target", ["/", "..", "../.."])
def test_a_link_to_where_the_site_is_is_not_followed(target: str, tmp_path: Path) -> None:
    """Ansible would read the whole machine as an inventory."""
    site = broken(tmp_path, {})
    (site / "group_vars" / "rootlink").symlink_to(target if target == "/" else "../" + target)
    started = time.process_time()
    line = said(site)
    assert line.startswith(
        "link leads to a folder that the site is in — site/group_vars/rootlink — got /"
    )
    assert time.process_time() - started < 20


def test_a_link_to_a_folder_of_other_things_is_one_line(tmp_path: Path) -> None:
    """A few broken files of a folder that sites share are named one by one."""
    site, other = broken(tmp_path, {}), tmp_path / "other"
    other.mkdir()
    (site / "group_vars" / "all" / "link").symlink_to(other)
    for number in range(5):
        (other / f"x{number}.yml").write_text("- no mapping\n")
    assert said(site).count("link/x") == 5
    (other / "x5.yml").write_text("- no mapping\n")
    assert said(site) == (
        "link leads to a folder of other things — site/group_vars/all/link — "
        f"got {other}, where 6 files cannot be read as inventory / "
        "allowed links to files, and to folders of variables — remove it from the site"
    )


def test_a_walk_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedplate.common.walking.MOST", 100)
    site = broken(tmp_path, {})
    (tmp_path / "many").mkdir()
    for number in range(110):
        (tmp_path / "many" / f"x{number}").touch()
    (site / "group_vars" / "all" / "link").symlink_to(tmp_path / "many")
    assert said(site).startswith(
        "site has no end — site/group_vars/all/link — got more than 100 files and folders / "
    )


class Noting(io.StringIO):
    """Notes in a file that something was written."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def write(self, text: str) -> int:
        """Keep a text."""
        self.mark.touch()
        return super().write(text)


def test_a_program_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends here as soon as it was."""
    site, mark = broken(tmp_path, {}), tmp_path / "named"
    program = site / "cloud"
    waits = f"while [ $n -lt 600 ] && [ ! -e {mark} ]; do sleep 0.1; n=$((n+1)); done"
    program.write_text(f"#!/bin/sh\nn=0; {waits}; echo '{{}}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("bedplate.site.waiting.PATIENCE", 0.2)
    monkeypatch.setattr("sys.stderr", Noting(mark))
    assert load_site(site)
    assert sys.stderr.getvalue().startswith(  # type: ignore[attr-defined]
        f"bedplate: still waiting for {program}; Ctrl-C ends it, and 300 s do\n"
    )


def test_a_program_that_hangs_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them has left its parent and its session, and all of them ignore a polite signal."""
    site, begun = broken(tmp_path, {}), tmp_path / "begun"
    program = site / "cloud"
    program.write_text(
        f"#!/bin/sh\ntrap '' TERM\n(setsid sleep 600 & echo $! >{begun}.1)\n"
        f"sleep 600 & echo $! >{begun}.2\necho $$ >{begun}.3\nwait\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("bedplate.site.waiting.LIMIT", 2.0)
    started = time.monotonic()
    (line,) = said(site).splitlines()
    assert time.monotonic() - started < 300
    assert re.fullmatch(
        r"reading the inventory was stopped — site — got no end after \d+ s from site/cloud / "
        r"allowed 2 s, and 1024 MiB of output — run the program alone, or keep its answer as "
        r"a file of the inventory",
        line,
    )
    for number in (1, 2, 3):
        _gone(int((tmp_path / f"begun.{number}").read_text()))


def test_a_program_that_prints_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = broken(tmp_path, {})
    program = site / "cloud"
    program.write_text("#!/bin/sh\nexec timeout 120 yes\n")
    program.chmod(0o755)
    monkeypatch.setattr("bedplate.site.waiting.LARGEST", 32 << 20)
    (line,) = said(site).splitlines()
    assert "got more than 32 MiB from site/cloud / allowed 300 s, and 32 MiB of output" in line


def test_a_lookup_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for one host's variables, after the inventory was read."""
    site = broken(tmp_path, {})
    (site / "group_vars/pool_train.yml").write_text(
        "bedplate_gpu: {model: \"{{ lookup('pipe', 'sleep 600') }}\", count: 8}\n"
    )
    monkeypatch.setattr("bedplate.site.waiting.LIMIT", 2.0)
    (line,) = said(site).splitlines()
    assert "got no end after 2 s from Ansible's plugins" in line


def _gone(process: int) -> None:
    """Wait until a process is no more, or is one that nobody has asked about since it ended."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} is still there")


def test_a_value_may_be_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value among clear ones, as `ansible-vault encrypt_string` writes it."""
    site = broken(tmp_path, {})
    password = tmp_path / "password"
    password.write_text("right\n")
    vault = VaultLib([("default", VaultSecret(b"right"))])
    secret = vault.encrypt(b"h100-pcie-80gb").decode().replace("\n", "\n    ")
    text = f"bedplate_gpu:\n  count: 8\n  model: !vault |\n    {secret}\n"
    (site / "group_vars" / "pool_train.yml").write_text(text)
    assert "an encrypted value, and no vault password" in said(site)
    # Ansible reads its configuration when it is imported: a process of its own.
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    done = plan(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_password_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(tmp_path, {})
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "nothing"))
    done = plan(tmp_path)
    assert done.returncode == 3
    # Before it stands what Ansible warns of.
    assert "\nno vault password — site — got " in done.stderr
    assert str(tmp_path / "nothing") in done.stderr
    assert "the file's name into ANSIBLE_VAULT_PASSWORD_FILE, or as " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<<<<<<< HEAD\nformat: 2\n=======\nformat: 2\n>>>>>>> other\n",
            "{site}/.bedplate.lock.yml:1: lock has conflict markers — got <<<<<<< HEAD / ",
        ),
        (
            "format: 1\nhosts: {}\n",
            "lock is of another format — {site}/.bedplate.lock.yml format — got 1 / allowed 2 — ",
        ),
    ],
)
def test_a_lock_of_another_kind_is_planned_anew(text: str, message: str, tmp_path: Path) -> None:
    """`--check` and whatever reads the lock refuse it; `plan` writes a new one."""
    site = broken(tmp_path, {})
    (site / ".bedplate.lock.yml").write_text(text)
    with pytest.raises(LockError) as caught:
        load_lock(site)
    assert str(caught.value).startswith(message.format(site=site))
    done = plan(tmp_path, "--check")
    assert done.returncode == 2
    assert done.stderr.startswith(message.format(site="site"))
    assert (site / ".bedplate.lock.yml").read_text() == text
    assert plan(tmp_path).returncode == 0
    assert load_lock(site).format == FORMAT
