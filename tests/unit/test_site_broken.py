"""Broken sites, as data: the whole message is fixed, nothing is written, no host contacted.

After a change of words or catalogue, `python -m tests.unit.test_site_broken` writes the messages
anew: review the difference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from bedplate.cli import main as cli

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "broken_sites"
CASES = yaml.safe_load((FOLDER / "cases.yml").read_text(encoding="utf-8"))


def broken(folder: Path, case: dict) -> Path:
    """Make the site of a case below *folder*."""
    site = folder / "site"
    ignore = shutil.ignore_patterns(".bedplate*")
    shutil.copytree(ROOT / "inventories" / "demo", site, ignore=ignore)
    for name, text in case.get("write", {}).items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    for name, (old, new) in case.get("replace", {}).items():
        text = (site / name).read_text(encoding="utf-8")
        assert old in text, f"{name} no longer has {old!r}: the case would prove nothing"
        (site / name).write_text(text.replace(old, new), encoding="utf-8")
    for name, text in case.get("append", {}).items():
        with (site / name).open("a", encoding="utf-8") as out:
            out.write(text)
    return site


def trap(folder: Path) -> Path:
    """Return a folder of programs with an `ssh` that leaves a trace when it is used."""
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    (binaries / "ssh").write_text(f"#!/bin/sh\ntouch {folder}/contacted\nexit 255\n")
    (binaries / "ssh").chmod(0o755)
    return binaries


def plan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `bedplate plan site` in *folder*, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "bedplate.cli", "plan", "site", *arguments],
        cwd=folder,
        env=os.environ | {"PATH": f"{trap(folder)}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", sorted(CASES))
def test_broken_site_is_refused_in_these_words(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, which has read Ansible already: the others below start their own."""
    site = broken(tmp_path, CASES[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{trap(tmp_path)}:/usr/bin:/bin")
    status = cli.main(["plan", "site"])
    out, err = capfd.readouterr()
    assert err == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert out == ""
    assert status == cli.REFUSED
    assert not (site / ".bedplate.lock.yml").exists()
    assert not (tmp_path / "contacted").exists()


def test_every_expectation_has_its_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'bedplate_gpu: "\xff"\n', "site/group_vars/pool_train.yml:1: file is not UTF-8 text — "),
        (b"\x00\x01\x02", "file is binary — site/group_vars/pool_train.yml — "),
    ],
)
def test_bytes_that_are_no_text(content: bytes, message: str, tmp_path: Path) -> None:
    site = broken(tmp_path, {})
    (site / "group_vars" / "pool_train.yml").write_bytes(content)
    done = plan(tmp_path)
    assert done.stderr.startswith(message)
    assert done.returncode == 3


def test_a_sound_copy_is_planned(tmp_path: Path) -> None:
    """The cases start from a site that works: a refusal is the change's own."""
    site = broken(tmp_path, {})
    assert plan(tmp_path).returncode == 0
    lock = (ROOT / "inventories" / "demo" / ".bedplate.lock.yml").read_bytes()
    assert (site / ".bedplate.lock.yml").read_bytes() == lock
    assert plan(tmp_path, "--check").returncode == 0
    before = (site / "hosts.yml").read_text()
    (site / "hosts.yml").write_text(before.replace("10.213.0.22", "10.213.0.23"))
    assert plan(tmp_path, "--check").returncode == 2
    assert (site / ".bedplate.lock.yml").read_bytes() == lock


def test_an_encrypted_wish_is_read_with_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bedplate plan` reads vault as ansible-playbook does; a wrong password has a message."""
    site = broken(tmp_path, {})
    assert plan(tmp_path).returncode == 0
    clear = (site / ".bedplate.lock.yml").read_bytes()
    (tmp_path / "right").write_text("right\n")
    (tmp_path / "wrong").write_text("wrong\n")
    pool = site / "group_vars" / "pool_train.yml"
    vault = VaultLib([("default", VaultSecret(b"right"))])
    pool.write_bytes(vault.encrypt(pool.read_bytes()))

    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "right"))
    done = plan(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (site / ".bedplate.lock.yml").read_bytes() == clear

    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "wrong"))
    done = plan(tmp_path)
    assert done.returncode == 3
    assert done.stderr == (
        "file cannot be decrypted — site/group_vars/pool_train.yml — got Decryption failed (no "
        "vault secrets were found that could decrypt). — write the password "
        "into a file, and the file's name into ANSIBLE_VAULT_PASSWORD_FILE, or as "
        "vault_password_file into ansible.cfg\n  rule readable\n\n1 error; no lock was written.\n"
    )


def main() -> None:
    """Write what `bedplate plan` says of every case."""
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            broken(Path(folder), case)
            done = plan(Path(folder))
            assert done.returncode == 3, f"{name} is planned"
            (FOLDER / f"{name}.txt").write_text(done.stderr, encoding="utf-8")


if __name__ == "__main__":
    main()
