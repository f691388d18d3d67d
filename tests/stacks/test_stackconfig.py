"""What the stacks read: their projects' defaults, and what they take from the site."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import config as settings

from bedplate.components import config as stackconfig
from bedplate.lock import load_lock, write_lock

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(path.name for path in (ROOT / "stacks").iterdir() if path.is_dir())


def project(name: str) -> dict[str, Any]:
    """Return the configuration in a project's file."""
    content = yaml.safe_load((ROOT / "stacks" / name / "Pulumi.yaml").read_text())
    configured: dict[str, Any] = content["config"]
    return configured


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one site, called demo, seen from a project's directory."""
    (tmp_path / "stacks/cluster").mkdir(parents=True)
    (tmp_path / "inventories/demo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "stacks/cluster")
    monkeypatch.setattr(pulumi, "get_stack", lambda: "demo")
    settings.set_all_config({})
    return tmp_path


def test_there_are_three_projects() -> None:
    assert PROJECTS == ["cluster", "frameworks", "schedulers"]


@pytest.mark.parametrize("name", PROJECTS)
def test_no_stack_can_forget_to_disable_default_providers(name: str) -> None:
    assert project(name)["pulumi:disable-default-providers"] == {"value": ["*"]}


@pytest.mark.parametrize("name", PROJECTS)
def test_the_demos_stack_file_is_not_tracked(name: str) -> None:
    """The engine writes the salt of each checkout's own passphrase into it."""
    file = f"stacks/{name}/Pulumi.demo.yaml"
    ignored = subprocess.run(
        [shutil.which("git") or "git", "check-ignore", "--no-index", file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout.strip() == file, ignored.stderr


def test_defaults_of_the_project_are_those_of_the_program(configured: Path) -> None:
    values = project("cluster")
    found = stackconfig.read()
    assert found.force is values["bedplate:force"]["value"]
    assert found.gpu_seconds == values["bedplate:gpuSeconds"]["value"]
    assert all(entry["description"] for key, entry in values.items() if key.startswith("bedplate:"))


def test_the_site_has_the_stacks_name_and_keys_of_its_own(configured: Path) -> None:
    found = stackconfig.read()
    assert found.site == configured / "inventories/demo"
    assert found.site_from_project == "../../inventories/demo"
    assert (found.private_key, found.known_hosts) == (None, None), "the user's agent and hosts"

    ssh = found.site / ".bedplate/ssh"
    ssh.mkdir(parents=True)
    (ssh / "id_ed25519").touch()
    (ssh / "known_hosts").touch()
    found = stackconfig.read()
    assert found.private_key == ".bedplate/ssh/id_ed25519"
    assert found.known_hosts == ".bedplate/ssh/known_hosts"


def test_what_is_configured_wins(configured: Path) -> None:
    (configured / "elsewhere/.bedplate/ssh").mkdir(parents=True)
    (configured / "elsewhere/.bedplate/ssh/id_ed25519").touch()
    given = {
        "bedplate:site": "../../elsewhere",
        "bedplate:privateKey": "keys/mine",
        "bedplate:knownHosts": "keys/hosts",
        "bedplate:force": "true",
        "bedplate:gpuSeconds": "5",
    }
    settings.set_all_config(given)
    found = stackconfig.read()
    assert found == stackconfig.StackConfig(
        configured / "elsewhere", "keys/mine", "keys/hosts", force=True, gpu_seconds=5
    )


def test_a_folder_with_one_site_needs_no_setting(configured: Path) -> None:
    (configured / "inventory").mkdir()
    assert stackconfig.read().site == configured / "inventories/demo", "the stack's own name wins"
    (configured / "inventories/demo").rmdir()
    assert stackconfig.read().site == configured / "inventory"
    assert stackconfig.read().site_from_project == "../../inventory"


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (
            {"bedplate:site": "../nowhere"},
            "../nowhere, and no directory {root}/stacks/nowhere",
        ),
        (
            {},
            "no setting, and no directory {root}/inventories/demo or {root}/inventory",
        ),
    ],
)
def test_no_such_site(configured: Path, given: dict[str, str], got: str) -> None:
    (configured / "inventories/demo").rmdir()
    settings.set_all_config(given)
    with pytest.raises(stackconfig.StackError) as caught:
        stackconfig.read()
    assert str(caught.value) == (
        f"no such site — bedplate:site of stack demo — got {got.format(root=configured)} / allowed "
        f"an inventory directory; a relative path starts at {configured}/stacks/cluster — name it "
        "with `pulumi config set bedplate:site PATH`"
    )


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_is_portable(name: str) -> None:
    """It names no environment and no plugin's place: both are found on PATH."""
    content = yaml.safe_load((ROOT / "stacks" / name / "Pulumi.yaml").read_text())
    assert content["runtime"] == "python"
    assert "plugins" not in content


def test_no_lock_is_the_users_mistake(configured: Path) -> None:
    site = configured / "inventories/demo"
    with pytest.raises(stackconfig.StackError) as caught:
        stackconfig.lock_of(site)
    assert str(caught.value).startswith(f"site has no lock — {site}/.bedplate.lock.yml — ")


def test_a_lock_that_nothing_can_carry_out_is_refused(tmp_path: Path) -> None:
    lock = load_lock(ROOT / "inventories/demo")
    pool = lock.pools["pool_class"].model_copy(update={"not_yet": ["mps-on ubuntu-24.04"]})
    write_lock(tmp_path, lock.model_copy(update={"pools": lock.pools | {"pool_class": pool}}))
    with pytest.raises(stackconfig.StackError) as caught:
        stackconfig.lock_of(tmp_path)
    assert str(caught.value) == (
        f"not installable by this version — pool_class in {tmp_path}/.bedplate.lock.yml — got "
        f"mode mps on ubuntu-24.04 — run: bedplate plan {tmp_path}, which names each setting to "
        "change"
    )
