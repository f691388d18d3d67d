"""Secrets that evidence quotes without a word around them that says so: hidden by what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from bedplate.site.concealed import NO_LOG, secrets
from tests.unit.test_drift_command import check, site, write

ROOT = Path(__file__).parents[2]
#: Each is planted in one place.
INLINE, WHOLE, PLAIN, SUDO, PROXY = "inl1ne-word", "wh0le-word", "pla1n-word", "sud0-word", "pr0xy"
#: Of the site's own servers, in the vault and outside of it.
LOGIN, OTHER = "l0gin-word", "0ther-word"
__all__ = ["site"]


def vaulted(text: str) -> str:
    """Encrypt a text as ansible-vault does."""
    return str(VaultLib([("default", VaultSecret(b"right"))]).encrypt(text).decode())


@pytest.fixture
def planted(site: Path) -> Path:
    """A site with secrets, and evidence of drift that quotes each of them."""
    block = vaulted(INLINE).replace("\n", "\n    ")
    variables = site / "group_vars" / "all"
    (variables / "a.yml").write_text(f"some_word: !vault |\n    {block}\n")
    login = "bedplate_sources_login: {{user: found, password: {}}}\n"
    whole = f"other:\n  - deep: {WHOLE}\nansible_user: fail\n{login.format(LOGIN)}"
    (variables / "b.yml").write_text(vaulted(whole))
    (variables / "c.yml").write_text(
        f"slurm_munge_key: {PLAIN}\nansible_become_password: {SUDO}\n"
        f"mine: http://me:{PROXY}@proxy.example:3128\n" + login.format(OTHER)
    )
    told = f"found {INLINE}, {WHOLE}, {PLAIN}, {SUDO}, {PROXY}, {LOGIN} and {OTHER}"
    for name in ("cp1", "gpu-a", "gpu-b"):
        write(site, "host", name, check(reason=told))
        write(site, "drift", name, check(found={"x": [told]}, reason=told))
    return site


def run(planted: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command: Ansible reads its configuration when it is imported."""
    words = [sys.executable, "-m", "bedplate.cli", command, str(planted)]
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={name: text for name, text in os.environ.items() if "VAULT" not in name} | environment,
    )


def test_secrets_are_hidden_by_what_they_are(planted: Path, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("right\n")
    known = {"ANSIBLE_VAULT_PASSWORD_FILE": str(password)}
    told = (INLINE, WHOLE, PLAIN, SUDO, PROXY, LOGIN, OTHER)
    drift, report = run(planted, "drift", **known), run(planted, "report", **known)
    assert (drift.returncode, report.returncode) == (2, 2), drift.stderr + report.stderr
    pages = [(planted / ".bedplate" / name).read_text() for name in ("report.html", "junit.xml")]
    for text in (drift.stdout, report.stdout, *pages):
        assert "found …, …, …, …, …, … and …" in text
        assert [one for one in told if one in text] == []


@pytest.mark.parametrize(("name", "place"), [("a.yml", "a.yml:1:12"), ("b.yml", "b.yml")])
def test_what_cannot_be_hidden_is_not_shown(
    name: str, place: str, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads what drifted has no password of the vault; the site's place is a relative one."""
    for other in {"a.yml", "b.yml"} - {name}:
        (planted / "group_vars/all" / other).unlink()
    monkeypatch.chdir(planted.parent)
    done = run(Path(planted.name), "drift")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = [one for one in done.stderr.splitlines() if "group_vars/all/" in one]
    assert "file cannot be decrypted" in line
    assert f"{planted.name}/group_vars/all/{place}" in line
    assert "the file's name into ANSIBLE_VAULT_PASSWORD_FILE, or as vault_password_file" in line


def test_a_site_without_secrets_is_read_no_further(site: Path) -> None:
    assert secrets(site) == frozenset()


def marked(options: Any) -> set[str]:
    """Return the options that are marked with no_log, at any depth."""
    found: set[str] = set()
    for name, option in (options or {}).items():
        if option.get("no_log"):
            found.add(name)
        found |= marked(option.get("options"))
    return found


def test_variables_that_no_log_shows_are_those_of_the_roles() -> None:
    found: set[str] = set()
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        for entry in specs.values():
            found |= marked(entry.get("options"))
    assert found == NO_LOG
