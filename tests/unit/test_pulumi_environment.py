"""What `pulumi` is given on a machine: the user's own comes first, what is missing is ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.substrate import pulumi

OURS = str(pulumi.HERE)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any tool, setting or login."""
    for name in [name for name in os.environ if name.startswith("PULUMI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def program(path: Path) -> Path:
    """Put a program there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def link(path: Path, target: Path) -> None:
    """Put a link to a program there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def search_path(machine: Path) -> list[str]:
    """Return the folders that the environment of a site has on PATH."""
    return pulumi.environment(machine / "site")["PATH"].split(":")


def bundle(machine: Path) -> Path:
    """Put Pulumi's own bundle somewhere, and return its `pulumi`."""
    program(machine / "opt/pulumi" / pulumi.LANGUAGE_HOST)
    return program(machine / "opt/pulumi/pulumi")


def test_without_a_bundle_ours_comes_last(machine: Path) -> None:
    """A `pulumi` alone, as a distribution or `go install` gives it, has no host of its own."""
    program(machine / "bin/pulumi")
    assert pulumi.official() is None
    assert search_path(machine)[-1] == OURS


def test_a_bundle_on_the_path_keeps_its_language_host(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bundle(machine).parent))
    assert pulumi.official() == machine / "opt/pulumi" / pulumi.LANGUAGE_HOST
    assert OURS not in search_path(machine)


def test_so_does_a_bundle_that_a_link_on_the_path_leads_to(machine: Path) -> None:
    link(machine / "bin/pulumi", bundle(machine))
    assert pulumi.official() == machine / "opt/pulumi" / pulumi.LANGUAGE_HOST
    assert OURS not in search_path(machine)


def test_so_does_a_bundle_that_was_linked_instead_of_a_build(machine: Path) -> None:
    folder = machine / "cache/tools/pulumi-3.259.0/bin"
    link(folder / "pulumi", bundle(machine))
    assert OURS not in search_path(machine)
    assert str(folder) in search_path(machine)


def test_ours_is_not_taken_for_the_official_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's shell has it from `--print-env`."""
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{OURS}")
    assert pulumi.official() is None
    assert search_path(machine).count(OURS) == 1
    link(machine / "bin/pulumi", bundle(machine))
    assert OURS not in search_path(machine)


def test_a_program_of_the_users_own_is_not_hidden_by_ours(machine: Path) -> None:
    for tool, name in {"kubernetes-1.36.3": "kubectl", "pulumi-3.259.0": "pulumi"}.items():
        program(machine / "cache/tools" / tool / "bin" / name)
    program(machine / "bin/kubectl")
    folders = search_path(machine)
    assert folders.index(str(machine / "bin")) < folders.index(
        str(machine / "cache/tools/pulumi-3.259.0/bin")
    )
    assert str(machine / "cache/tools/kubernetes-1.36.3/bin") not in folders


def login(folder: Path, current: str | None) -> None:
    """Write what `pulumi login` leaves, or what `pulumi logout` leaves of it."""
    folder.mkdir(parents=True)
    known = {"accounts": {"s3://states": {}}} | ({"current": current} if current else {})
    (folder / "credentials.json").write_text(json.dumps(known))


def test_state_lies_in_a_file_backend_at_the_site(machine: Path) -> None:
    found = pulumi.environment(machine / "site")
    assert found["PULUMI_BACKEND_URL"] == f"file://{machine}/site/.bedplate/pulumi"
    assert (machine / "site/.bedplate/pulumi").is_dir()


def test_a_user_who_has_logged_out_has_no_backend(machine: Path) -> None:
    login(machine / "home/.pulumi", None)
    assert "PULUMI_BACKEND_URL" in pulumi.environment(machine / "site")


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        (None, "home/.pulumi"),
        ("PULUMI_HOME", "own"),
        ("PULUMI_CREDENTIALS_PATH", "secrets"),
    ],
)
def test_a_backend_that_the_user_is_logged_in_to_stays(
    machine: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, folder: str
) -> None:
    login(machine / folder, "s3://states")
    if variable:
        monkeypatch.setenv(variable, str(machine / folder))
    assert "PULUMI_BACKEND_URL" not in pulumi.environment(machine / "site")
    assert not (machine / "site/.bedplate/pulumi").exists()


@pytest.mark.parametrize("variable", ["PULUMI_BACKEND_URL", "PULUMI_ACCESS_TOKEN"])
def test_a_backend_named_by_a_variable_stays(
    machine: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "users-own")
    assert "PULUMI_BACKEND_URL" not in pulumi.environment(machine / "site")


def test_the_passphrase_is_made_once_for_its_owner_alone(machine: Path) -> None:
    path = Path(pulumi.environment(machine / "site")["PULUMI_CONFIG_PASSPHRASE_FILE"])
    made = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(made.strip()) > 30
    pulumi.environment(machine / "site")
    assert path.read_text() == made


@pytest.mark.parametrize("variable", ["PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"])
def test_a_passphrase_of_the_users_own_stays(
    machine: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "")  # an empty one is one
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in pulumi.environment(machine / "site")
