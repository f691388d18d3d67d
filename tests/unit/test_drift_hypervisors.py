"""`bedplate drift` on hypervisors: they are looked at too, and get commands of their own."""

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
NOW = "2026-11-22T11:00:00Z"
AGAIN = "ansible-playbook -i SITE bedplate.gpu.site --limit hv1"
REBOOTING = f"{AGAIN} -e gpu_passthrough_reboot_allowed=true"


def check(name: str, result: str = "fail") -> dict[str, Any]:
    """One check, as a collector makes it."""
    check = {"id": name, "what": "the thing", "result": result, "wished": "a", "found": "b"}
    return {**check, "reason": "", "fix": "Do something."}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site whose lock has a hypervisor alone."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    path = copy / ".bedplate.lock.yml"
    lock = yaml.safe_load(path.read_text())
    lock["hosts"] = {"hv1": {**lock["hosts"]["gpu-b"], "groups": ["hypervisors", "pool_train"]}}
    path.write_text(yaml.safe_dump(lock))
    return copy


def drift(site: Path, capsys: pytest.CaptureFixture[str], *names: str) -> tuple[int, list[str]]:
    """Leave what bedplate.gpu.drift leaves where these checks fail, and run the command."""
    document = {
        "format": 1,
        "subject": {"kind": "host", "name": "hv1", "pool": None},
        "checked": NOW,
        "lock": digest(site),
        "checks": [check("passthrough.iommu", "pass"), *map(check, names)],
    }
    folder = site / ".bedplate/evidence"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drift-hv1.json").write_text(json.dumps(document))
    status = cli.main(["drift", str(site)])
    return status, capsys.readouterr().out.replace(str(site), "SITE").splitlines()


def test_a_hypervisor_that_was_never_looked_at_is_not_clean(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["drift", str(site)]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "hv1: not known — was never looked at"
    assert said[-1] == "1 hosts: 0 drifted, 1 not known, 0 without drift"


def test_a_hypervisor_without_drift(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drift(site, capsys) == (
        0,
        [
            f"hv1: no drift, looked at {NOW}",
            "1 hosts: 0 drifted, 0 not known, 1 without drift",
        ],
    )


@pytest.mark.parametrize(
    ("names", "commands"),
    [
        (["passthrough.arguments"], [REBOOTING]),
        (["passthrough.bound"], [REBOOTING]),
        (["passthrough.boot"], [AGAIN]),
        (["passthrough.pages", "passthrough.guests", "owned.gpu_passthrough"], [AGAIN]),
        # The one that reboots mends the others too.
        (["passthrough.unit", "passthrough.bound"], [REBOOTING]),
        (["passthrough.iommu", "passthrough.groups"], []),
    ],
    ids="+".join,
)
def test_a_reboot_is_proposed_only_where_nothing_else_helps(
    site: Path, capsys: pytest.CaptureFixture[str], names: list[str], commands: list[str]
) -> None:
    status, lines = drift(site, capsys, *names)
    assert status == 2
    said = lines[lines.index("To run:") + 1 : -1] if "To run:" in lines else []
    assert said == [f"  {command}" for command in commands]
