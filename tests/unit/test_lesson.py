"""The lesson of the examples: its settings are planned, its notebooks are clean and can be run."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.pods.hub import share_service, shares

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LESSON = EXAMPLES / "lesson"
NOTEBOOKS = sorted((LESSON / "material").glob("*.ipynb"))
MIRROR = ROOT / "docs/mirror.md"
#: What README.md says that an image needs, and the standard library.
PACKAGES = {"matplotlib", "sklearn", "time", "torch"}
#: The demo's own, from Debian.
THERE = "docker.io/library/debian:12-slim"


def course() -> dict[str, Any]:
    """Return the settings of the lesson's course."""
    (found,) = yaml.safe_load((LESSON / "courses.yml").read_text())["bedplate_courses"]
    return dict(found)


def cells(path: Path) -> Iterator[str]:
    """Yield the source of each code cell."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def test_its_settings_are_planned_once_its_image_is_named_and_the_class_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ignore = shutil.ignore_patterns(".bedplate*")
    site = shutil.copytree(ROOT / "inventories/example", tmp_path / "site", ignore=ignore)
    hosts = (site / "hosts.yml").read_text()
    hosts = re.sub(r"# pool_class: .*", "pool_class: {hosts: {class1.example: {}}}", hosts)
    (site / "hosts.yml").write_text(hosts)
    pool = "bedplate_gpu: {model: l40s, count: 4}\nbedplate_sharing: "
    (site / "group_vars/pool_class.yml").write_text(pool + "{mode: time-slicing, replicas: 10}\n")
    shutil.copy(LESSON / "courses.yml", site / "group_vars/all/courses.yml")
    plan = ["plan", "--today", "2026-11-28", str(site)]
    assert cli.main(plan) == 4
    first = capsys.readouterr().out
    named = re.search(r"facts/images.yml with notebook: (pytorch-[0-9.]+-cu[0-9]+);", first)
    assert named
    assert f"next: bedplate frameworks {site} --output images" in first
    shown = re.search(r"# facts/images.yml of the site\n(- .*?)```", MIRROR.read_text(), re.DOTALL)
    assert shown
    (site / "facts").mkdir()
    own = shown[1].replace("jax-0.12.0.1-cuda12,", f"{named[1]},")
    (site / "facts/images.yml").write_text(own)
    assert cli.main(plan) == 0
    each = rf"{course()['students']} . {course()['per_user']['shares']} . [0-9]+Mi"
    assert re.search(rf"course +digits: {each}, Mon", capsys.readouterr().out)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_holds_no_output_and_needs_what_the_image_has(path: Path) -> None:
    found = json.loads(path.read_text())
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in found["cells"]]
    assert len(ids) == len(set(ids))
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
    for source in cells(path):
        python = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
        for node in ast.walk(ast.parse(python)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= PACKAGES


def test_the_cell_of_the_queue_asks_for_the_courses_share() -> None:
    (cell,) = [one for one in cells(NOTEBOOKS[1]) if one.startswith("%%share")]
    magic, share, time = cell.splitlines()[0].split()
    assert magic == "%%share"
    assert float(share) == course()["share"]
    assert shares.seconds(time) <= 3600
    assert len(cell) < share_service.LARGEST


def images(path: Path) -> set[str]:
    """Return the images that the objects of a file name."""

    def below(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            if "image" in part:
                yield str(part["image"])
            part = list(part.values())
        if isinstance(part, list):
            for one in part:
                yield from below(one)

    return set(below(list(yaml.safe_load_all(path.read_text()))))


def test_an_example_names_an_image_that_exists_or_says_that_it_is_a_placeholder() -> None:
    files = sorted(EXAMPLES.rglob("*.yml"))
    assert len(files) > 15
    for path in files:
        head = " ".join(re.findall(r"^# ?(.*)$", path.read_text(), re.MULTILINE))
        for image in images(path) - {THERE}:
            name = image.partition("@")[0]
            assert f"{name} is a placeholder" in head, path
