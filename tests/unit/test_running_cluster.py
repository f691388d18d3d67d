"""A site with a running cluster keeps its Kubernetes: the plan refuses what nothing upgrades."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bedplate.cli import main as cli
from bedplate.lock import load_lock, write_lock

TWO_POOLS = Path(__file__).with_name("two_pools")
TODAY = ["--today", "2026-11-21"]
OLD, NEW = "1.36.2", "1.36.3"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose cluster was made with an older Kubernetes, driver and network."""
    copy = shutil.copytree(TWO_POOLS, tmp_path / "mysite", ignore=shutil.ignore_patterns("."))
    assert cli.main(["plan", *TODAY, str(copy)]) == 0
    lock = load_lock(copy)
    assert lock.cluster is not None
    older: dict[str, Any] = {
        "kubernetes": lock.cluster.kubernetes.model_copy(update={"version": OLD}),
        "cri_tools": lock.cluster.cri_tools.model_copy(update={"version": "1.35.0"}),
    }
    write_lock(copy, lock.model_copy(update={"cluster": lock.cluster.model_copy(update=older)}))
    return copy


def bring_up(site: Path) -> None:
    """Leave what the cluster stack leaves."""
    (site / ".bedplate").mkdir()
    (site / ".bedplate" / "kubeconfig").write_text("apiVersion: v1\n")


def ask_for(site: Path, version: str) -> None:
    """Set another version of Kubernetes."""
    path = site / "group_vars" / "all" / "bedplate.yml"
    path.write_text(path.read_text().replace('version: "1.36"', f'version: "{version}"'))


def version(site: Path) -> str:
    """Return the version that is locked."""
    cluster = load_lock(site).cluster
    assert cluster is not None
    return cluster.kubernetes.version


def test_a_running_clusters_kubernetes_is_refused_at_its_setting(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bring_up(site)
    ask_for(site, NEW)
    before = (site / ".bedplate.lock.yml").read_bytes()
    for options in ((), ("--upgrade",), ("--diff",), ("--check",)):
        capsys.readouterr()
        assert cli.main(["plan", *TODAY, *options, str(site)]) == 3
        assert capsys.readouterr().err == (
            f"{site}/group_vars/all/bedplate.yml:3:23: "
            "this version cannot upgrade the Kubernetes of a running cluster — "
            f"bedplate_kubernetes.version — got {NEW} / "
            f'allowed {OLD} — write "{OLD}", or take the cluster down first (pulumi destroy in '
            "stacks/cluster)\n  rule kubernetes-running\n\n1 error; no lock was written.\n"
        )
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_the_place_of_a_pin(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bring_up(site)
    path = site / "group_vars" / "all" / "bedplate.yml"
    path.write_text(path.read_text() + f'bedplate_pins: {{kubernetes: "{NEW}"}}\n')
    capsys.readouterr()
    assert cli.main(["plan", *TODAY, "--json", str(site)]) == 3
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert (refusal["key"], refusal["line"]) == ("bedplate_pins.kubernetes", 5)


def test_an_upgrade_moves_everything_else(site: Path) -> None:
    bring_up(site)
    assert cli.main(["plan", *TODAY, "--upgrade", str(site)]) == 0
    assert version(site) == OLD
    cluster = load_lock(site).cluster
    assert cluster is not None
    assert cluster.cri_tools.version == "1.36.0"


def test_without_a_cluster_kubernetes_moves(site: Path) -> None:
    assert cli.main(["plan", *TODAY, "--upgrade", str(site)]) == 0
    assert version(site) == NEW


def test_a_cluster_that_is_gone_holds_nothing(site: Path) -> None:
    bring_up(site)
    (site / ".bedplate" / "kubeconfig").unlink()  # `pulumi destroy` removes it
    ask_for(site, NEW)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == NEW


def test_an_empty_kubeconfig_is_no_cluster(site: Path) -> None:
    """As a shell leaves it whose command failed: `pulumi stack output … > kubeconfig`."""
    bring_up(site)
    (site / ".bedplate" / "kubeconfig").write_text("")
    ask_for(site, NEW)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == NEW


def test_the_same_kubernetes_is_planned_as_ever(site: Path) -> None:
    bring_up(site)
    ask_for(site, OLD)
    hosts = site / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("class[1:4]", "class[1:5]"))
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert "class5.example" in load_lock(site).hosts
