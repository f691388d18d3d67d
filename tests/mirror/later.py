"""Day 30: versions that the catalogue does not have, at the stand-in and as facts of a site."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from bedplate.catalogue import load_catalogue
from bedplate.mirror.store import Store, cache
from tests.mirror.chain import add_facts, archives
from tests.substrate.images.filling import fill
from tests.substrate.images.recipes import known_tools

#: No other patch release of Kubernetes can be built in the time of a test: these are the same
#: programs, with another number of the same length where theirs was.
KUBERNETES, OLD = "1.36.4", "1.36.3"
#: An archive of the distribution that the catalogue does not have, and the driver that it offers.
SUITE = "bookworm-backports"
DRIVER, REVISION = "535.216.03", "535.216.03-2~bpo12+1"
LIKE, OF_OTHERS = "535.261.03", "535.261.03-1"
#: Smaller files may be written again in their place.
LARGE = 1 << 16


def vendors(folder: Path) -> None:
    """Have a cache whose stand-in offers the later Kubernetes too."""
    source = cache()

    def linked(one: str, other: str) -> None:
        place = os.link if Path(one).stat().st_size > LARGE else shutil.copy2
        place(one, other)

    shutil.copytree(source / "mirror", folder / "mirror", copy_function=linked)
    tools = known_tools()
    kubernetes = tools["kubernetes"]
    assert kubernetes.version == OLD, "write another version here"
    stamped = folder / "kubernetes"
    for path in sorted(kubernetes.folder.rglob("*")):
        target = stamped / path.relative_to(kubernetes.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes().replace(OLD.encode(), KUBERNETES.encode()))
            target.chmod(path.stat().st_mode)
    fill(
        Store(folder / "mirror"),
        {**tools, "kubernetes": replace(kubernetes, version=KUBERNETES, folder=stamped)},
    )


def add(site: Path) -> None:
    """Add both versions to a site as facts, and the archive that the driver is in."""
    catalogue = load_catalogue()
    release = catalogue.kubernetes[OLD].value.model_dump(mode="json", exclude_unset=True)
    add_facts(site, "kubernetes", [release | {"version": KUBERNETES}])
    first = archives()[0]
    more: dict[str, Any] = {"archive": SUITE, "suites": [SUITE]}
    add_facts(site, "distribution-archives", [*archives(), first | more])
    (row,) = (
        one.value.model_dump(mode="json", exclude_unset=True)
        for one in catalogue.driver_packages.values()
        if (one.value.os, one.value.version, one.value.flavour)
        == ("debian-12", LIKE, "proprietary")
    )
    packages = {
        name: REVISION if version == OF_OTHERS else version
        for name, version in row["packages"].items()
    }
    add_facts(site, "driver-packages", [row | {"version": DRIVER, "packages": packages}])
    settings = site / "group_vars/all/bedplate.yml"
    pin = f"bedplate_pins: {{nvidia_driver: {DRIVER}}}\n"
    settings.write_text(settings.read_text() + pin)
