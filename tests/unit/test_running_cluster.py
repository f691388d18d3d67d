"""A site with a running cluster: its Kubernetes goes up, one minor version at a time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.lock import load_lock, write_lock
from bedplate.planning.changes import host_changes

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
    (site / ".bedplate").mkdir(exist_ok=True)
    (site / ".bedplate" / "kubeconfig").write_text("apiVersion: v1\n")


def ask_for(site: Path, version: str | None) -> None:
    """Set another version of Kubernetes, or none."""
    path = site / "group_vars" / "all" / "bedplate.yml"
    lines = path.read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines) if line.startswith("bedplate_kubernetes:"))
    given = "" if version is None else f'version: "{version}", '
    lines[number] = f'bedplate_kubernetes: {{{given}endpoint: "k8s.example:6443"}}'
    path.write_text("\n".join(lines) + "\n")


def running(site: Path, version: str) -> None:
    """Have a cluster with a version of Kubernetes."""
    ask_for(site, version)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    bring_up(site)


def version(site: Path) -> str:
    """Return the version that is locked."""
    cluster = load_lock(site).cluster
    assert cluster is not None
    return cluster.kubernetes.version


def refused(site: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return what a refused plan, which leaves the lock, says of the version's setting."""
    before = (site / ".bedplate.lock.yml").read_bytes()
    capsys.readouterr()
    assert cli.main(["plan", *TODAY, *options, str(site)]) == 3
    assert (site / ".bedplate.lock.yml").read_bytes() == before
    said = capsys.readouterr().err
    start = f"{site}/group_vars/all/bedplate.yml:3:23: "
    end = "\n  rule kubernetes-running\n\n1 error; no lock was written.\n"
    assert said.startswith(start)
    assert said.endswith(end)
    return said[len(start) : -len(end)]


@pytest.mark.parametrize(
    ("old", "new"),
    [("1.36.2", "1.36.3"), ("1.34.2", "1.34.9"), ("1.35.6", "1.36"), ("1.33", "1.34.2")],
)
def test_kubernetes_goes_up_within_its_minor_and_to_the_next(
    site: Path, old: str, new: str
) -> None:
    running(site, old)
    ask_for(site, new)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == (NEW if new == "1.36" else new)


@pytest.mark.parametrize(
    ("old", "new", "allowed", "fix"),
    [
        (
            "1.34.9",
            "1.36.3",
            "1.34.9 to 1.35.6",
            (
                'upgrade by way of 1.35.6: write "1.35.6", run bedplate plan and '
                'bedplate.gpu.upgrade, then the same with "1.36.3"'
            ),
        ),
        (
            "1.33.6",
            "1.36.2",
            "1.33.6 to 1.34.9",
            (
                'upgrade by way of 1.34.9 and 1.35.6: write "1.34.9", run bedplate plan and '
                'bedplate.gpu.upgrade, then the same with "1.35.6" and "1.36.2"'
            ),
        ),
    ],
)
def test_more_than_one_minor_at_once_is_refused_with_the_way(
    site: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    allowed: str,
    fix: str,
) -> None:
    running(site, old)
    ask_for(site, new)
    for options in ((), ("--upgrade",), ("--diff",), ("--check",)):
        assert refused(site, capsys, *options) == (
            "Kubernetes of a running cluster goes up by one minor version at a time — "
            f"bedplate_kubernetes.version — got {new} / allowed {allowed} — {fix}"
        )


def release(number: str) -> dict[str, Any]:
    """Return a fact of a release of Kubernetes, as a site adds it."""
    images = {"etcd": {"version": "3.6.8", "image_tag": "3.6.8-0"}, "pause": {"version": "3.10.2"}}
    images["coredns"] = {"version": "1.14.2", "image_tag": "v1.14.2"}
    source = {"url": "https://k8s.example/", "read": "2026-11-21"}
    return {"value": {"version": number, **images}, "reason": "as read", "source": source}


