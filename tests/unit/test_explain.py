"""`bedplate explain` explains the plan's own decision, in the plan's order, and quickly."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.lock import load_lock, write_lock
from bedplate.planning import explain, screen
from bedplate.resolver.plan import plan

if TYPE_CHECKING:
    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.facts import Fact
    from bedplate.lock import Lock

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 21)
CONTROL_PLANES = {"hosts": {"cp[1:3].example": {}}}
SHARED = {
    "bedplate_host": {"os": "debian-12"},
    "bedplate_kubernetes": {"endpoint": "k8s.example:6443"},
    "bedplate_sources": {"mode": "mirror", "url": "http://mirror.example:5080"},
}
V100 = {"bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 8}}
H100 = {"bedplate_gpu": {"model": "h100-pcie-80gb", "count": 8}}
VENDOR = {"bedplate_driver": {"source": "vendor-repo"}}
#: The newest release that runs on cgroup v1 without being told to.
CGROUP_V1 = {"bedplate_host": {"os": "rocky-8"}}

type Wishes = dict[str, object]


def make(folder: Path, pools: dict[str, Wishes], shared: Wishes | None = None) -> Path:
    """Write a site with two hosts in each pool."""
    children = {pool: {"hosts": {f"{pool[5:]}[1:2].example": {}}} for pool in pools}
    groups = {"control_plane": CONTROL_PLANES, "gpu_pools": {"children": children}}
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    for name, wishes in {"all": SHARED | (shared or {}), **pools}.items():
        (folder / "group_vars" / f"{name}.yml").write_text(yaml.safe_dump(wishes))
    return folder


def planned(site: Path) -> Lock:
    """Return the lock that a plan would write."""
    return plan(site, TODAY).plan.lock


class Says:
    """Runs `explain`, which has to end well, and returns what it printed."""

    def __init__(self, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.site, self.capsys = site, capsys

    def __call__(self, *arguments: str) -> str:
        self.capsys.readouterr()
        assert cli.main(["explain", str(self.site), *arguments]) == 0
        return self.capsys.readouterr().out


@pytest.fixture
def mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Says:
    """A pool that goes with any Kubernetes, and one that does not."""
    pools = {"pool_a": V100 | VENDOR, "pool_b": V100 | VENDOR | CGROUP_V1}
    return Says(make(tmp_path / "mixed", pools), capsys)


@pytest.fixture
def single(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Says:
    """One pool of V100s, and one of H100s."""
    pools = {"pool_a": V100 | VENDOR, "pool_b": H100 | VENDOR}
    return Says(make(tmp_path / "single", pools), capsys)


@pytest.mark.parametrize("subject", ["pool_a", "pool_b", "cluster"])
def test_a_shared_choice_is_the_plans_whoever_is_asked(mixed: Says, subject: str) -> None:
    version = planned(mixed.site).cluster.kubernetes.version
    text = mixed(subject, "kubernetes")
    assert text.startswith(f"cluster kubernetes {version}: ")
    assert (
        "  1.36.3: Kubernetes refuses cgroup v1 — with bedplate_host.os rocky-8 of pool_b" in text
    )


def test_all_reasons_are_those_of_the_plan(mixed: Says) -> None:
    reasons = plan(mixed.site, TODAY).plan.reasons
    for subject in ("cluster", "pool_a", "pool_b"):
        told = [
            f"{one.subject} {one.component} {one.decided}: {one.because}"
            for one in reasons
            if one.subject == subject
        ]
        assert mixed(subject).partition("\n\n")[0].splitlines() == told


def facts_of(monkeypatch: pytest.MonkeyPatch, table: str, **changes: dict[str, object]) -> None:
    """Let `explain` read other facts: a table's, by `name=` and what of its value differs."""
    catalogue: Catalogue = load_catalogue()
    facts: dict[str, Fact[Any]] = dict(getattr(catalogue, table))
    for name, fields in changes.items():
        value = facts[name].value.model_copy(update=fields)
        facts[name] = facts[name].model_copy(update={"value": value})
    changed = replace(catalogue, **{table: facts})
    monkeypatch.setattr(explain, "catalogue_of", lambda _: changed)


