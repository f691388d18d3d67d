"""A host with Docker and no Kubernetes gets a newer driver, and is taken back to the one before.

Driver, Docker and toolkit are Debian's and NVIDIA's own; the cards are simulated.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.hosts.test_fleet import loaded
from tests.site.cluster import recap, unwrapped
from tests.site.hosts import on_host
from tests.substrate.commands import ROOT, SiteCommands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SITE = ROOT / "tests/roles/docker"
HOST, NETWORK, BEGIN = "docker1", "bedplate-docker-back", "10.213.22."
POOL = "group_vars/pool_class.yml"
#: A container of the host's own programs, and a process that holds a GPU as one of Docker's would:
#: a simulated GPU's node can be held, and not be opened.
RUN = """set -e
tar --create --file=/run/sleeps.tar --dereference --directory=/ \
  bin/sleep lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6
docker import /run/sleeps.tar tests/sleeps > /run/image
docker run --detach --name runs --network none --runtime runc tests/sleeps /bin/sleep 3600
systemd-run --unit=holds python3 -c \
  'import os, time; os.open("/dev/nvidia0", os.O_PATH); time.sleep(3600)'"""
RUNS = "docker container inspect --format '{{ .State.Running }}' runs"


def wanted(branch: str) -> str:
    """Want a branch of Debian's own packages."""
    return yaml.safe_dump({"bedplate_driver": {"branch": branch, "source": "distro"}})


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SiteCommands]:
    """The site and bare host of the scenario with Docker, at an address of their own."""
    folder, description = tmp_path / "docker-back", tmp_path / "docker-back.yml"
    for path in [SITE / "hosts.yml", *(SITE / "group_vars").rglob("*.yml")]:
        to = folder / path.relative_to(SITE)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(path.read_text().replace("10.213.6.", BEGIN))
    hardware = yaml.safe_load((ROOT / "tests/substrate/hosts/docker.yml").read_text())
    hardware["network"] = {"name": NETWORK, "subnet": f"{BEGIN}0/25"}
    hardware["hosts"][HOST]["address"] = f"{BEGIN}11"
    description.write_text(yaml.safe_dump(hardware))
    commands = SiteCommands(folder, description)
    commands.substrate("down")
    try:
        commands.substrate("up")
        yield commands
    finally:
        commands.substrate("down")


@pytest.mark.prove
def test_a_host_with_docker_goes_back(site: SiteCommands) -> None:
    """While containers hold GPUs nothing goes back; then driver, CDI and containers' GPUs do."""
    place = site.site / POOL
    before = place.read_text()
    place.write_text(before + wanted("470"))
    site.plan()
    old = (site.site / ".bedplate.lock.yml").read_text()
    site.resolve()
    site.playbook()
    was = loaded(site, HOST)
    assert was.startswith("470.")
    place.write_text(before + wanted("535"))
    site.plan("--upgrade")
    site.resolve()
    site.playbook("playbooks/upgrade.yml")
    now = loaded(site, HOST)
    assert now.startswith("535.")
    on_host(site, HOST, RUN)
    back = ("playbooks/rollback.yml", "--limit", HOST)
    told = unwrapped(site.playbook(*back, check=False).stdout)
    assert f"the GPUs are in use, so that the driver stays — {HOST} — got " in told
    assert (loaded(site, HOST), on_host(site, HOST, RUNS).strip()) == (now, "true")
    on_host(site, HOST, "systemctl stop holds.service")
    done = site.playbook(*back, check=False)
    assert done.returncode == 2
    told = unwrapped(done.stdout)
    assert f"the host was rolled back — {HOST} — got {was} (proprietary) / allowed {now} (" in told
    assert (loaded(site, HOST), on_host(site, HOST, RUNS).strip()) == (was, "true")
    results = checks(site)
    assert results["driver.loaded_version"] == "fail"
    assert results["container.--gpus all"] == results["cdi.current"] == "pass"

    # The lock before: it finds nothing to do, and its evidence is whole.
    place.write_text(before + wanted("470"))
    site.plan("--upgrade")
    assert (site.site / ".bedplate.lock.yml").read_text() == old
    site.resolve()
    assert recap(site.playbook().stdout)[HOST]["changed"] == 0
    assert "fail" not in checks(site).values()
    assert on_host(site, HOST, RUNS).strip() == "true"


def checks(site: SiteCommands) -> dict[str, str]:
    """Return the results of the host's evidence, by check."""
    evidence = json.loads((site.site / f".bedplate/evidence/host-{HOST}.json").read_text())
    return {check["id"]: check["result"] for check in evidence["checks"]}