def test_a_minor_that_the_catalogue_does_not_have_is_named(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running(site, NEW)
    (site / "facts").mkdir()
    facts = [release("1.38.1"), release("1.39.0")]
    for newest, lacking in (("1.38.1", "1.37"), ("1.39.0", "1.37")):
        ask_for(site, newest)
        (site / "facts/kubernetes.yml").write_text(yaml.safe_dump(facts))
        assert refused(site, capsys).endswith(
            f"got {newest} / allowed 1.36.3 — add a release of {lacking} to {site}/facts, since "
            "the catalogue has none, and upgrade by way of it"
        )
    facts.remove(release("1.38.1"))
    (site / "facts/kubernetes.yml").write_text(yaml.safe_dump(facts))
    assert "add a release of 1.37 and of 1.38 to " in refused(site, capsys)


@pytest.mark.parametrize(("old", "new"), [("1.36.3", "1.36.2"), ("1.36.3", "1.35.6")])
def test_kubernetes_is_never_downgraded(
    site: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    running(site, old)
    ask_for(site, new)
    for options in ((), ("--upgrade",), ("--diff",), ("--check",)):
        assert refused(site, capsys, *options) == (
            "Kubernetes of a running cluster is never downgraded — bedplate_kubernetes.version — "
            f'got {new} / allowed {old} — write "{old}"; if bedplate.gpu.upgrade has not run since '
            f"{old} was planned, restore the lock from before that plan (git has it) and plan again"
        )


def test_what_may_be_written_in_place_of_an_older_one(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running(site, "1.35.6")
    ask_for(site, "1.34.9")
    assert "got 1.34.9 / allowed 1.35.6 to 1.36.3 — " in refused(site, capsys)


def test_a_plan_that_was_not_carried_out_is_undone_by_the_lock_from_before(site: Path) -> None:
    running(site, "1.35.6")
    before = (site / ".bedplate.lock.yml").read_bytes()
    ask_for(site, NEW)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == NEW
    (site / ".bedplate.lock.yml").write_bytes(before)
    ask_for(site, "1.35")
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == "1.35.6"


def test_the_place_of_a_pin(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running(site, "1.34.9")
    ask_for(site, None)
    path = site / "group_vars" / "all" / "bedplate.yml"
    path.write_text(path.read_text() + f'bedplate_pins: {{kubernetes: "{NEW}"}}\n')
    capsys.readouterr()
    assert cli.main(["plan", *TODAY, "--json", str(site)]) == 3
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert (refusal["key"], refusal["line"]) == ("bedplate_pins.kubernetes", 5)


def test_kubernetes_stays_without_a_setting_that_moves_it(site: Path) -> None:
    running(site, "1.34.2")
    for given in ("1.34", None):
        ask_for(site, given)
        assert cli.main(["plan", *TODAY, str(site)]) == 0
        assert version(site) == "1.34.2"


@pytest.mark.parametrize(
    ("old", "given", "new"),
    [
        ("1.36.2", "1.36", NEW),
        ("1.34.2", "1.34", "1.34.9"),
        ("1.34.2", "1.34.2", "1.34.2"),
        # Where no setting names one it is the newest, as far as one upgrade goes.
        ("1.34.2", None, "1.35.6"),
        ("1.35.6", None, NEW),
    ],
)
def test_an_upgrade_takes_kubernetes_by_one_minor(
    site: Path, old: str, given: str | None, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    running(site, old)
    ask_for(site, given)
    capsys.readouterr()
    assert cli.main(["explain", str(site), "cluster", "kubernetes"]) == 0
    said = f"bedplate plan --upgrade would choose {new}. " in capsys.readouterr().out
    assert said == (old != new)
    assert cli.main(["plan", *TODAY, "--upgrade", str(site)]) == 0
    assert version(site) == new


def test_an_upgrade_moves_everything_else(site: Path) -> None:
    bring_up(site)
    assert cli.main(["plan", *TODAY, "--upgrade", str(site)]) == 0
    cluster = load_lock(site).cluster
    assert cluster is not None
    assert cluster.cri_tools.version == "1.36.0"


def test_without_a_cluster_kubernetes_moves_anywhere(site: Path) -> None:
    running(site, "1.34.9")
    (site / ".bedplate" / "kubeconfig").unlink()
    for given, new in (("1.36", NEW), ("1.33.6", "1.33.6"), (None, "1.33.6")):
        ask_for(site, given)
        assert cli.main(["plan", *TODAY, str(site)]) == 0
        assert version(site) == new
    assert cli.main(["plan", *TODAY, "--upgrade", str(site)]) == 0
    assert version(site) == NEW


def test_a_cluster_that_is_gone_holds_nothing(site: Path) -> None:
    running(site, NEW)
    (site / ".bedplate" / "kubeconfig").unlink()  # `pulumi destroy` removes it
    ask_for(site, OLD)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == OLD


def test_an_empty_kubeconfig_is_no_cluster(site: Path) -> None:
    """As a shell leaves it whose command failed: `pulumi stack output … > kubeconfig`."""
    running(site, NEW)
    (site / ".bedplate" / "kubeconfig").write_text("")
    ask_for(site, OLD)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert version(site) == OLD


def test_the_difference_says_that_nodes_are_drained_for_it(site: Path) -> None:
    running(site, OLD)
    before = load_lock(site)
    ask_for(site, NEW)
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    after = load_lock(site)
    told = {host: list(map(str, its)) for host, its in host_changes(before, after).items()}
    change = ["change kubernetes 1.36.2 → 1.36.3 (drained)"]
    assert told == dict.fromkeys(after.hosts, change)
    assert any("control_plane" in host.groups for host in after.hosts.values())


def test_the_same_kubernetes_is_planned_as_ever(site: Path) -> None:
    bring_up(site)
    ask_for(site, OLD)
    hosts = site / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("class[1:4]", "class[1:5]"))
    assert cli.main(["plan", *TODAY, str(site)]) == 0
    assert "class5.example" in load_lock(site).hosts
