"""A class as its students see it: real browsers, a real hub and real pods, on hosts of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.frameworks.classroom import hold_class
from tests.frameworks.running import hold_runs
from tests.mixes.living import installed, living
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "10.213.0."


@dataclass(frozen=True)
class Copy:
    """The demo on a network of its own."""

    name: str = "class"
    begin: str = "10.213.17."

    @property
    def subnet(self) -> str:
        """Its network, with the prefix length."""
        return f"{self.begin}0/24"

    def write(self, folder: Path) -> SiteCommands:
        """Write the site and the description of its hardware; return its commands."""
        site = folder / self.name
        shutil.copytree(SITE, site, ignore=shutil.ignore_patterns(".bedplate*"))
        for path in site.rglob("*.yml"):
            path.write_text(path.read_text().replace(DEMO, self.begin))
        hardware = yaml.safe_load(DESCRIPTION.read_text().replace(DEMO, self.begin))
        hardware["network"]["name"] = f"bedplate-{self.name}"
        description = folder / f"{self.name}.yml"
        description.write_text(yaml.safe_dump(hardware, sort_keys=False))
        return SiteCommands(site, description)


@pytest.mark.prove
def test_a_class_in_browsers(tmp_path: Path) -> None:
    """From sign-up to the next class; hub, proxy and Kueue are killed in between. Then runs."""
    with living(Copy(), tmp_path) as site:
        installed(site)
        for stack in ("schedulers", "frameworks"):
            site.select(stack)
            site.up(stack)
        hold_class(site, tmp_path / "pictures")
        hold_runs(site)
