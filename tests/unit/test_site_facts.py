"""`SITE/facts`: rows over the catalogue's, reported by every plan, part of the lock's facts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.cli import main as cli
from bedplate.common.errors import CatalogueError
from bedplate.lock import load_lock

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "inventories" / "demo"
REST = {"reason": "For the test.", "source": {"url": "https://example.com/", "read": "2026-11-26"}}
PATCH = {
    "version": "1.36.4",
    "etcd": {"version": "3.6.8", "image_tag": "3.6.8-0"},
    "coredns": {"version": "1.14.2", "image_tag": "v1.14.2"},
    "pause": {"version": "3.10.2"},
    "mutating_policies": "v1",
}
DRIVER = "driver/debian-12-distro-535.309.01-proprietary"
#: Who may read the catalogue without a site: what has none, and the catalogue's own pages.
WITHOUT_SITE = {
    "cli/about.py",
    "bill/command.py",
    "catalogue/gpus.py",
    "catalogue/load.py",
    "catalogue/matrix.py",
    "catalogue/of_site.py",
    "catalogue/sharing_table.py",
    "cli/catalogue_review.py",
    "cli/doctor/machine.py",  # where it is run without one
    "cli/completion.py",  # GPU models, which no command names a site for
    "planning/measure/command.py",
    "planning/starting/command.py",
    "planning/starting/options.py",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The demo's site, without facts of its own."""
    return shutil.copytree(DEMO, tmp_path / "site", ignore=shutil.ignore_patterns(".bedplate*"))


def newer_driver() -> dict[str, Any]:
    """Return the demo's driver, one release on."""
    value = load_catalogue().fact(DRIVER).value.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(value).replace("535.309.01", "535.321.07")
    return dict(json.loads(text))


def write(site: Path, name: str, entries: Any) -> Path:
    """Write a file of the site's facts."""
    path = site / "facts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(entries if isinstance(entries, str) else yaml.safe_dump(entries))
    return path


def plan(site: Path, *words: str) -> int:
    """Plan, or check the plan."""
    return cli.main(["plan", str(site), *words])


def test_a_patch_release_and_a_driver_are_planned_reported_and_locked(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "kubernetes.yml", [{"value": PATCH, **REST}])
    write(site, "driver-packages.535.yml", [{"value": newer_driver(), **REST}])
    assert plan(site) == 0
    said = " ".join(capsys.readouterr().out.split())
    added = "driver/debian-12-distro-535.321.07-proprietary, kubernetes/1.36.4"
    assert f"{site}/facts adds to the catalogue: {added}" in said
    assert "relies on facts of the site" in said
    lock = load_lock(site)
    assert lock.cluster is not None
    assert lock.cluster.kubernetes.version == "1.36.4"
    driver = lock.pools["pool_class"].nvidia_driver
    assert driver is not None
    assert driver.version == "535.321.07"
    assert set(driver.packages.values()) >= {"535.321.07-0+deb12u1"}
    assert lock.catalogue != load_catalogue().digest
    assert plan(site, "--json") == 0
    assert f"{site}/facts adds to the catalogue: {added}" in capsys.readouterr().out
    for asked in (["--diff"], ["--check", "--json"]):
        assert plan(site, *asked) == 0
        assert f"{site}/facts adds to the catalogue: {added}" in capsys.readouterr().out
    assert cli.main(["explain", str(site), "pool_class"]) == 0
    assert "https://example.com/ (2026-11-26)" in capsys.readouterr().out


