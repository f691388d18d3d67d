"""What `bedplate render` writes, taken by a real API server as kubectl gives it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.cli.main import main
from tests.schedulers.api import eventually
from tests.schedulers.kueue import rendered
from tests.unit.bill import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.schedulers.control_plane import ControlPlane

DEMO = Path(__file__).parents[2] / "inventories/demo"


@pytest.mark.prove
def test_the_demos_whole_objects_are_taken_and_then_there_is_no_difference(
    tmp_path: Path, start_control_plane: Callable[..., ControlPlane]
) -> None:
    site, folder = tmp_path / "demo", tmp_path / "rendered"
    shutil.copytree(DEMO, site, ignore=shutil.ignore_patterns(".bedplate"))
    assert main(["plan", str(site)]) == 0
    made.make(site)
    assert main(["render", str(site), "--output", str(folder)]) == 0
    plane = start_control_plane()
    chart = yaml.safe_load((folder / "schedulers/parts/chart-kueue.yml").read_text())
    for one in rendered("kueue", chart["values"]):
        if one["kind"] == "CustomResourceDefinition":
            one["spec"].pop("conversion", None)  # by its webhook, which does not run here
            plane.api.create(one)
    eventually(lambda: "clusterqueues" in plane.kubectl("api-resources"))
    for stack in ("schedulers", "frameworks"):
        whole = ("--server-side", "--filename", str(folder / stack))
        said = plane.kubectl("apply", *whole)
        assert len(said.splitlines()) == len(list((folder / stack).glob("*.yml")))
        assert plane.kubectl("diff", *whole) == "", stack
