"""`bedplate explain`, `plan --diff` and `--upgrade`: what they say, and that they write nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from bedplate import cli
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock, write_lock
from bedplate.resolver import locking

EXAMPLE = Path(__file__).parents[2] / "inventories" / "example"
TODAY = ["--today", "2026-11-21"]
CLASS = {
    "bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 8},
    "bedplate_driver": {"source": "vendor-repo"},
    "bedplate_sharing": {"mode": "mps", "replicas": 16},
    "bedplate_frameworks": ["pytorch-2.10"],
}


UNTRACKED = shutil.ignore_patterns(".bedplate*")
COMMENTED = re.compile(r"^( *)# ( *([a-z_]+:|- ).*)$", re.MULTILINE)


def wish(site: Path, pool: str, wishes: dict[str, object]) -> None:
    """Write a pool's wishes."""
    (site / "group_vars" / f"{pool}.yml").write_text(yaml.safe_dump(wishes))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example, with V100s for a class; planned."""
    copy = shutil.copytree(EXAMPLE, tmp_path / "mysite", ignore=UNTRACKED)
    wish(copy, "pool_class", CLASS)
    assert cli.main(["plan", *TODAY, str(copy)]) == 0
    return copy


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that has to end well, and return what it printed."""
    capsys.readouterr()
    assert cli.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_why_not_a_branch_that_does_not_know_the_board(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (site / ".bedplate.lock.yml").read_bytes()
    text = said(capsys, "explain", site, "pool_class", "nvidia_driver=595.91.07")
    version = load_lock(site).pools["pool_class"].nvidia_driver
    assert version is not None
    assert text.startswith(f"pool_class nvidia_driver {version.version}: R580 is lts")
    assert (
        "595.91.07: driver branch does not drive the GPU — with "
        "bedplate_gpu[0].model v100-sxm2-32gb\n    after https://docs.nvidia.com/" in text
    )
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_why_not_another_framework(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", site, "pool_class", "pytorch")
    assert "2.15.0: framework was not compiled for the GPU" in text
    assert "2.9.1: possible where pytorch-2.9.1 is wished" in text


def test_why_not_what_only_a_preference_speaks_against(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "explain", site, "cluster", "kubernetes")
    assert text.startswith("cluster kubernetes 1.36.3: ")
    assert "1.36.2: possible, and another version is locked already" in text
    (site / ".bedplate.lock.yml").unlink()
    text = said(capsys, "explain", site, "cluster", "kubernetes")
    assert "1.36.2: possible, and a newer release goes as well" in text


def test_all_components_of_a_pool(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "explain", site, "pool_class").splitlines()
    assert [line.split()[1] for line in lines] == ["nvidia_driver", "pytorch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pool_clas"], "no such pool — {site} POOL — got pool_clas / allowed cluster, pool_class"),
        (["pool_class", "nvidia_drivr"], "no such component — {site} COMPONENT — got nvidia_drivr"),
    ],
)
def test_what_there_is_not(
    site: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main(["explain", str(site), *arguments]) == 3
    assert capsys.readouterr().err.startswith(message.format(site=site))


def test_a_refused_site_is_not_explained(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wish(site, "pool_class", CLASS | {"bedplate_driver": {"branch": "595"}})
    capsys.readouterr()
    assert cli.main(["explain", str(site), "pool_class"]) == 3
    assert "there is no decision to explain" in capsys.readouterr().err


def test_a_difference_by_host(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (site / ".bedplate.lock.yml").read_bytes()
    assert "in step: nothing would change" in said(capsys, "plan", site, *TODAY, "--diff")
    old = load_lock(site).pools["pool_class"].nvidia_driver
    assert old is not None
    wish(site, "pool_class", CLASS | {"bedplate_pins": {"nvidia_driver": "580.126.20"}})
    text = said(capsys, "plan", site, *TODAY, "--diff")
    hosts, _, rest = text.partition("\n")
    assert hosts == "class1.example … class4.example (4 hosts) of pool_class:"
    assert f"change nvidia_driver {old.version} proprietary vendor-repo → 580.126.20 " in rest
    assert "(drained, rebooted)" in rest
    assert "train" not in rest.partition("In the lock:")[0]
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_hosts_get_what_their_groups_have(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    hosts = yaml.safe_load((site / "hosts.yml").read_text())
    hosts["all"]["children"] |= {
        "hypervisors": {"children": {"pool_guests": {"hosts": {"hv": {}}}}},
        "slurm": {"children": {"pool_batch": {"hosts": {"batch": {}}}}},
    }
    (site / "hosts.yml").write_text(yaml.safe_dump(hosts))
    gpus = {"bedplate_gpu": {"model": "h100-pcie-80gb", "count": 8}}
    wish(site, "pool_batch", gpus)
    wish(site, "pool_guests", gpus)
    wish(site, "hypervisors", {"bedplate_host": {"os": "debian-12", "kind": "hypervisor"}})
    content = json.loads(said(capsys, "plan", site, *TODAY, "--diff", "--json"))["diff"]
    got = {host: {one["component"] for one in its} for host, its in content.items()}
    kubernetes = {"kubernetes", "cni", "cni_plugins", "cri_tools", "pause", "nvidia_device_plugin"}
    assert got["train01.example"] - got["batch"] == kubernetes
    assert {"containerd", "nvidia_container_toolkit", "nvidia_driver"} <= got["batch"]
    assert got["hv"] == {"os", "kind", "sharing"}
    assert kubernetes <= got["cp1.example"]


def test_a_difference_as_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    content = json.loads(said(capsys, "plan", site, *TODAY, "--diff", "--json"))
    assert list(content) == ["ok", "lock", "refusals", "warnings", "diff"]
    assert len(content["diff"]) == 23  # every host of the example
    drivers = [
        one for one in content["diff"]["class1.example"] if one["component"] == "nvidia_driver"
    ]
    assert drivers[0]["before"] == "absent"
    assert drivers[0]["effects"] == []  # nothing runs on a new host yet
    assert not (site / ".bedplate.lock.yml").exists()


def test_a_host_that_leaves_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = site / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("class[1:4]", "class[1:3]"))
    text = said(capsys, "plan", site, *TODAY, "--diff")
    assert "class4.example of pool_class:\n  remove cluster membership member (drained)" in text


def test_what_is_locked_stays_until_an_upgrade(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = load_lock(site)
    part = lock.cluster.model_copy(
        update={"kubernetes": lock.cluster.kubernetes.model_copy(update={"version": "1.36.2"})}
    )
    write_lock(site, lock.model_copy(update={"cluster": part}))
    said(capsys, "plan", site, *TODAY)
    assert load_lock(site).cluster.kubernetes.version == "1.36.2"
    said(capsys, "plan", site, *TODAY, "--upgrade")
    assert load_lock(site).cluster.kubernetes.version == "1.36.3"


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("format: 1\n", " format", "lock is of another format, got 1"),
        ("<<<<<<< ours\n", ":1", "lock has conflict markers, got <<<<<<< ours"),
    ],
)
def test_a_lock_that_cannot_be_read_is_told(
    site: Path, text: str, place: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site / ".bedplate.lock.yml"
    path.write_text(text)
    capsys.readouterr()
    assert cli.main(["plan", *TODAY, "--diff", str(site)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{reason.partition(',')[0]} — {path}{place} — ")
    assert path.read_text() == text
    text = said(capsys, "plan", site, *TODAY)
    assert f"  decided anew: the old lock {path}{place}: {reason}; nothing that it had" in text
    assert "decided anew" not in said(capsys, "plan", site, *TODAY)


def test_the_example_can_be_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = shutil.copytree(EXAMPLE, tmp_path / "mysite", ignore=UNTRACKED)
    said(capsys, "plan", site, *TODAY)
    pools = load_lock(site).pools
    assert {pool: part.not_yet for pool, part in pools.items()} == {
        "pool_class": [],
        "pool_train": [],
    }


def test_what_the_example_has_commented_out_can_be_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = shutil.copytree(EXAMPLE, tmp_path / "mysite", ignore=UNTRACKED)
    for path in (site / "hosts.yml", *(site / "group_vars").glob("pool_*.yml")):
        path.write_text(COMMENTED.sub(r"\1\2", path.read_text()))
    said(capsys, "plan", site, *TODAY)
    lock = load_lock(site)
    assert {
        name: host.pool for name, host in lock.hosts.items() if "hypervisors" in host.groups
    } == {
        "hv1.example": "pool_guests",
        "hv2.example": "pool_guests",
    }
    guests, batch = lock.pools["pool_guests"], lock.pools["pool_batch"]
    assert (guests.kind, guests.nvidia_driver, guests.expects) == ("hypervisor", None, None)
    assert batch.expects is not None
    assert (batch.expects.by, batch.expects.count) == ("slurm", 8)
    assert batch.nvidia_driver is not None
    assert (guests.not_yet, batch.not_yet) == ([], [])


def test_what_a_role_knows_on_some_systems_alone_is_not_installable_elsewhere(site: Path) -> None:
    lock, catalogue = load_lock(site), load_catalogue()
    pool = lock.pools["pool_class"]
    assert pool.expects is not None
    assert lock.cluster.containerd is not None
    wishes = {
        "frameworks": [],
        "sharing": pool.sharing.model_copy(update={"mode": "mps"}),
        "cuda_toolkit": ["12.9.1"],
        "expects": pool.expects.model_copy(update={"by": "slurm"}),
    }
    assert pool.nvidia_driver is not None
    for system, source, lacking in (
        ("debian-12", "distro", []),
        ("rocky-9", "vendor-repo", ["mps-on rocky-9", "slurm-on rocky-9"]),
        ("rocky-9", "runfile", ["cuda-on rocky-9 runfile", "mps-on rocky-9", "slurm-on rocky-9"]),
    ):
        driver = pool.nvidia_driver.model_copy(update={"source": source})
        changed = wishes | {"os": system, "nvidia_driver": driver}
        parts = locking.pool_parts(pool.model_copy(update=changed), catalogue)
        assert locking.not_built(parts, catalogue) == lacking
    wishes["sharing"] = pool.sharing.model_copy(update={"mode": "time-slicing"})
    for system, lacking in (
        ("debian-12", []),
        ("rocky-9", ["shard-on rocky-9", "slurm-on rocky-9"]),
    ):
        parts = locking.pool_parts(pool.model_copy(update=wishes | {"os": system}), catalogue)
        assert locking.not_built(parts, catalogue) == lacking
    wishes["expects"] = pool.expects
    parts = locking.pool_parts(pool.model_copy(update=wishes | {"os": "rocky-9"}), catalogue)
    assert locking.not_built(parts, catalogue) == []
    runtime = lock.cluster.containerd.model_copy(update={"source": "distro"})
    shared = lock.cluster.model_copy(update={"containerd": runtime})
    parts = locking.cluster_parts(shared, "mirror", [])
    assert locking.not_built(parts, catalogue) == []
    assert locking.not_run(parts, catalogue) == ["containerd-from distro"]
    shared = lock.cluster.model_copy(update={"containerd": None, "cri_o": runtime})
    assert locking.not_built(locking.cluster_parts(shared, "mirror", []), catalogue) == [
        "cri_o-from distro",
        "runtime cri_o",
    ]


@pytest.mark.parametrize(
    ("model", "count", "kind"),
    [("h100-sxm5-80gb", 8, "nvswitch"), ("b200", 8, "nvlink-5"), ("gb200", 4, "imex")],
)
def test_the_lock_says_what_joins_the_boards(
    site: Path, capsys: pytest.CaptureFixture[str], model: str, count: int, kind: str
) -> None:
    wishes = {"bedplate_driver": {"source": "vendor-repo"}}
    wish(site, "pool_class", wishes | {"bedplate_gpu": {"model": model, "count": count}})
    said(capsys, "plan", site, *TODAY)
    fabric = load_lock(site).pools["pool_class"].nvidia_fabric
    assert fabric is not None
    assert fabric.kind == kind


@pytest.mark.parametrize(
    ("model", "not_yet"),
    [("gb200", ["cpu aarch64"]), ("gh200-480gb", ["cpu aarch64"]), ("b200", [])],
)
def test_boards_on_arm_are_planned_and_refused_by_site_yml(
    site: Path, capsys: pytest.CaptureFixture[str], model: str, not_yet: list[str]
) -> None:
    wishes = {"bedplate_driver": {"source": "vendor-repo"}}
    wish(site, "pool_class", wishes | {"bedplate_gpu": {"model": model, "count": 1}})
    told = said(capsys, "plan", site, *TODAY)
    assert load_lock(site).pools["pool_class"].not_yet == not_yet
    assert ("not installable by this version: cpu aarch64; site.yml refuses" in told) == bool(
        not_yet
    )
