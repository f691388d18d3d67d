"""`bedplate drift`: exit status, what is said of each host, and what to run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.lock import digest

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
HOSTS = ("cp1", "gpu-a", "gpu-b")
EARLIER, NOW, LATER = "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", "2026-11-21T12:00:00Z"


def check(name: str = "driver.held", result: str = "fail", **more: Any) -> dict[str, Any]:
    """One check, as a collector makes it."""
    check = {"id": name, "what": "the thing", "result": result, "wished": "a", "found": "b"}
    return {**check, "reason": "", "fix": "Do something.", **more}


def write(site: Path, kind: str, name: str, *checks: dict[str, Any], **more: Any) -> None:
    """Leave what verify.yml (`host`, `cluster`) or drift.yml (`drift`) leaves."""
    document = {
        "format": 1,
        "subject": {"kind": "host" if kind == "drift" else kind, "name": name, "pool": None},
        "checked": NOW if kind == "drift" else EARLIER,
        "lock": digest(site),
        "facts": {"joined": False},
        "checks": list(checks),
        **more,
    }
    folder = site / ".bedplate/evidence"
    folder.mkdir(parents=True, exist_ok=True)
    file = "cluster" if kind == "cluster" else f"{kind}-{name}"
    (folder / f"{file}.json").write_text(json.dumps(document))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site on which nothing has drifted."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    for name in HOSTS:
        write(copy, "host", name, check(result="pass"))
        write(copy, "drift", name, check(result="pass"), check("x", "skipped"))
    return copy


def drift(
    site: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, list[str], str]:
    """Run the command: exit status, lines of output, errors."""
    status = cli.main(["drift", str(site), *options])
    printed = capsys.readouterr()
    return status, printed.out.replace(str(site), "SITE").splitlines(), printed.err


def test_hosts_without_drift(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drift(site, capsys) == (
        0,
        [
            *(f"{name}: no drift, looked at {NOW}" for name in HOSTS),
            "3 hosts: 0 drifted, 0 not known, 3 without drift",
        ],
        "",
    )


def test_a_difference_is_told_with_what_to_run(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "drift", "gpu-a", check(found=["x"], wished=["x", "y"]), check("cdi.current"))
    assert drift(site, capsys) == (
        2,
        [
            f"cp1: no drift, looked at {NOW}",
            f"gpu-a: 2 drifted, looked at {NOW}",
            "  the thing — gpu-a [driver.held] — got x / allowed x, y — Do something.",
            "  the thing — gpu-a [cdi.current] — got b / allowed a — Do something.",
            f"gpu-b: no drift, looked at {NOW}",
            "To run:",
            "  ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a",
            "3 hosts: 1 drifted, 0 not known, 2 without drift",
        ],
        "",
    )


def test_a_host_that_was_never_looked_at_is_not_clean(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / ".bedplate/evidence/drift-gpu-b.json").unlink()
    assert drift(site, capsys) == (
        3,
        [
            f"cp1: no drift, looked at {NOW}",
            f"gpu-a: no drift, looked at {NOW}",
            "gpu-b: not known — was never looked at",
            "To run:",
            "  ansible-playbook -i SITE bedplate.gpu.drift --limit gpu-b",
            "3 hosts: 0 drifted, 1 not known, 2 without drift",
        ],
        "",
    )


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "unreachable": (
        {"checks": [check("host.reachable", reason="no route to host")]},
        "could not be reached: no route to host",
    ),
    "a module that failed": (
        {"checks": [check("host.read", reason="no python")]},
        "could not be read: no python",
    ),
    "another lock": (
        {"lock": "sha256:0"},
        "was looked at under another lock than the present one",
    ),
    "nothing looked at": ({"checks": [check("a", "skipped")]}, "nothing was looked at on it"),
    "no check": ({"checks": []}, "nothing was looked at on it"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_is_named(
    site: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    document, reason = UNKNOWN[case]
    write(site, "drift", "gpu-b", **({"checks": [check(result="pass")]} | document))
    status, lines, _ = drift(site, capsys)
    assert status == 3
    assert f"gpu-b: not known — {reason}" in lines
    assert lines[-1] == "3 hosts: 0 drifted, 1 not known, 2 without drift"


def test_a_look_from_before_the_last_run_says_nothing(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "host", "gpu-b", check(result="pass"), checked=LATER)
    status, lines, _ = drift(site, capsys)
    assert status == 3
    reason = f"bedplate.gpu.site or bedplate.gpu.verify has run since it was looked at ({NOW})"
    assert f"gpu-b: not known — {reason}" in lines


def test_a_file_that_is_no_evidence_is_named(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / ".bedplate/evidence/drift-gpu-b.json").write_text("{")
    status, lines, _ = drift(site, capsys)
    assert status == 3
    assert lines[2].startswith(
        "gpu-b: not known — SITE/.bedplate/evidence/drift-gpu-b.json cannot be read (Expecting"
    )


def test_drift_is_drift_though_another_host_is_not_known(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "drift", "gpu-a", check())
    (site / ".bedplate/evidence/drift-gpu-b.json").unlink()
    status, lines, _ = drift(site, capsys)
    assert (status, lines[-1]) == (2, "3 hosts: 1 drifted, 1 not known, 1 without drift")


def test_a_site_without_a_lock_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    status, lines, errors = drift(site, capsys)
    assert (status, lines) == (3, [])
    assert "bedplate plan" in errors


@pytest.mark.parametrize(
    ("name", "joined", "command"),
    [
        ("driver.packages", False, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("driver.packages", True, "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"),
        (
            "driver.loaded_version",
            False,
            (
                "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"
                " -e nvidia_driver_reboot_allowed=true"
            ),
        ),
        (
            "driver.nouveau",
            False,
            (
                "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"
                " -e nvidia_driver_reboot_allowed=true"
            ),
        ),
        # Forty nodes that boot at once, with all that they carry, are no repair.
        (
            "driver.nouveau",
            True,
            (
                "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"
                " -e upgrade_reboot_allowed=true"
            ),
        ),
        (
            "owned.container_runtime",
            True,
            "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a",
        ),
        # What breaks or slows the connections of running jobs waits; NCCL's variables do not.
        ("rdma.packages", False, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("rdma.packages", True, "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"),
        ("owned.rdma", True, "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"),
        ("rdma.nccl", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("rdma.roce", True, ""),
        ("owned.host", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("kubelet.version", True, "ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"),
        ("kubelet.version", False, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("runtime.held", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        # A running container notices nothing of these.
        ("devices.links", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("devices.containers", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("cdi.package_file", True, "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"),
        ("cdi.other_files", True, ""),
        ("baseline.later_files", False, ""),
        ("updates.unattended", False, ""),
        ("driver.kernel", True, ""),
    ],
)
def test_what_is_to_be_run_depends_on_whether_the_node_carries_workload(
    site: Path, capsys: pytest.CaptureFixture[str], name: str, joined: bool, command: str
) -> None:
    write(site, "drift", "gpu-a", check(name), facts={"joined": joined})
    _, lines, _ = drift(site, capsys)
    said = lines[lines.index("To run:") + 1 : -1] if "To run:" in lines else []
    assert said == ([f"  {command}"] if command else [])


def test_a_drain_with_a_reboot_makes_up_for_one_without(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = check("driver.nouveau"), check("driver.loaded_version")
    write(site, "drift", "gpu-a", *both, facts={"joined": True})
    write(site, "drift", "gpu-b", check("driver.packages"), facts={"joined": True})
    _, lines, _ = drift(site, capsys)
    assert lines[lines.index("To run:") + 1 : -1] == [
        "  ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-b",
        (
            "  ansible-playbook -i SITE bedplate.gpu.upgrade --limit gpu-a"
            " -e upgrade_reboot_allowed=true"
        ),
    ]


def test_one_command_for_all_hosts_and_none_twice(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "drift", "cp1", check("owned.host"))
    write(site, "drift", "gpu-a", check("owned.host"), check("driver.loaded_version"))
    write(site, "drift", "gpu-b", check("owned.host"))
    _, lines, _ = drift(site, capsys)
    assert lines[lines.index("To run:") + 1 : -1] == [
        "  ansible-playbook -i SITE bedplate.gpu.site --limit cp1,gpu-b",
        (
            "  ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"
            " -e nvidia_driver_reboot_allowed=true"
        ),
    ]


@pytest.fixture
def in_slurm(site: Path) -> Path:
    """The same site with gpu-b as a node of Slurm; what lay there was of another lock."""
    path = site / ".bedplate.lock.yml"
    lock = yaml.safe_load(path.read_text())
    lock["hosts"]["gpu-b"]["groups"] = ["pool_train", "slurm"]
    path.write_text(yaml.safe_dump(lock))
    for name in HOSTS:
        write(site, "host", name, check(result="pass"))
        write(site, "drift", name, check(result="pass"))
    return site


def test_hosts_of_slurm_are_among_those_that_are_looked_at(
    in_slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drift(in_slurm, capsys)[0] == 0
    (in_slurm / ".bedplate/evidence/drift-gpu-b.json").unlink()
    status, lines, _ = drift(in_slurm, capsys)
    assert (status, lines[2]) == (3, "gpu-b: not known — was never looked at")


SLURM = "ansible-playbook -i SITE bedplate.gpu.slurm --limit gpu-b -e slurm_change_nodes=true"
AGAIN = "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-b"


@pytest.mark.parametrize(
    ("names", "commands"),
    [
        (["driver.packages"], [SLURM]),
        # The drained node's module is exchanged: no reboot is proposed.
        (["driver.loaded_version"], [SLURM]),
        (["driver.nouveau"], [SLURM + " -e nvidia_driver_reboot_allowed=true"]),
        (
            ["driver.nouveau", "driver.loaded_version", "driver.held"],
            [SLURM + " -e nvidia_driver_reboot_allowed=true"],
        ),
        (["fabric.packages", "fabric.services"], [SLURM]),
        (["fabric.services"], [AGAIN]),
        (["driver.held", "slurm.slurmd", "sharing.mig"], [AGAIN]),
        (["slurm.node"], []),
        (["slurm.nodes"], [AGAIN]),
        (["updates.unattended"], []),
        # A kernel that does not run wants a reboot, which is a person's to allow; a hold does not.
        (["baseline.kernel", "baseline.clock"], []),
        (["baseline.kernel_held", "cuda.packages", "rdma.nccl"], [AGAIN]),
        (["rdma.roce"], []),
    ],
    ids=lambda value: "+".join(value) if value and "." in value[0] else None,
)
def test_what_jobs_use_is_changed_on_drained_nodes_of_slurm_alone(
    in_slurm: Path, capsys: pytest.CaptureFixture[str], names: list[str], commands: list[str]
) -> None:
    write(in_slurm, "drift", "gpu-b", *map(check, names))
    _, lines, _ = drift(in_slurm, capsys)
    said = lines[lines.index("To run:") + 1 : -1] if "To run:" in lines else []
    assert said == [f"  {command}" for command in commands]


def test_json(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, "drift", "gpu-a", check())
    (site / ".bedplate/evidence/drift-gpu-b.json").unlink()
    status, lines, _ = drift(site, capsys, "--json")
    assert status == 2
    command = "ansible-playbook -i SITE bedplate.gpu.site --limit gpu-a"
    assert json.loads("\n".join(lines)) == {
        "ok": False,
        "hosts": {
            "cp1": {"state": "clean", "checked": NOW, "reason": ""},
            "gpu-a": {"state": "drifted", "checked": NOW, "reason": ""},
            "gpu-b": {"state": "unknown", "checked": "", "reason": "was never looked at"},
        },
        "drift": [{"host": "gpu-a", **check(), "run": command}],
        "run": [command],
    }
    for name in HOSTS:
        write(site, "drift", name, check(result="pass"))
    assert json.loads("\n".join(drift(site, capsys, "--json")[1]))["ok"] is True


def report(site: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run `bedplate report`: exit status, what it printed, the page."""
    status = cli.main(["report", str(site)])
    printed = capsys.readouterr().out
    return status, printed, (site / ".bedplate/report.html").read_text()


