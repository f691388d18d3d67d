"""Role nvidia_driver with a distribution's precompiled modules: system and packages are stand-ins.

What kernel runs is not looked at: modules of the site's kernel come, and nothing is built.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.catalogue.load import load_catalogue
from tests.standin import playing
from tests.substrate.standin.packages import StandIn

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = "ubuntu-24.04"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host whose distribution offers the modules, and DKMS as well."""
    (fact,) = (
        fact.value
        for fact in load_catalogue().driver_packages.values()
        if (fact.value.os, fact.value.source, fact.value.flavour) == (SYSTEM, "precompiled", "open")
    )
    (kernel,) = fact.kernels
    work = tmp_path_factory.mktemp("precompiled")
    playing.unpacked(SYSTEM, work, [])
    wishes = {
        "bedplate_host": {"os": SYSTEM, "kind": "bare-metal", "kernel": kernel},
        "bedplate_driver": {"branch": fact.branch, "flavour": "open", "source": "precompiled"},
    }
    place = playing.planned(SYSTEM, work, wishes)
    offered = [StandIn(name, version) for name, version in fact.packages.items()]
    playing.distribution(place, [*offered, playing.headers(), StandIn("dkms", "3.2.1-1")])
    return place


def test_the_modules_of_the_sites_kernel_come_held_and_nothing_that_builds(site: Path) -> None:
    pool = yaml.safe_load((site / ".bedplate.lock.yml").read_text())["pools"]["pool_one"]
    packages = pool["nvidia_driver"]["packages"]
    assert any(pool["kernel"] in name for name in packages)
    changed, said = playing.play(site, "nvidia_driver", "install")
    assert changed > 0, said
    found = playing.installed(site)
    assert {name: found.get(name) for name in packages} == packages
    assert all(playing.held(site, name) for name in packages)
    assert not [name for name in found if name == "dkms" or name.startswith("linux-headers-")]
    changed, said = playing.play(site, "nvidia_driver", "install")
    assert changed == 0, said