def test_a_pools_alternatives_stand_under_the_shared_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # An older add-on would go with the driver that is asked about: it is not what is chosen.
    facts_of(monkeypatch, "addons", **{"nvidia-dra-driver-0.4.1": {"driver_from": "535"}})
    site = make(tmp_path / "site", {"pool_a": V100}, {"bedplate_operators": ["nvidia-dra-driver"]})
    says = Says(site, capsys)
    assert "580.126.20: possible, and a newer driver goes as well" in says(
        "pool_a", "nvidia_driver=580.126.20"
    )
    text = says("pool_a", "nvidia_driver=535")
    assert "  535.309.01: add-on needs a newer driver\n" in text
    assert "  0.4.1: possible where nvidia-dra-driver-0.4.1" not in text
    newer = says("pool_a", "nvidia-dra-driver")
    assert newer.startswith("cluster nvidia-dra-driver 0.5.0: ")
    assert "  0.4.1: possible, and a newer version goes as well" in newer


def test_pools_that_only_together_cannot_live_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes = load_catalogue().container_runtimes
    archives = {
        name: {"kubernetes_from": "1.34"}
        for name, fact in runtimes.items()
        if fact.value.source == "archive"
    }
    packaged = {"containerd-1.6.20-debian-12": {"cdi": True, "kubernetes_upto": "1.33"}}
    facts_of(monkeypatch, "container_runtimes", **archives, **packaged)
    pools = {
        "pool_a": V100 | VENDOR,
        "pool_b": V100 | VENDOR | {"bedplate_host": {"os": "debian-13"}},
    }
    says = Says(make(tmp_path / "site", pools), capsys)
    text = says("cluster", "kubernetes=1.33.6")
    assert (
        "  1.33.6: pool_b, hosts like cp1.example: each goes with it alone, but not together"
        in (text)
    )


def test_twenty_pools_are_explained_in_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = {
        f"pool_p{number:02}": (V100, H100)[number % 2]
        | VENDOR
        | (CGROUP_V1 if number == 18 else {})
        | {"bedplate_sharing": {"mode": "time-slicing", "replicas": 2 + number}}
        | {"bedplate_frameworks": ["pytorch-2.9"]}
        for number in range(20)
    }
    says = Says(make(tmp_path / "site", pools), capsys)
    started = time.process_time()
    text = says("cluster", "kubernetes")
    assert time.process_time() - started < 15  # about two; the one program ran for minutes
    assert "  1.36.3: Kubernetes refuses cgroup v1 — with bedplate_host.os rocky-8 of pool_p18" in (
        text
    )


def test_what_is_not_chosen_is_not_called_the_best(single: Says) -> None:
    text = single("cluster", "cilium")
    version = planned(single.site).cluster.cni.version
    assert text.startswith(f"cluster cilium: flannel {version} is chosen, ")
    assert "it contradicts what is requested — with bedplate_kubernetes.cni flannel" in text
    assert single("cluster", "docker").startswith("cluster docker: containerd ")
    # A version that the chosen one happens to have is not the asked one's.
    asked = single("cluster", f"cilium={version}")
    assert f"  {version}: nothing brings it" in asked
    assert "is what is chosen" not in asked


