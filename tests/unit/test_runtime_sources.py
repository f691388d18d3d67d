"""Where containerd comes from: what a wish for a source gets, by system and release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.lock import load_lock

if TYPE_CHECKING:
    from pathlib import Path

TODAY = ["--today", "2026-11-22"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of one host with GPUs, which is to wish for a source of containerd."""
    place = tmp_path / "site"
    (place / "group_vars").mkdir(parents=True)
    hosts = {"gpu_pools": {"children": {"pool_one": {"hosts": {"one": {}}}}}}
    control = {"control_plane": {"hosts": {}}}
    text = yaml.safe_dump({"all": {"children": hosts | control}})
    (place / "hosts.yml").write_text(text)
    return place


def planned(site: Path, os: str, release: str, source: str = "distro") -> int:
    """Plan for a system, a Kubernetes release and a source; the exit status."""
    wishes = {
        "bedplate_container_runtime": {"name": "containerd", "source": source},
        "bedplate_driver": {},
        "bedplate_gpu": {"model": "t4-16gb", "count": 4},
        "bedplate_host": {"os": os},
        "bedplate_kubernetes": {"version": release, "endpoint": "192.0.2.1:6443"},
    }
    (site / "group_vars/all.yml").write_text(yaml.safe_dump(wishes))
    return cli.main(["plan", *TODAY, "--why", "--allow-planned", str(site)])


@pytest.mark.parametrize(
    ("os", "release", "version"),
    [
        ("debian-13", "1.33", "1.7.24"),
        ("ubuntu-22.04", "1.34", "2.2.1"),
        ("ubuntu-24.04", "1.36", "2.2.1"),
    ],
)
def test_the_distributions_containerd_is_had_where_it_serves(
    site: Path, os: str, release: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(site, os, release) == 0
    runtime = load_lock(site).cluster.containerd
    assert runtime is not None
    assert (runtime.version, runtime.source) == (version, "distro")
    assert "containerd from distro" in capsys.readouterr().out  # nobody has run a site with it


@pytest.mark.parametrize(
    ("os", "release", "what", "got"),
    [
        (
            "debian-12",
            "1.33",
            "container runtime cannot give GPUs to containers by CDI",
            "got distro with host.os debian-12 / allowed archive, vendor-repo — write archive",
        ),
        (
            "debian-13",
            "1.36",
            "container runtime does not go with this Kubernetes",
            "got 1.36 with container_runtime.source distro, host.os debian-13 / allowed 1.33",
        ),
        (
            "rocky-9",
            "1.36",
            "container runtime is packaged for another system",
            "got distro with host.os rocky-9 / allowed archive, vendor-repo — write archive",
        ),
    ],
)
def test_it_is_refused_with_the_reason_elsewhere(
    site: Path, os: str, release: str, what: str, got: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(site, os, release) == 3
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if f": {what} — " in line and got in line], lines
    assert not (site / ".bedplate.lock.yml").exists()


@pytest.mark.parametrize(
    ("os", "version", "package"),
    [
        ("debian-12", "2.2.6", "2.2.6-1~debian.12~bookworm"),
        ("ubuntu-24.04", "2.2.6", "2.2.6-1~ubuntu.24.04~noble"),
        ("rocky-9", "2.2.0", "0:2.2.0-2.el9"),
    ],
)
def test_the_vendors_containerd_is_had_at_an_exact_version(
    site: Path, os: str, version: str, package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(site, os, "1.36", "vendor-repo") == 0
    runtime = load_lock(site).cluster.containerd
    assert runtime is not None
    assert (runtime.version, runtime.source) == (version, "vendor-repo")
    assert runtime.packages == {"containerd.io": package}
    assert "containerd from vendor-repo" in capsys.readouterr().out  # stand-ins alone were tried
