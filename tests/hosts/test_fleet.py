"""Four hosts upgraded to a newer branch, on one of which it is not healthy; and one taken back.

The packages are stand-ins from a repository of the vendor's form (the branches are newer than any
that Debian has), with Debian's own nvidia-smi for the simulated cards.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.site.cluster import recap, unwrapped
from tests.site.hosts import on_host
from tests.substrate.commands import ROOT, SiteCommands
from tests.substrate.standin import deb, driver_packages, programs
from tests.substrate.standin.packages import ORIGIN
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD, NEW = "580.178.04", "595.91.07"
NETWORK, SUBNET = "bedplate-fleet", "10.213.12."
HOSTS = ("one", "two", "three", "four")
BAD = "three"
#: A fault of the new branch alone: its module loads, and no card answers.
FAULT = "/usr/local/bin/nvidia-smi"
SICK = f"""cat > {FAULT} <<'END'
#!/bin/sh
grep -q ^580 /sys/module/nvidia/version || {{ echo "No devices were found"; exit 6; }}
exec /usr/bin/nvidia-smi "$@"
END
chmod 755 {FAULT}"""


def wishes(branch: str) -> str:
    """Wish for a branch of the vendor's repository."""
    return yaml.safe_dump(
        {"bedplate_driver": {"branch": branch, "source": "vendor-repo", "flavour": "open"}}
    )


def make_site(folder: Path, key: Key) -> Path:
    """Write a site of four GPU hosts and no control plane, with the demo's other wishes."""
    source = ROOT / "inventories" / "demo" / "group_vars"
    shutil.copytree(source, folder / "group_vars", ignore=shutil.ignore_patterns("pool_train.yml"))
    for path in (folder / "group_vars").rglob("*.yml"):
        path.write_text(path.read_text().replace("10.213.0.", SUBNET))
    hosts = {name: {"ansible_host": f"{SUBNET}{n}"} for n, name in enumerate(HOSTS, 11)}
    pools = {"children": {"pool_class": {"hosts": hosts}}}
    groups = {"control_plane": {"hosts": {}}, "gpu_pools": pools}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    repository = {
        "url": "file:///srv/standin/",
        "key": f"file:///srv/standin/{PUBLIC}",
        "fingerprint": key.fingerprint,
        "origin": ORIGIN,
    }
    name = folder / "group_vars/gpu_pools.yml"
    name.write_text(name.read_text() + yaml.safe_dump({"nvidia_driver_repository": repository}))
    return folder


def describe(path: Path) -> Path:
    """Describe the four hosts' hardware."""
    hosts = {
        name: {
            "address": f"{SUBNET}{n}",
            "os": "debian-12",
            "gpus": {"model": "t4-16gb", "count": 4},
        }
        for n, name in enumerate(HOSTS, 11)
    }
    network = {"name": NETWORK, "subnet": f"{SUBNET}0/24"}
    path.write_text(yaml.safe_dump({"network": network, "hosts": hosts}))
    return path


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[SiteCommands]:
    """The four hosts with the old branch's repository; nothing is installed yet."""
    key = Key(tmp_path / "gnupg")
    site = SiteCommands(make_site(tmp_path / "fleet", key), describe(tmp_path / "fleet.yml"))
    packages = driver_packages("debian-12", [OLD, NEW], programs.unpack(tmp_path))
    deb.repository(packages, tmp_path / "standin", key)
    key.close()
    site.substrate("down")
    try:
        site.substrate("up")
        for name in HOSTS:
            to = f"{NETWORK}-{name}:/srv"
            subprocess.run(["podman", "cp", str(tmp_path / "standin"), to], check=True)
        yield site
    finally:
        site.substrate("down")


@pytest.mark.prove
def test_of_four_hosts_a_bad_one_is_set_aside(fleet: SiteCommands) -> None:
    """The canary and two more get the new branch; the bad one is back on the old, and says so."""
    place = fleet.site / "group_vars" / "pool_class.yml"
    before = place.read_text()
    place.write_text(before + wishes("580"))
    fleet.plan()
    fleet.playbook("playbooks/hosts.yml")
    assert {loaded(fleet, name) for name in HOSTS} == {OLD}
    place.write_text(before + wishes("595"))
    fleet.plan("--upgrade")
    on_host(fleet, BAD, SICK)
    waves = ["bedplate.gpu.upgrade", "-e", json.dumps({"upgrade_waves": [1, 3]})]
    done = fleet.playbook(*waves, check=False)
    assert done.returncode == 2
    rows = recap(done.stdout)
    assert {name: rows[name]["failed"] for name in HOSTS} == {n: int(n == BAD) for n in HOSTS}
    told = unwrapped(done.stdout)
    assert f"driver {NEW} (open) failed and was rolled back — {BAD} — got " in told
    assert "nvidia-smi: No devices were found" in told
    assert {name: loaded(fleet, name) for name in HOSTS} == {
        name: OLD if name == BAD else NEW for name in HOSTS
    }
    evidence = json.loads((fleet.site / f".bedplate/evidence/host-{BAD}.json").read_text())
    assert "taken back" in str(evidence["checks"])
    on_host(fleet, BAD, f"rm {FAULT}")
    done = fleet.playbook(*waves)
    rows = recap(done.stdout)
    assert {name: rows[name]["changed"] > 0 for name in HOSTS} == {n: n == BAD for n in HOSTS}
    assert {loaded(fleet, name) for name in HOSTS} == {NEW}
    goes_back(fleet)


def goes_back(fleet: SiteCommands) -> None:
    """Take one host back with bedplate.gpu.rollback; the others stay, and nobody goes unasked."""
    done = fleet.playbook("playbooks/rollback.yml", check=False)
    assert "no hosts are named — bedplate.gpu.rollback — got no --limit; " in unwrapped(done.stdout)
    done = fleet.playbook("playbooks/rollback.yml", "--limit", BAD, check=False)
    assert done.returncode == 2
    told = unwrapped(done.stdout)
    assert f"the host was rolled back — {BAD} — got {OLD} (open) / allowed {NEW} (open), " in told
    assert {name: loaded(fleet, name) for name in HOSTS} == {
        name: OLD if name == BAD else NEW for name in HOSTS
    }
    evidence = json.loads((fleet.site / f".bedplate/evidence/host-{BAD}.json").read_text())
    results = {check["id"]: check["result"] for check in evidence["checks"]}
    assert results["driver.loaded_version"] == "fail"


def loaded(fleet: SiteCommands, name: str) -> str:
    """Return the version of the kernel module that a host has loaded."""
    return on_host(fleet, name, "cat /sys/module/nvidia/version").strip()