def test_a_vendors_runtime_is_not_chosen_beside_a_mirror(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared: Wishes = {
        "bedplate_host": {"os": "debian-12"},
        "bedplate_container_runtime": {"name": "cri-o"},
    }
    says = Says(make(tmp_path / "site", {"pool_a": V100}, shared), capsys)
    runtime = planned(says.site).cluster.cri_o
    assert runtime is not None
    assert runtime.source == "archive"
    text = says("cluster", "cri_o")
    assert "  1.36.6: possible, and the mirror does not have its vendor's repository\n" in text
    # The list of decisions calls it cri-o, a pin cri_o.
    assert says("cluster", "cri-o") == text


def test_a_component_is_found_by_the_name_in_the_list(single: Says) -> None:
    version = planned(single.site).cluster.cni.version
    assert f"cluster cni {version}: " in single("cluster")
    assert single("cluster", "cni").startswith(f"cluster flannel {version}: ")


SITES = sorted(path.parent for path in (ROOT / "inventories").glob("*/hosts.yml"))


@pytest.mark.parametrize("site", SITES, ids=lambda path: path.name)
def test_every_name_that_a_plan_prints_is_explained(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what no choice of its own decides: etcd, the GPUs, a course."""
    planned = plan(site, TODAY)
    rows = screen.rows(planned.plan.lock, planned.catalogue)
    assert rows
    says = Says(site, capsys)
    for where, name, _ in rows:
        assert ": " in says(where, name).splitlines()[0]
    assert cli.main(["explain", str(site), "cluster", "grafana"]) == 3
    assert " etcd, " in capsys.readouterr().err


def test_boards_without_a_fabric_need_no_manager(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = {"bedplate_gpu": {"model": "h100-sxm5-80gb", "count": 8}}
    pools = {"pool_a": H100 | VENDOR, "pool_b": joined | VENDOR}
    says = Says(make(tmp_path / "site", pools), capsys)
    none = "pool_a nvidia_fabric: none is needed, its GPUs have no NVSwitch fabric\n"
    assert says("pool_a", "nvidia_fabric") == none
    assert says("pool_a", "nvidia_fabric=580.178.04") == none
    fabric = planned(says.site).pools["pool_b"].nvidia_fabric
    assert fabric is not None
    assert says("pool_b", "nvidia_fabric").startswith(f"pool_b nvidia_fabric {fabric.version}: ")


def test_a_branch_is_its_newest_version(single: Says) -> None:
    text = single("pool_a", "nvidia_driver=595")
    assert "  595.91.07: driver branch does not drive the GPU — with bedplate_gpu[0].model" in text
    driver = planned(single.site).pools["pool_a"].nvidia_driver
    assert driver is not None
    assert driver.branch == "580"
    assert single("pool_a", "nvidia_driver=580").endswith(
        f"\n{driver.version} is what is chosen.\n"
    )
    assert "  58: nothing brings it" in single("pool_a", "nvidia_driver=58")
    assert "  999: nothing brings it; the catalogue has " in single("pool_a", "nvidia_driver=999")


def test_what_only_the_lock_keeps_is_not_called_the_best(single: Says) -> None:
    lock = planned(single.site)
    newest = lock.pools["pool_a"].nvidia_driver
    assert newest is not None
    folder = single.site / "group_vars"
    pins = {"kubernetes": "1.36.2"}
    for name, wishes in {
        "all": SHARED | {"bedplate_pins": pins},
        "pool_a": V100 | VENDOR | {"bedplate_pins": pins | {"nvidia_driver": "580.126.20"}},
    }.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(wishes))
    write_lock(single.site, planned(single.site))
    assert load_lock(single.site) != lock
    best = "pool_a nvidia_driver 580.126.20: R580 is lts"
    assert single("pool_a", "nvidia_driver").startswith(best)
    (folder / "all.yml").write_text(yaml.safe_dump(SHARED))
    (folder / "pool_a.yml").write_text(yaml.safe_dump(V100 | VENDOR))
    kept = f"locked already; bedplate plan --upgrade would choose {newest.version} proprietary. "
    text = single("pool_a", "nvidia_driver")
    assert text.startswith(f"pool_a nvidia_driver 580.126.20: {kept}")
    assert f"  {newest.version}: possible, and another version is locked already" in text
    assert f"pool_a nvidia_driver 580.126.20: {kept}" in single("pool_a")
    kept = "locked already; bedplate plan --upgrade would choose 1.36.3. "
    assert single("cluster", "kubernetes").startswith(f"cluster kubernetes 1.36.2: {kept}")
    # What is locked, and the newest as well, is the best.
    assert "locked already" not in single("pool_b")
