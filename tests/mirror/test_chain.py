"""From the vendors to a notebook, by a mirror that was carried: bare hosts reach nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.classroom import Students
from tests.mirror import later
from tests.mirror.chain import INTERNET, Chain, Mirror
from tests.mixes.living import living
from tests.site.cluster import allocatable, gpus_in_pod, node, unwrapped
from tests.site.hosts import on_host
from tests.substrate.commands import STACKS
from tests.substrate.demo import outputs, wait_in_queue
from tests.substrate.hosts.description import load
from tests.substrate.internet import egress
from tests.substrate.internet.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: A quarter of an hour each: run them with `make prove AREA=mirror`.
pytestmark = pytest.mark.prove

HOSTS = ("cp1", "gpu-b")
#: Nothing is there, wherever it is tried from (RFC 5737).
ELSEWHERE = "198.51.100.7"
COURSE = "seminar"
MODEL = "GPU 0: Tesla T4 (UUID: GPU-"


def test_bare_hosts_to_a_notebook_by_a_mirror_that_was_carried(tmp_path: Path) -> None:
    with living(Chain(), tmp_path) as site:
        site.plan()
        mirror = carried(site, tmp_path)
        try:
            installed(site, mirror)
            gpu_in_a_pod(site, tmp_path)
            wait_in_queue(site)
            notebook(site)
            site.playbook("playbooks/verify.yml")
        finally:
            mirror.run("stop")


def test_versions_that_the_site_adds_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch release of Kubernetes and a driver, which the catalogue has not, as facts."""
    later.vendors(tmp_path / "vendors")
    with living(Chain("later", "10.213.19."), tmp_path) as site:
        later.add(site.site)
        told = unwrapped(site.plan().stdout)
        for name in (
            f"archive/{later.SUITE}",
            f"-{later.DRIVER}-",
            f"kubernetes/{later.KUBERNETES}",
        ):
            assert (
                name in told.partition("facts adds to the catalogue: ")[2].partition("/facts ")[0]
            )
        assert "relies on facts of the site: 2 facts of pool_class, cluster" in told
        with monkeypatch.context() as there:
            there.setenv("BEDPLATE_CACHE", str(tmp_path / "vendors"))
            mirror = carried(site, tmp_path)
        try:
            installed(site, mirror)
            gpu_in_a_pod(site, tmp_path)
            for name in HOSTS:
                info = node(site, name)["status"]["nodeInfo"]
                assert info["kubeletVersion"] == f"v{later.KUBERNETES}"
            served = json.loads(site.kubectl("get", "--raw", "/version").stdout)
            assert served["gitVersion"] == f"v{later.KUBERNETES}"
            ask = "nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u"
            assert on_host(site, "gpu-b", ask).strip() == later.DRIVER
            assert on_host(site, "gpu-b", "cat /sys/module/nvidia/version").strip() == later.DRIVER
            site.playbook("playbooks/verify.yml")
        finally:
            mirror.run("stop")


def carried(site: SiteCommands, folder: Path) -> Mirror:
    """Fill a mirror from the stand-in, pack it, switch the stand-in off, and unpack elsewhere."""
    internet = Service(f"bedplate-{site.stack_name}", INTERNET)
    here, packed = Mirror(site, folder / "here", internet), folder / "mirror.tar"
    internet.start()
    try:
        here.run("resolve", "--upstream")
        assert here.take_built() == ["images.bedplate.internal/notebook-jax:0.12.0.1-cuda12"]
        assert "\ndebian-12: " in here.run("fill").stdout, "packages are not part of it"
        here.run("pack", str(packed))
    finally:
        internet.stop()
    shutil.rmtree(here.folder)
    there = Mirror(site, folder / "there")
    there.run("unpack", str(packed))
    packed.unlink()
    there.run("check")
    return there


def installed(site: SiteCommands, mirror: Mirror) -> None:
    """Take bare hosts, which reach the mirror alone, to a cluster with all of its stacks."""
    mirror.run("serve")
    nothing_else(site)
    site.playbook()
    from_the_mirror_alone(site)
    for stack in STACKS:
        site.select(stack)
        site.up(stack)


def nothing_else(site: SiteCommands) -> None:
    """Deny the hosts all but their own network, where the mirror is, and see that it holds."""
    description = load(site.description)
    for name in HOSTS:
        container = description.container(description.host(name))
        egress.deny(container, description.subnet, ())
        before = egress.denied(container)
        said = on_host(site, name, f"curl -sS -m 20 https://{ELSEWHERE}/ 2>&1 || true")
        assert "Failed to connect" in said
        assert egress.denied(container) > before


def from_the_mirror_alone(site: SiteCommands) -> None:
    """See that hosts know no other source of packages."""
    mirror = f"{load(site.description).gateway}:5080"
    for name in HOSTS:
        sources = on_host(site, name, "apt-get indextargets --format '$(URI)'").split()
        assert {source.split("/")[2] for source in sources} == {mirror}


def gpu_in_a_pod(site: SiteCommands, folder: Path) -> None:
    """See what a pod has that asked for a GPU."""
    assert allocatable(site) == {"gpu-b": 40}
    logs = site.pulumi("frameworks", "stack", "output", "logs", quiet=True).stdout
    assert logs.count(MODEL) == 1
    assert gpus_in_pod(site, "gpu-b", folder).startswith(MODEL)


def notebook(site: SiteCommands) -> None:
    """See what a student's notebook has."""
    hub = outputs(site)
    with Students(hub["hub"]) as students:
        assert "successful" in students.do("sign_up", "lin", hub["hub_codes"][COURSE])
        assert "/hub/login" not in students.do("login", "lin")
        students.do("start", "lin")
        students.do("notebook", "lin")
        said = students.do("cell", "lin", "!nvidia-smi -L")
    assert said.startswith(MODEL)
