"""The example site is what most people have, it can be installed, and its comments are true."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.lock import Lock, load_lock
from bedplate.site.load import load_site
from tests.unit.test_plan_table import COLUMNS, LINES

EXAMPLE = Path(__file__).parents[2] / "inventories" / "example"
SHARED = Path("group_vars/all/bedplate.yml")
TODAY = ["--today", "2026-11-25"]
COMMENTED = re.compile(r"^( *)# ( *[a-z_]+: .*)$", re.MULTILINE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as a user names it."""
    monkeypatch.chdir(tmp_path)
    ignore = shutil.ignore_patterns(".bedplate*")
    shutil.copytree(EXAMPLE, tmp_path / "inventories" / "mysite", ignore=ignore)
    return Path("inventories/mysite")


def planned(site: Path) -> Lock:
    """Plan the site, which must be installable, and return its lock."""
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    return load_lock(site)


def test_it_is_what_most_people_have(site: Path) -> None:
    lock = planned(site)
    in_groups = [host.groups for host in lock.hosts.values()]
    assert sum("control_plane" in groups for groups in in_groups) == 3
    assert sum("pool_train" in groups for groups in in_groups) == 16
    pool = lock.pools["pool_train"]
    assert (pool.os, pool.gpu[0].model, pool.gpu[0].count) == ("ubuntu-24.04", "h100-sxm5-80gb", 8)
    assert lock.sources.mode == "upstream"
    assert pool.nvidia_driver is not None
    assert pool.nvidia_fabric is not None
    branch = load_catalogue().driver_branches[pool.nvidia_driver.branch].value
    assert (branch.type, str(branch.end_of_life) > TODAY[1]) == ("lts", True)


def test_its_plan_fits_a_screen_and_names_the_next_command(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(site)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-1] == "next: bedplate mirror resolve inventories/mysite"


def test_what_it_has_commented_out_can_be_installed(site: Path) -> None:
    for path in (site / "hosts.yml", site / "group_vars" / "pool_class.yml"):
        path.write_text(COMMENTED.sub(r"\1\2", path.read_text()))
    pool = planned(site).pools["pool_class"]
    assert (pool.gpu[0].model, pool.sharing.replicas) == ("l40s", 4)


def test_the_course_that_it_has_commented_out_fits(site: Path) -> None:
    for path in (site / "hosts.yml", site / "group_vars" / "pool_class.yml", site / SHARED):
        path.write_text(COMMENTED.sub(r"\1\2", path.read_text()))
    cluster = planned(site).cluster
    assert cluster is not None
    assert cluster.courses["intro"].students == 60


def test_what_its_comments_say_of_values() -> None:
    text = (EXAMPLE / SHARED).read_text()
    offered = re.search(
        r"policy: lts\} # or: ([\w-]+), ([\w-]+); or a branch, as (\{.+\})$", text, re.MULTILINE
    )
    assert offered is not None
    host = next(iter(load_site(EXAMPLE).hosts.values()))
    for wish in ({"policy": offered[1]}, {"policy": offered[2]}, yaml.safe_load(offered[3])):
        type(host.wishes.bedplate_driver).model_validate(wish)
    # "YAML reads 1.30 as the number 1.3"
    assert yaml.safe_load("1.30") == 1.3