def test_the_report_shows_drift_and_is_no_worse_for_it(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "drift", "gpu-a", check("driver.held", found="<b>"))
    status, printed, page = report(site, capsys)
    assert status == 0
    assert "3 checks passed, 0 failed" in printed
    assert f"Drifted since: gpu-a — see: bedplate drift {site}" in printed
    assert "<h2>Drifted since</h2>" in page
    assert "<td>&lt;b&gt;</td>" in page
    write(site, "host", "gpu-a", check(result="pass"), checked=LATER)
    assert "Drifted since" not in "".join(report(site, capsys)[1:])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("host", "site.finished"),
        ("host", "host.reachable"),
        ("host", "host.read"),
        ("host", "driver.kept"),
        # Whole to all appearances, and closed.
        ("cluster", "node.gpu-a.in_service"),
    ],
)
def test_the_report_lists_hosts_that_were_set_aside(
    site: Path, capsys: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    assert "Set aside" not in "".join(report(site, capsys)[1:])
    write(site, kind, "gpu-a", check(name, reason="no headers"))
    status, printed, page = report(site, capsys)
    assert status == 2
    assert "Excluded: gpu-a." in printed
    assert "<tr><td>gpu-a</td><td>no headers</td></tr>" in page


def test_the_report_tells_of_cards_that_were_exchanged(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    since = {"checked": EARLIER, "what": ["0000:17:00.0: GPU-1 was replaced by GPU-2"]}
    write(site, "host", "gpu-a", check(result="pass"), facts={"changed_since": since})
    page = report(site, capsys)[2]
    assert f"Changed since {EARLIER}: <div>0000:17:00.0: GPU-1 was replaced by GPU-2</div>" in page


def test_the_report_names_the_playbook_that_changes_a_node(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check does not know that bedplate.gpu.site leaves this alone on a node with pods."""
    again = check("toolkit.version", fix="Run bedplate.gpu.site for this host again.")
    write(site, "host", "gpu-a", again, facts={"joined": True})
    write(site, "host", "gpu-b", again)
    lines = report(site, capsys)[1].splitlines()
    fixes = [line.rpartition(" — ")[2] for line in lines if "toolkit.version" in line]
    assert fixes == [
        f"Run bedplate.gpu.{play} for this host again." for play in ("upgrade", "site")
    ]
