"""`make release` in checkouts of their own: same commit, same bytes, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import jsonschema
import pytest

from tests.install import environments, sbom

ROOT = environments.ROOT
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WHEN = 1793610000
PATH = "/usr/local/bin:/usr/bin:/bin"
#: What https://cyclonedx.org/schema/bom-1.6.schema.json requires of the parts that we write.
TEXT = {"type": "string", "minLength": 1}
HASHES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "required": ["alg", "content"],
        "additionalProperties": False,
        "properties": {
            "alg": {"const": "SHA-256"},
            "content": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
        },
    },
}
COMPONENT = {
    "type": "object",
    "required": ["type", "name", "bom-ref", "version", "purl"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "name": TEXT,
        "version": TEXT,
        "bom-ref": TEXT,
        "purl": {"type": "string", "pattern": "^pkg:pypi/[a-z0-9.-]+@[^ ]+$"},
        "scope": {"enum": ["required", "optional", "excluded"]},
        "hashes": HASHES,
        "licenses": {"items": {"required": ["license"]}},
        "externalReferences": {
            "items": {
                "required": ["url", "type"],
                "properties": {"type": {"const": "distribution"}, "hashes": HASHES},
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["bomFormat", "specVersion", "metadata", "components", "dependencies"],
    "additionalProperties": False,
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {
            "pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
        },
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "additionalProperties": False,
            "properties": {
                "timestamp": {"pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
                "component": COMPONENT,
            },
        },
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
        "dependencies": {
            "uniqueItems": True,
            "items": {"required": ["ref"], "properties": {"dependsOn": {"uniqueItems": True}}},
        },
    },
}


def git(folder: Path, *words: str) -> None:
    """Run git as somebody whose name no configuration has to give."""
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_COMMITTER_DATE": f"{WHEN} +0000", "PATH": PATH}
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what the Makefile runs."""
    command = [sys.executable, "-m", "tests.install.release"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: the files of this one, as they are now."""
    folder = tmp_path_factory.mktemp("first") / "bedplate"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not (source := ROOT / name).is_symlink() and not source.exists():
            continue  # removed here, and not committed yet
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name, follow_symlinks=False)
    git(folder, "init")
    git(folder, "add", "--force", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder


@pytest.fixture(scope="module")
def released(checkout: Path) -> tuple[Path, str]:
    """The folder of a release, and what was printed."""
    done = release(checkout)
    assert done.returncode == 0, done.stderr
    return checkout / "dist/release" / VERSION, done.stdout


def test_the_files_of_a_release_and_their_sums(released: tuple[Path, str]) -> None:
    folder, printed = released
    assert {path.name for path in folder.iterdir()} == {
        "RELEASE.md",
        "SHA256SUMS",
        f"bedplate-{VERSION}-py3-none-any.whl",
        f"bedplate-{VERSION}.cdx.json",
        f"bedplate-{VERSION}.tar.gz",
        f"bedplate-gpu-{VERSION}.tar.gz",
    }
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.count(": OK") == 5
    assert printed.startswith((folder / "SHA256SUMS").read_text())
    (tag,) = re.findall(r"git tag -a .*", printed)
    git(folder, *tag.replace("'", "").replace(f"Bedplate {VERSION}", "B").split()[1:])
    tagged = subprocess.run(["git", "tag"], cwd=folder, capture_output=True, text=True, check=True)
    assert tagged.stdout.split() == [f"v{VERSION}"], "by the command above and by nothing before"
    assert ("is unreleased" in printed) == ("(unreleased)" in entry()[0])


def entry() -> tuple[str, str]:
    """Return the heading of the newest entry of the CHANGELOG, and its text."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    _, heading, text = re.split(r"^(## .*)$", changelog, flags=re.MULTILINE)[:3]
    return heading, text.strip()


def test_the_note_is_the_newest_entry_alone(released: tuple[Path, str]) -> None:
    note = (released[0] / "RELEASE.md").read_text()
    assert note == f"# Bedplate {VERSION}\n\n{entry()[1]}\n"


def test_the_same_commit_gives_the_same_bytes(
    checkout: Path, released: tuple[Path, str], tmp_path: Path
) -> None:
    """Another folder, where files were written later, with an ignored file among them."""
    other = tmp_path / "second"
    git(tmp_path, "clone", "--quiet", str(checkout), str(other))
    (other / "roles/nvidia_driver/.ansible").mkdir()
    (other / "src/bedplate/portable/x.egg-info").mkdir()
    for name in ("roles/nvidia_driver/.ansible/a", "src/bedplate/portable/x.egg-info/a"):
        (other / name).write_text("of this machine")
    done = release(other)
    assert done.returncode == 0, done.stderr
    for path in released[0].iterdir():
        assert (other / "dist/release" / VERSION / path.name).read_bytes() == path.read_bytes()


def test_every_date_is_the_commits_and_the_archive_is_whole(
    released: tuple[Path, str], tmp_path: Path
) -> None:
    archive = released[0] / f"bedplate-gpu-{VERSION}.tar.gz"
    for path in (archive, released[0] / f"bedplate-{VERSION}.tar.gz"):
        with tarfile.open(path) as opened:
            assert {member.mtime for member in opened} == {WHEN}
    with tarfile.open(archive) as opened:
        assert opened.getnames() == sorted(opened.getnames())
        files = json.load(opened.extractfile("FILES.json"))["files"]
    assert [one["name"] for one in files] == sorted(one["name"] for one in files)
    # Refuses a file that is not as the lists say.
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    words = [
        "collection",
        "install",
        "--no-deps",
        "--offline",
        "--force",
        "-p",
        str(tmp_path),
        str(archive),
    ]
    done = subprocess.run([galaxy, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ansible_collections/bedplate/gpu/playbooks/site.yml").is_file()


def test_scanners_read_the_locked_requirements(released: tuple[Path, str]) -> None:
    bill = json.loads((released[0] / f"bedplate-{VERSION}.cdx.json").read_text())
    jsonschema.validate(bill, SCHEMA)
    lock = (ROOT / "requirements.lock").read_text()
    assert len(bill["components"]) == len(re.findall(r"^[a-z].*==", lock, re.MULTILINE))
    digests = [
        one["content"]
        for part in bill["components"]
        for reference in part["externalReferences"]
        for one in reference["hashes"]
    ]
    assert digests == re.findall(r"--hash=sha256:(\w+)", lock)
    refs = {part["bom-ref"] for part in (bill["metadata"]["component"], *bill["components"])}
    assert len(refs) == 1 + len(bill["components"])
    graph = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert graph.keys() == refs
    assert {one for needed in graph.values() for one in needed} <= refs
    scopes = {part["name"]: part["scope"] for part in bill["components"]}
    assert (scopes["pyyaml"], scopes["ruff"]) == ("required", "excluded")
    assert scopes["matplotlib"] == "optional", "an extra"
    # What the wheel asks for is what the lock says that the package asks for.
    wheel = released[0] / f"bedplate-{VERSION}-py3-none-any.whl"
    asked = set(environments.requirements(wheel))
    assert {
        ref.split("/")[1].split("@")[0] for ref in graph[f"pkg:pypi/bedplate@{VERSION}"]
    } == asked


def test_a_pin_for_some_systems_is_optional() -> None:
    lock = (
        "a==1 \\\n    --hash=sha256:" + "1" * 64 + "\n    # via bedplate (pyproject.toml)\n"
        "b==2 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "2" * 64 + "\n    # via\n"
        "    #   a\n    #   bedplate (pyproject.toml:dev)\n"
    )
    project = {"name": "bedplate", "version": "1.0", "license": "MIT", "dependencies": ["a>=1"]}
    made = sbom.document(project, "0" * 64, lock, "c", WHEN)
    assert [(part["name"], part["scope"]) for part in made["components"]] == [
        ("a", "required"),
        ("b", "optional"),
    ]
    assert made["dependencies"] == [
        {"ref": "pkg:pypi/bedplate@1.0", "dependsOn": ["pkg:pypi/a@1"]},
        {"ref": "pkg:pypi/a@1", "dependsOn": ["pkg:pypi/b@2"]},
        {"ref": "pkg:pypi/b@2", "dependsOn": []},
    ]


def test_what_stands_against_a_release_comes_at_once(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    git(tmp_path, "clone", "--quiet", str(checkout), str(folder))
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace(f'version = "{VERSION}"', 'version = "99.0"'))
    (folder / "note").write_text("of somebody")
    done = release(folder)
    assert (done.returncode, done.stdout) == (1, "")
    changed, newest, differ = done.stderr.splitlines()
    assert changed == (
        "files are changed or untracked — got pyproject.toml, note / allowed none — commit or "
        "remove them: a release is what a commit has"
    )
    assert newest == (
        f"newest entry is not of this version — CHANGELOG.md — got {VERSION} / allowed 99.0 — "
        "write '## 99.0 (DATE)' at the top, and what users notice below it"
    )
    assert differ == (
        f"versions differ — galaxy.yml version — got {VERSION} / allowed 99.0, as in "
        "pyproject.toml — write the same version into both"
    )
    assert not (folder / "dist").exists()
