"""`bedplate explain`, `plan --diff` and `--upgrade`: what they say, and that they write nothing.

How a plan looks on a terminal is in test_plan_table.py, wrong sites are in test_site_broken.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from bedplate import bill
from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.lock import digest, load_lock, write_lock
from bedplate.planning.changes import host_changes
from bedplate.portable.evidence import checks
from bedplate.resolver import locking

TWO_POOLS = Path(__file__).with_name("two_pools")
TODAY = ["--today", "2026-11-21"]
CLASS = {
    "bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 8},
    "bedplate_driver": {"branch": "580", "source": "vendor-repo"},
    "bedplate_sharing": {"mode": "mps", "replicas": 16},
    "bedplate_frameworks": ["pytorch-2.10"],
}


UNTRACKED = shutil.ignore_patterns(".bedplate*")


def wish(site: Path, pool: str, wishes: dict[str, object]) -> None:
    """Write a pool's wishes."""
    (site / "group_vars" / f"{pool}.yml").write_text(yaml.safe_dump(wishes))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pools, with V100s for a class; planned, where frameworks cannot be installed."""
    known = load_catalogue().installable
    parts = known["part"].value
    fewer = parts.model_copy(update={"unproved": [x for x in parts.unproved if x != "frameworks"]})
    monkeypatch.setitem(known, "part", known["part"].model_copy(update={"value": fewer}))
    copy = shutil.copytree(TWO_POOLS, tmp_path / "mysite", ignore=UNTRACKED)
    wish(copy, "pool_class", CLASS)
    assert cli.main(["plan", *TODAY, "--allow-planned", str(copy)]) == 0
    return copy


def installed(site: Path, **found: str | None) -> None:
    """Leave evidence of all hosts under the present lock, with versions by check where they differ.

    A name is a check's, with `__` for its point; None is what the check did not find.
    """
    lock, folder = load_lock(site), site / ".bedplate" / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    for name, host in lock.hosts.items():
        driver = lock.pools[host.pool].nvidia_driver if host.pool else None
        values: dict[str, str | None] = {"kubelet.version": lock.cluster.kubernetes.version}
        if driver is not None:
            values |= {"driver.loaded_version": driver.version, "driver.flavour": driver.flavour}
            values |= {key.replace("__", "."): value for key, value in found.items()}
        rows = [checks.check(key, key, value, value, "") for key, value in values.items()]
        content = {"checks": rows, "facts": {"joined": True}}
        document = checks.document(
            "host", name, host.pool, digest(site), "2026-11-21T00:00:00Z", content
        )
        (folder / f"host-{name}.json").write_text(json.dumps(document))


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that has to end well, and return what it printed."""
    capsys.readouterr()
    allowed = ["--allow-planned"] if arguments[0] == "plan" else []
    assert cli.main([*(str(argument) for argument in arguments), *allowed]) == 0
    return capsys.readouterr().out


