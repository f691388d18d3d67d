"""One substrate and one cluster for all end-to-end tests: a copy of the demo's site with a fourth
host, on a network of its own, so that a running demo is not disturbed.

The demo has a mirror; this site takes everything from the vendors' own addresses, which lead to a
stand-in. Its hosts reach nothing else.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill.needs import notebooks_of
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from tests.site import footprint
from tests.substrate.commands import ROOT, STACKS, SiteCommands
from tests.substrate.hosts import machine
from tests.substrate.internet.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEMO_SUBNET, SUBNET = "10.213.0.", "10.213.1."
EXTRA = "gpu-c"
NETWORK = "bedplate-e2e"


def copy_site(folder: Path, *, upstream: bool = True) -> Path:
    """Copy the demo's settings to *folder*: other subnet, `gpu-c` as `gpu-b`, and no mirror."""
    source = ROOT / "inventories" / "demo"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".bedplate*"))
    for path in folder.rglob("*.yml"):
        path.write_text(path.read_text().replace(DEMO_SUBNET, SUBNET))
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    pool = hosts["all"]["children"]["gpu_pools"]["children"]["pool_class"]["hosts"]
    pool[EXTRA] = {"ansible_host": f"{SUBNET}23"}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))
    teams = folder / "group_vars/all/teams.yml"
    shared = yaml.safe_load(teams.read_text())
    shared["bedplate_storage"]["homes"]["shared"] = True  # a pool of two hosts must have that
    teams.write_text(yaml.safe_dump(shared, sort_keys=False))
    if not upstream:
        return folder
    settings = folder / "group_vars/all/bedplate.yml"
    content = yaml.safe_load(settings.read_text())
    content["bedplate_sources"] |= {"mode": "upstream"}
    del content["bedplate_sources"]["url"]
    settings.write_text(yaml.safe_dump(content, sort_keys=False))
    # The registry that the notebooks' own name leads to here has them.
    known = notebooks_of(load_lock(source), load_catalogue())
    rows = [
        {
            "value": {"image": name, "notebook": name.removeprefix("notebook-"), "reference": at},
            "reason": "Built for these tests.",
            "source": {"url": f"https://{at.partition('/')[0]}/", "read": "2026-11-28"},
        }
        for at, name in ((at, one.needed_by) for at, one in known if one.built)
    ]
    (folder / "facts").mkdir()
    (folder / "facts/images.yml").write_text(yaml.safe_dump(rows, sort_keys=False))
    return folder


def copy_description(path: Path) -> Path:
    """Describe the copied site's hardware: the demo's, and `gpu-c` equal to `gpu-b`."""
    text = (ROOT / "tests/substrate/hosts/demo.yml").read_text().replace(DEMO_SUBNET, SUBNET)
    description = yaml.safe_load(text)
    description["network"]["name"] = NETWORK
    description["hosts"][EXTRA] = description["hosts"]["gpu-b"] | {"address": f"{SUBNET}23"}
    path.write_text(yaml.safe_dump(description, sort_keys=False))
    return path


def forget_stacks() -> None:
    """Remove the copied site's stack configuration from the projects."""
    for stack in STACKS:
        (ROOT / "stacks" / stack / "Pulumi.e2e.yaml").unlink(missing_ok=True)


@pytest.fixture(scope="package")
def site(
    tmp_path_factory: pytest.TempPathFactory, figures: dict[str, dict[str, float]]
) -> Iterator[SiteCommands]:
    """The site with its bare hosts running: nothing is planned or installed yet.

    Afterwards the machine has nothing of the hosts any more, and its own kernel settings.
    """
    folder = tmp_path_factory.mktemp("site")
    internet = Service(NETWORK, f"{SUBNET}1")
    commands = SiteCommands(
        copy_site(folder / "e2e"), copy_description(folder / "e2e.yml"), internet=internet
    )
    # The user's own backend, if there is one, is not for stacks that live as long as a test.
    state = folder / "state"
    state.mkdir()
    before = os.environ.get("PULUMI_BACKEND_URL")
    os.environ["PULUMI_BACKEND_URL"] = f"file://{state}"
    # What a run that was killed has left would belong to another site and passphrase.
    commands.substrate("down")
    forget_stacks()
    machine.allow_watchers()  # else the first hosts of a fresh machine do, and it counts as left
    kept = footprint.settings()
    try:
        commands.substrate("up")
        yield commands
        marks = footprint.marks_of(NETWORK)
        there = footprint.left(NETWORK, marks)
    finally:
        commands.substrate("down")
        forget_stacks()
        if before is None:
            del os.environ["PULUMI_BACKEND_URL"]
        else:
            os.environ["PULUMI_BACKEND_URL"] = before
        figures["end-to-end site: seconds by command"] = commands.phases
    assert there.keys() == footprint.KINDS, "not every kind of thing was looked for"
    footprint.assert_gone(NETWORK, f"{SUBNET}0/24", marks)
    assert footprint.settings() == kept
