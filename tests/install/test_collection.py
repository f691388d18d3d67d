"""The collection's archive: what is in it, and what it says where the package is not installed."""

from __future__ import annotations

import tarfile
import tomllib
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.install.conftest import Runs

ROOT = Path(__file__).parents[2]
GALAXY = yaml.safe_load((ROOT / "galaxy.yml").read_text())
HOSTS = "all: {children: {control_plane: {hosts: {cp1: {ansible_host: 192.0.2.1}}}}}\n"
#: A play for each plugin that no playbook reaches before the first refusal.
PLAYS = {
    "lock": "{{ lookup('bedplate.gpu.lock', inventory_dir) }}",
    "vsphere_guest": "{{ {'devices': []} | bedplate.gpu.vsphere_guest('a', 'b') }}",
    "proxmox_guest": "{{ {} | bedplate.gpu.proxmox_guest('a') }}",
    "guest_pools": "{{ {} | bedplate.gpu.guest_pools('debian-12') }}",
}


def test_the_archive_is_the_collection_alone(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = [name for name in opened.getnames() if "__pycache__" not in name]
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "CHANGELOG.md",
        "FILES.json",
        "LICENSE",
        "MANIFEST.json",
        "README.md",
        "meta",
        "playbooks",
        "plugins",
        "roles",
        "src",
    }
    assert not [name for name in names if "molecule" in name or "/." in name]
    inside = {name.split("/")[2] for name in names if name.startswith("src/bedplate/")}
    assert inside == {"portable"}
    there = {
        f"src/bedplate/portable/{path.relative_to(ROOT / 'src/bedplate/portable')}"
        for path in (ROOT / "src/bedplate/portable").rglob("*.py")
    }
    assert there <= set(names)
    assert "plugins/module_utils/portable" in names
    # What ansible-builder installs by name, from whatever index it asks: the package is on none.
    asked = {"meta/execution-environment.yml", "meta/execution-environment.yaml"}
    assert not (asked | {"requirements.txt"}) & set(names)


def test_every_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert GALAXY["version"] == project["version"] == version("bedplate")


def test_an_execution_environment_takes_the_archives_of_a_checkout(archive: Path) -> None:
    path = ROOT / "examples/execution-environment.yml"
    described = yaml.safe_load(path.read_text())
    # Beside it, as ansible-builder reads them.
    assert (path.parent / described["dependencies"]["galaxy"]).samefile(ROOT / "requirements.yml")
    assert "python" not in described["dependencies"]
    files = [Path(one["src"]).name for one in described["additional_build_files"]]
    built = [archive.name, f"bedplate-{version('bedplate')}-py3-none-any.whl"]
    assert all(fnmatch(name, pattern) for name, pattern in zip(built, files, strict=True))
    steps = described["additional_build_steps"]
    assert files[0] in steps["append_galaxy"][0]
    assert all(files[1] in step for step in steps["append_final"])


def test_the_licence_is_named_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert GALAXY["license"] == [project["license"]] == ["Apache-2.0"]
    assert project["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_address_is_made_up() -> None:
    assert not [key for key in ("repository", "homepage", "documentation") if key in GALAXY]


def test_required_collections_are_those_of_the_pinned_ansible() -> None:
    import ansible_collections

    listed = yaml.safe_load((ROOT / "requirements.yml").read_text())["collections"]
    assert {entry["name"] for entry in listed} == set(GALAXY["dependencies"])
    for entry in listed:
        folder = Path(*ansible_collections.__path__) / entry["name"].replace(".", "/")
        manifest = yaml.safe_load((folder / "MANIFEST.json").read_text())
        assert entry["version"] == manifest["collection_info"]["version"]


@pytest.fixture(scope="module")
def collections(
    archive: Path, bare: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Variables that let Ansible find the collection, installed from its archive."""
    folder = tmp_path_factory.mktemp("collections") / "ansible_collections/bedplate/gpu"
    folder.mkdir(parents=True)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="tar")
    return {"ANSIBLE_COLLECTIONS_PATH": str(folder.parents[2])}


@pytest.mark.parametrize("name", ["site", "discover", "validate", *PLAYS])
def test_without_the_package_it_says_so_in_one_line(
    name: str, bare: Path, collections: dict[str, str], user: Runs, tmp_path: Path
) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text(HOSTS)
    playbook = f"bedplate.gpu.{name}"
    if name in PLAYS:
        task = {"name": "Ask", "ansible.builtin.debug": {"msg": PLAYS[name]}}
        play = {"name": "Ask", "hosts": "all", "gather_facts": False, "tasks": [task]}
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        playbook = "play.yml"
    command = ["ansible-playbook", "-i", "inventory", playbook]
    done = user(bare, *command, status=2 if name in PLAYS else 1, **collections)
    said = done.stdout + done.stderr
    python = bare / "python"
    wanted = (
        f"the Python package bedplate is not installed — got {python} without it — install it "
        f"there, from the wheel or checkout of {GALAXY['version']} that this collection came with: "
        f"{python} -m pip install PATH"
    )
    lines = [line for line in said.splitlines() if "bedplate is not installed" in line]
    assert lines[0].endswith(wanted), said
    assert "Traceback" not in said
    assert "probably a bug" not in said
    if name not in PLAYS:
        assert done.stderr.splitlines() == [f"[ERROR]: {wanted}"]


def test_with_the_package_the_same_archive_runs(
    installed: Path, collections: dict[str, str], user: Runs, tmp_path: Path
) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text(HOSTS)
    command = ["ansible-playbook", "-i", "inventory", "bedplate.gpu.validate"]
    done = user(installed, *command, status=2, **collections)
    assert "site has no lock" in done.stdout + done.stderr
