"""`bedplate catalogue check`: rows that are old, and drivers that an index contradicts."""

from __future__ import annotations

import json
import lzma
import re
from argparse import Namespace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.cli import catalogue_review
from bedplate.cli import main as cli
from tests.unit.bill.test_repository import PRIMARY
from tests.unit.test_site_facts import DRIVER, PATCH, REST

if TYPE_CHECKING:
    from pathlib import Path


def packages(path: Path, versions: dict[str, str]) -> Path:
    """Write a list of packages as apt's archives have it."""
    text = "\n".join(f"Package: {name}\nVersion: {one}\n" for name, one in versions.items())
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())
    return path


def said(capsys: pytest.CaptureFixture[str], status: int, *words: object) -> dict[str, Any]:
    """Run the command and return what it says as JSON."""
    capsys.readouterr()
    assert cli.main(["catalogue", "check", "--json", *map(str, words)]) == status
    return dict(json.loads(capsys.readouterr().out))


def test_old_rows_are_listed_by_source(capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(site=None, older_than=10, index=[], form="table")
    newest = max(one.source.read for one in load_catalogue().driver_packages.values())
    assert catalogue_review.run(options, newest) == 0
    assert catalogue_review.run(options, date(2030, 1, 1)) == 2
    out = capsys.readouterr().out
    assert re.search(
        r"^2026-11-\d\d  driver-branches.yml  branch/\d+ and \d+ more: https://", out, re.MULTILINE
    )
    count = sum(map(len, load_catalogue().tables().values()))
    assert f"{count} rows were read before 2029-12-22." in out


def test_a_sites_own_rows_grow_old_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = REST["source"] | {"read": "2020-01-01"}
    (tmp_path / "facts").mkdir()
    path = tmp_path / "facts" / "kubernetes.yml"
    path.write_text(yaml.safe_dump([{"value": PATCH, **REST, "source": source}]))
    (old,) = said(capsys, 2, tmp_path, "--older-than", 2000)["old"]
    assert (old["kind"], old["facts"]) == ("kubernetes", ["kubernetes/1.36.4"])
    path.write_text(path.read_text().replace("coredns", "coredn"))
    assert cli.main(["catalogue", "check", str(tmp_path)]) == 3
    refused = capsys.readouterr().err
    assert refused.startswith(f"{path}:")
    assert ": fact is malformed — " in refused


def test_what_an_index_contradicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files count together; another version is a contradiction, no package by name is not."""
    driver = load_catalogue().fact(DRIVER).value
    (first, locked), *rest = driver.packages.items()
    one = packages(tmp_path / "Packages.xz", {first: "535.321.07-0+deb12u1"})
    other = packages(tmp_path / "Packages", dict(rest))
    found = said(capsys, 2, "--index", f"debian-12={one}", "--index", f"debian-12={other}")
    mine = [row for row in found["wrong"] if row["fact"] == DRIVER]
    offered = ["535.321.07-0+deb12u1"]
    assert mine == [{"fact": DRIVER, "package": first, "version": locked, "offered": offered}]
    assert found["compared"] >= 1
    packages(other, {"unknown": "1"})
    found = said(capsys, 0, "--index", f"debian-12={other}")
    assert (found["compared"], found["wrong"]) == (0, [])
    assert found["left"] >= 1


def test_an_index_of_dnf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "primary.xml"
    path.write_text(PRIMARY)
    found = said(capsys, 2, "--index", f"rhel-9:vendor-repo={path}")
    assert {"3:580.95.05-1.el9"} in [set(row["offered"]) for row in found["wrong"]]


def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Packages.xz"
    path.write_text("not packed")
    for words, told in (
        (["--index", f"debian-12={path}"], "list of packages cannot be read"),
        (["--index", f"debian-99={path}"], "no such system"),
        (["--index", f"debian-12={tmp_path / 'none'}"], "No such file"),
        ([str(tmp_path / "none")], "no such site"),
    ):
        assert cli.main(["catalogue", "check", *words]) == 3
        assert told in capsys.readouterr().err
    for words in (
        ["--index", "debian-12"],
        ["--older-than", "soon"],
        ["--older-than", "800000"],
        ["--older-than", "9" * 5000],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["catalogue", "check", *words])
        assert ended.value.code == 3
        assert "allowed" in capsys.readouterr().err