def test_why_not_a_branch_that_does_not_know_the_board(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish(site, "pool_class", CLASS | {"bedplate_driver": {"source": "vendor-repo"}})
    said(capsys, "plan", site, *TODAY)
    before = (site / ".bedplate.lock.yml").read_bytes()
    text = said(capsys, "explain", site, "pool_class", "nvidia_driver=595.91.07")
    version = load_lock(site).pools["pool_class"].nvidia_driver
    assert version is not None
    assert text.startswith(f"pool_class nvidia_driver {version.version}: R580 is lts")
    assert (
        "595.91.07: driver branch does not drive the GPU — with "
        "bedplate_gpu[0].model v100-sxm2-32gb\n    source https://docs.nvidia.com/" in text
    )
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_why_not_another_framework(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", site, "pool_class", "pytorch")
    assert "2.15.0: framework was not compiled for the GPU" in text
    assert "2.9.1: possible where pytorch-2.9.1 is requested" in text


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
    text, _, weak = said(capsys, "explain", site, "pool_class").partition("\n\n")
    decided = [
        line.split()[1] for line in text.splitlines() if "left out" not in line.split(":")[0]
    ]
    assert decided == ["nvidia_driver", "pytorch", "hpc_tools"]
    sources = weak.partition("relies on indirect sources:\n")[2].splitlines()
    assert sources[0].startswith("  architecture/volta: https://")


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
    installed(site)
    text = said(capsys, "plan", site, *TODAY, "--diff")
    same = f"{site}/.bedplate.lock.yml is up to date: nothing would change in it."
    assert f"\n\nNo host changes: hosts have all of this.\n\n{same}\n" in text
    old = load_lock(site).pools["pool_class"].nvidia_driver
    assert old is not None
    wish(site, "pool_class", CLASS | {"bedplate_pins": {"nvidia_driver": "580.126.20"}})
    text = said(capsys, "plan", site, *TODAY, "--diff")
    hosts, _, rest = text.partition("\n\n")[2].partition("\n")
    assert hosts == "class1.example … class4.example (4 hosts) of pool_class:"
    assert f"change nvidia_driver {old.version} proprietary vendor-repo → 580.126.20 " in rest
    assert "(drained, rebooted)" in rest
    assert "train" not in rest.partition("In the lock:")[0]
    assert (site / ".bedplate.lock.yml").read_bytes() == before


def test_what_no_evidence_is_of_is_not_installed_yet(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planning alone installs nothing; and a host is compared with its own evidence."""
    lines = said(capsys, "plan", site, *TODAY, "--diff").splitlines()
    pool = "class1.example … class4.example (4 hosts) of pool_class"
    assert f"{pool}: nothing is installed yet" in lines
    driver = "580.178.04 proprietary vendor-repo"
    assert f"  install nvidia_driver {driver}" in lines
    assert f"{site}/.bedplate.lock.yml is up to date: nothing would change in it." in lines

    installed(site, driver__loaded_version="580.82.07", toolkit__version=None)
    (site / ".bedplate/evidence/host-class4.example.json").unlink()
    lines = said(capsys, "plan", site, *TODAY, "--diff").splitlines()
    place = lines.index("class1.example … class3.example (3 hosts) of pool_class:")
    assert lines[place + 1 : place + 3] == [
        "  install nvidia_container_toolkit 1.20.1 archive (drained)",
        f"  change nvidia_driver 580.82.07 proprietary → {driver} (drained, rebooted)",
    ]
    assert "class4.example of pool_class: nothing is installed yet" in lines
    assert not [line for line in lines if line.startswith("cp1")]


@pytest.mark.parametrize("component", ["nvidia_container_toolkit", "nvidia_dra_driver"])
def test_what_the_upgrade_drains_for_is_drained_in_the_difference(component: str) -> None:
    """The roles of both hold a change on a node that has joined until it is drained."""
    role = Path(__file__).parents[2] / "roles" / component
    assert "deferred until the node is drained" in (role / "tasks/install.yml").read_text()
    lock = load_lock(Path(__file__).parents[2] / "inventories/demo")
    has = {"gpu-a": {component: {"version": "1.0"}}}
    found = {one.component: one for one in host_changes(None, lock, has)["gpu-a"]}
    assert found[component].effects == ("drained",)


def test_evidence_of_another_lock_and_of_a_failed_run(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What such evidence found counts; what it says nothing of is not made up."""
    installed(site)
    text = (site / ".bedplate/evidence/host-class2.example.json").read_text()
    unfinished = json.loads(text)
    reason = "no route to host"
    unfinished["checks"] = [checks.failed("site.finished", "the run", reason, "again")]
    (site / ".bedplate/evidence/host-class2.example.json").write_text(json.dumps(unfinished))
    wish(site, "pool_class", CLASS | {"bedplate_pins": {"nvidia_driver": "580.126.20"}})
    said(capsys, "plan", site, *TODAY)
    lines = said(capsys, "plan", site, *TODAY, "--diff").splitlines()
    (at,) = (n for n, one in enumerate(lines) if one.startswith("class1.example … class4"))
    assert lines[at].startswith("class1.example … class4.example (3 hosts) of pool_class: its evid")
    assert lines[at + 1] == (
        "  change nvidia_driver 580.178.04 proprietary → 580.126.20 proprietary vendor-repo"
        " (drained, rebooted)"
    )
    assert f"class2.example of pool_class: not known what is installed: {reason}" in lines
    (at,) = (n for n, one in enumerate(lines) if one.startswith("train01.example …"))
    assert not lines[at + 1].startswith(" "), "nothing of it has changed"


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
    kubernetes = {"kubernetes", "cni", "cni_plugins", "cri_tools", "pause", "containerd", "runc"}
    of_gpus = {"nvidia_container_toolkit", "nvidia_device_plugin"}
    assert got["train01.example"] - got["batch"] == kubernetes | of_gpus
    assert "nvidia_driver" in got["batch"]
    assert got["hv"] == {"os", "kind", "sharing"}
    assert got["cp1.example"] == kubernetes


def test_a_difference_as_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    content = json.loads(said(capsys, "plan", site, *TODAY, "--diff", "--json"))
    assert list(content) == ["ok", "lock", "refusals", "not_installable", "warnings", "diff"]
    assert len(content["diff"]) == 23  # every host of the site
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
    what = reason.partition(",")[0]
    at_a_line = place.startswith(":")
    form = f"{path}{place}: {what} — " if at_a_line else f"{what} — {path}{place} — "
    assert printed.err.startswith(form)
    assert path.read_text() == text
    text = " ".join(said(capsys, "plan", site, *TODAY).split())
    assert f" resolved again: the old lock {path}{place}: {reason}; nothing that it had" in text
    assert "resolved again" not in said(capsys, "plan", site, *TODAY)


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
        parts = locking.pool_parts(pool.model_copy(update=changed), catalogue, None)
        assert locking.not_built(parts, catalogue) == lacking
    wishes["sharing"] = pool.sharing.model_copy(update={"mode": "time-slicing"})
    for system, lacking in (
        ("debian-12", []),
        ("rocky-9", ["shard-on rocky-9", "slurm-on rocky-9"]),
    ):
        parts = locking.pool_parts(pool.model_copy(update=wishes | {"os": system}), catalogue, None)
        assert locking.not_built(parts, catalogue) == lacking
    wishes["expects"] = pool.expects
    parts = locking.pool_parts(pool.model_copy(update=wishes | {"os": "rocky-9"}), catalogue, None)
    assert locking.not_built(parts, catalogue) == []
    runtime = lock.cluster.containerd.model_copy(update={"source": "distro"})
    shared = lock.cluster.model_copy(update={"containerd": runtime})
    parts = locking.cluster_parts(shared, "mirror", [])
    assert locking.not_built(parts, catalogue) == []
    assert locking.not_run(parts, catalogue) == ["containerd-from distro"]
    shared = lock.cluster.model_copy(update={"containerd": None, "cri_o": runtime})
    assert locking.not_built(locking.cluster_parts(shared, "mirror", []), catalogue) == [
        "cri_o-from distro"
    ]
    for mode, unbuilt, unrun in (
        ("none", [], []),
        ("mps", [], ["below-cri_o mps"]),
        ("dra", ["below-cri_o dra"], []),
    ):
        sharing = pool.sharing.model_copy(update={"mode": mode, "memory": "counted"})
        shares = pool.model_copy(update=wishes | {"sharing": sharing})
        parts = locking.pool_parts(shares, catalogue, shared)
        assert locking.not_built(parts, catalogue) == unbuilt
        assert [one for one in locking.not_run(parts, catalogue) if "cri_o" in one] == unrun


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
    assert (": hosts are not installed by this version — " in told.partition("\n")[0]) == bool(
        not_yet
    )
    last = told.splitlines()[-1]
    assert (last == "Not installable by this version: cpu aarch64 (pool_class).") == bool(not_yet)


def plan(site: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Run `bedplate plan` and return its exit status and what it printed."""
    capsys.readouterr()
    status = cli.main(["plan", *TODAY, *options, str(site)])
    return status, capsys.readouterr().out


def test_the_extender_is_planned_and_refused_at_its_setting(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The extender counts shares itself: a pool that the device plugin shares is refused.
    wish(site, "pool_class", {key: CLASS[key] for key in ("bedplate_gpu", "bedplate_driver")})
    shared = site / "group_vars" / "all" / "bedplate.yml"
    lines = shared.read_text().count("\n")
    shared.write_text(
        shared.read_text()
        + "bedplate_schedulers: [kueue]\n"
        + "bedplate_preset: {name: classroom, placement: {extender: true}}\n"
    )
    status, text = plan(site, capsys)
    assert status == 4
    assert f"{shared}:{lines + 2}" in text.splitlines()[0]
    assert "bedplate_preset.placement.extender" in text.splitlines()[0]
    assert "extender (cluster)" in text.splitlines()[-1]


A100 = {"bedplate_gpu": {"model": "a100-sxm4-80gb", "count": 2}}
SMALL = {"mode": "mig", "profile": "1g.10gb"}
EACH = {"mode": "mig", "profiles": {"3g.40gb": 1, "1g.10gb": 2}}
ONE = [{**EACH, "cards": [0]}, {"mode": "none", "cards": [1]}]


LAYOUT = "2 of 1g.10gb, 1 of 3g.40gb"


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (SMALL, EACH, f"mig 1g.10gb → mig GPU 0, 1: {LAYOUT}"),
        (EACH, ONE, f"mig GPU 0, 1: {LAYOUT} → mig GPU 0: {LAYOUT}; GPU 1: whole"),
        (
            ONE,
            [{**ONE[0], "profiles": {"2g.20gb": 2}}, ONE[1]],
            f"mig GPU 0: {LAYOUT}; GPU 1: whole → mig GPU 0: 2 of 2g.20gb; GPU 1: whole",
        ),
    ],
    ids=["one-size", "each-gpu", "one-gpu"],
)
def test_another_mig_layout_drains_the_node_and_the_plan_says_so(
    site: Path,
    capsys: pytest.CaptureFixture[str],
    before: object,
    after: object,
    line: str,
) -> None:
    wish(site, "pool_class", A100 | {"bedplate_sharing": before})
    said(capsys, "plan", site, *TODAY)
    installed(site)
    wish(site, "pool_class", A100 | {"bedplate_sharing": after})
    text = said(capsys, "plan", site, *TODAY, "--diff")
    assert f"  change sharing {line} (drained)" in text.splitlines()


def test_limited_shares_by_claim_are_planned_and_refused_at_their_setting(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest DRA driver has no container start with the hook that sets the limit."""
    wishes = {"bedplate_host": {"os": "ubuntu-24.04", "kind": "bare-metal"}}
    wishes |= {"bedplate_gpu": {"model": "t4-16gb", "count": 4}}
    wishes |= {"bedplate_driver": {"source": "vendor-repo"}}
    wish(site, "pool_class", wishes | {"bedplate_sharing": {"mode": "dra", "isolation": "limited"}})
    status, text = plan(site, capsys)
    assert status == 4, text
    place = f"{site / 'group_vars' / 'pool_class.yml'}:10:3: not installable by this version — "
    key, got = "bedplate_sharing.isolation", "claims with limited memory"
    assert f"\n{place}{key} — got {got} — remove {key}\n" in f"\n{text}"
    assert f"{got} (pool_class)" in text.splitlines()[-1]


def test_what_cannot_be_installed_comes_first_and_last(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = site / "group_vars" / "all" / "bedplate.yml"
    shared.write_text(shared.read_text() + "bedplate_schedulers: [hami]\n")
    status, text = plan(site, capsys)
    assert status == 4
    lines = text.splitlines()
    got, addon = "got hami / allowed jobset, kueue, volcano", "addon hami"
    choose = "choose one of these, or remove it"
    what, pool = "not installable by this version", site / "group_vars" / "pool_class.yml"
    assert lines[:3] == [
        f"{shared}:5:23: {what} — bedplate_schedulers[0] — {got} — {choose}",
        f"{pool}:4:1: {what} — bedplate_frameworks — got frameworks — remove bedplate_frameworks",
        "",
    ]
    assert lines[3].startswith("WHERE ")
    assert lines[-2:] == [
        f"Wrote {site}/.bedplate.lock.yml. Reasons: --why.",
        f"Not installable by this version: {addon} (cluster), frameworks (pool_class).",
    ]
    assert load_lock(site).cluster.not_yet == [addon]


def test_a_driver_that_nobody_has_confirmed_is_no_default(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing else is left, the lock cannot be installed until the settings name it."""
    wish(site, "pool_class", CLASS | {"bedplate_driver": {"source": "vendor-repo"}})
    status, text = plan(site, capsys)
    assert status == 4
    assert text.splitlines()[0] == (
        f"{site}/group_vars/pool_class.yml:1:1: no index has confirmed the driver's packages — "
        "bedplate_driver — got 580.178.04 from vendor-repo "
        "for debian-12 / allowed a driver whose packages are confirmed, or one that the settings "
        'name — write branch: "580" and source: vendor-repo to take it all the same, or choose '
        "another branch, source or system"
    )
    packages = "packages of driver 580.178.04 that no index has confirmed"
    assert f"{packages} (pool_class)." in text.splitlines()[-1]
    named = {"bedplate_driver": {"branch": "580", "source": "vendor-repo"}}
    wish(site, "pool_class", {"bedplate_gpu": CLASS["bedplate_gpu"], **named})
    assert plan(site, capsys)[0] == 0
    newer = {"bedplate_gpu": {"model": "t4-16gb", "count": 8}}
    wish(site, "pool_class", newer | {"bedplate_driver": {"source": "vendor-repo"}})
    assert plan(site, capsys)[0] == 0
    text = said(capsys, "explain", site, "pool_class", "nvidia_driver=580.178.04")
    why = "possible, and no index has confirmed its packages, and the settings do not name it"
    assert f"580.178.04: {why}" in text


@pytest.mark.parametrize("options", [(), ("--check",), ("--diff",), ("--why",)])
def test_the_exit_status_of_a_lock_that_cannot_be_installed(
    site: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = plan(site, capsys, *options)
    assert (status, "next:" in text) == (4, False)
    assert text.splitlines()[-1].startswith("Not installable by this version: ")
    status, text = plan(site, capsys, *options, "--json")
    content = json.loads(text)
    assert (status, content["ok"]) == (4, False)
    assert [one["key"] for one in content["not_installable"]] == ["bedplate_frameworks"]
    assert content["lock"]["pools"]["pool_class"]["not_yet"] == ["part frameworks"]
    assert plan(site, capsys, *options, "--allow-planned")[0] == 0


def test_a_lock_that_is_out_of_date_counts_before_what_cannot_be_installed(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = site / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("class[1:4]", "class[1:3]"))
    status, text = plan(site, capsys, "--check")
    assert status == 2
    assert text.splitlines()[-3:] == [
        f"{site}/.bedplate.lock.yml is out of date.",
        "Not installable by this version: frameworks (pool_class).",
        f"next: bedplate plan {site}",
    ]


def test_a_site_that_can_be_installed_names_the_next_command(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(site, "pool_class", {key: CLASS[key] for key in ("bedplate_gpu",)})
    status, text = plan(site, capsys)
    assert status == 0
    assert text.splitlines()[-1] == f"next: bedplate mirror resolve {site}"
    monkeypatch.setattr(bill, "checked_bill", lambda *_: bill.Bill())
    _, text = plan(site, capsys)
    assert text.splitlines()[-1] == f"next: ansible-playbook -i {site} bedplate.gpu.site"


def test_weak_facts_are_counted_and_listed_by_explain(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish(site, "pool_class", {key: CLASS[key] for key in ("bedplate_gpu", "bedplate_driver")})
    (site / "group_vars" / "pool_train.yml").write_text(
        "bedplate_gpu: {model: v100-sxm2-32gb, count: 8}\n"
    )
    _, text = plan(site, capsys)
    counted = " ".join(text.split())
    assert (
        "relies on indirect sources: 2 facts of pool_class, pool_train; "
        f"see: bedplate explain {site} POOL" in counted
    )
    assert "gpu/v100-sxm2-32gb" not in text
    _, text = plan(site, capsys, "--why")
    assert "pool_class: relies on indirect sources: architecture/volta, gpu/v100-sxm2" in text
    told = said(capsys, "explain", site, "pool_class")
    assert "\n  gpu/v100-sxm2-32gb: https://" in told
    assert "\nno test of this project has installed on real hosts:\n  source vendor-repo\n" in told