def test_a_changed_row_makes_the_lock_stale(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(site) == 0
    path = write(site, "kubernetes.yml", [{"value": PATCH | {"version": "1.34.1"}, **REST}])
    assert plan(site, "--check") == 2
    assert "the catalogue changed" in capsys.readouterr().out
    assert plan(site) == 0
    assert plan(site, "--check") == 0
    path.write_text(path.read_text().replace("3.10.2", "3.10.1"))
    assert plan(site, "--check") == 2
    shutil.rmtree(path.parent)
    assert plan(site) == 0
    assert load_lock(site).catalogue == load_catalogue().digest


def test_a_row_of_the_catalogue_is_overridden(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "kubernetes.yml", [{"value": PATCH | {"version": "1.36.3"}, **REST}])
    assert plan(site) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{site}/facts overrides the catalogue: kubernetes/1.36.3" in said
    found = catalogue_of(site)
    assert found.kubernetes["1.36.3"].sure == "site"
    assert found.kubernetes["1.36.3"].reason == "For the test."
    assert load_catalogue().kubernetes["1.36.3"].sure == "vendor"
    assert len(found.kubernetes) == len(load_catalogue().kubernetes)


def test_without_facts_it_is_the_catalogue_itself(site: Path) -> None:
    assert catalogue_of(site) is load_catalogue()
    write(site, "README.md", "Nothing yet.")
    assert catalogue_of(site) is load_catalogue()


ENTRY = {"value": PATCH, **REST}
WRONG: dict[str, tuple[str, Any, str, int | None, str | None]] = {
    "no such kind": ("kuberntes.yml", [ENTRY], "no kind of fact has this name", None, None),
    "another suffix": ("kubernetes.yaml", [ENTRY], "no kind of fact has this name", None, None),
    "what this version installs": (
        "installable.yml", [ENTRY], "no kind of fact has this name", None, None,
    ),
    "no YAML": ("kubernetes.yml", "- value: {\n", "facts cannot be read as YAML", 2, None),
    "no list": ("kubernetes.yml", "value: 1\n", "facts are not a list", 1, None),
    "a field is missing": (
        "kubernetes.yml",
        ("- reason: x\n  source: {url: 'https://a/', read: 2026-11-26}\n"
        "  value:\n    version: 1.36.4\n    etcd:\n      version: 3.6.8\n"),
        "fact is malformed", 6, "[0].etcd.image_tag",
    ),
    "no source": (
        "kubernetes.yml", f"- value: {json.dumps(PATCH)}\n  reason: x\n",
        "fact is malformed", 1, "kubernetes/1.36.4.source",
    ),
    "sure by somebody else": (
        "kubernetes.yml", (f"- value: {json.dumps(PATCH)}\n  reason: x\n  sure: vendor\n"
        "  source: {url: 'https://a/', read: 2026-11-26}\n"),
        "a fact of a site is sure by the site alone", 3, "kubernetes/1.36.4.sure",
    ),
    "a key twice": (
        "kubernetes.yml", (f"- value: {json.dumps(PATCH)}\n  reason: x\n  reason: y\n"
        "  source: {url: 'https://a/', read: 2026-11-26}\n"),
        "key is there twice", 3, "reason",
    ),
    "values that are no list": (
        "kubernetes.yml", f"- reason: x\n  values: {json.dumps(PATCH)}\n",
        "fact is malformed", 2, "[0]",
    ),
    "not of its branch": (
        "driver-packages.yml",
        ("- reason: x\n  source: {url: 'https://a/', read: 2026-11-26}\n  values:\n"
        "    - {os: debian-12, source: distro, flavour: open, branch: '580', version: 535.1.1,\n"
        "       packages: {a: '1'}}\n"),
        "driver is not of its branch", 4, "driver/debian-12-distro-535.1.1-open",
    ),
    "another row of the site": (
        "kubernetes.yml", [ENTRY, ENTRY], "id is used twice", None, "kubernetes/1.36.4",
    ),
    "another file of the site": (
        "systems.yml",
        ("- value: {os: debian-12, name: Debian 12, kernel: '9.9', cgroup: 2, guest: true}\n"
        "  reason: x\n  source: {url: 'https://a/', read: 2026-11-26}\n"),
        "kernel is not in the catalogue", 1, "system/debian-12",
    ),
    "a template": ("kubernetes.yml", b"- \xff\n", "file is not UTF-8 text", 1, None),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_file_line_and_key(tmp_path: Path, case: str) -> None:
    name, entries, what, line, key = WRONG[case]
    path = write(tmp_path, name, "" if isinstance(entries, bytes) else entries)
    if isinstance(entries, bytes):
        path.write_bytes(entries)
    with pytest.raises(CatalogueError) as caught:
        catalogue_of(tmp_path)
    found = [one for one in caught.value.problems if (one.what, one.key) == (what, key)]
    assert found, str(caught.value)
    assert found[0].file == str(path)
    assert found[0].line == line or line is None
    assert found[0].fix


def test_a_row_of_the_catalogue_that_no_longer_fits_is_the_sites_to_correct(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A branch without the flavours that its packages have."""
    branch = load_catalogue().driver_branches["535"].value.model_dump(mode="json")
    branch |= {"flavours": ["open"], "default_flavour": "open"}
    write(site, "driver-branches.yml", [{"value": branch, **REST}])
    assert plan(site) == 3
    said = capsys.readouterr().err
    assert f"flavour is not published for the branch — {site}/facts {DRIVER}" in said
    assert "correct the facts of the site" in said
    assert not (site / ".bedplate.lock.yml").exists()


def test_ansible_takes_no_hosts_from_facts(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the line that `bedplate init` writes; without it a plan says what Ansible will."""
    write(site, "kubernetes.yml", [ENTRY])
    command = [Path(sys.executable).with_name("ansible-inventory"), "-i", str(site), "--list"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    said = subprocess.run(
        command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=120, check=True
    )
    assert "facts" not in said.stderr
    program = f"import sys; from bedplate.cli.main import main; sys.exit(main(['plan', '{site}']))"
    for folder, told in ((ROOT, False), (site, True)):
        planned = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder, env=plain, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert ("ignore_patterns = ^facts$" in planned.stdout.replace("\n    ", " ")) is told


def test_whoever_has_a_site_reads_its_facts() -> None:
    source = ROOT / "src" / "bedplate"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bload_catalogue\(\)", path.read_text(encoding="utf-8"))
    }
    assert found == WITHOUT_SITE
    plugins = [path for path in (ROOT / "plugins").rglob("*.py") if not path.is_symlink()]
    assert plugins
    assert [path for path in plugins if "load_catalogue" in path.read_text(encoding="utf-8")] == []
