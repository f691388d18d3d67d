"""What drift proposes, for all that it can report, against what the playbooks do with a host."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.common.evidence_file import Check, Result
from bedplate.common.parts import PARTS, among, answering
from bedplate.evidence import drift

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
WAITING = {part.role for part in PARTS if part.waits}
#: Entry points of roles that only read, and those that take away.
READS = {"validate", "part", "host", "verify", "withdraw", "remove"}
#: Names that evidence puts together.
MADE = {
    "runtime.": ["active", "enabled"],
    "slurm.": ["munge", "slurmctld", "slurmd"],
    "owned.": sorted(path.name for path in (ROOT / "roles").iterdir()),
    "hpc.": [],  # skipped ones alone
}
_ID = re.compile(r"[a-z]+\.[a-z_]+")
_START = re.compile(r"([a-z]+\.)")


def reported() -> list[str]:
    """Return the id of every check that evidence can make of a host."""
    found: set[str] = set()
    starts: set[str] = set()
    for path in sorted((ROOT / "src/bedplate/portable/evidence").glob("*.py")):
        if path.stem in {"cluster", "near", "checks", "area"}:
            continue  # of no host, or of no area
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                starts |= {s for s in [str(node.values[0].value)] if _START.fullmatch(s)}
            elif isinstance(node, ast.Constant) and _ID.fullmatch(str(node.value)):
                found.add(str(node.value))
    areas = {"owned", *(area for part in PARTS for area in part.areas)}
    found = {one for one in found if one.partition(".")[0] in areas}
    assert starts & {f"{area}." for area in areas} == set(MADE)
    return sorted(found | {start + end for start, ends in MADE.items() for end in ends})


IDS = reported()


def remedy(check_id: str, *, joined: bool = False, slurm: bool = False) -> str:
    """Return the playbook that drift proposes, without what else it allows."""
    check = Check(id=check_id, what="the thing", result=Result.FAIL)
    return drift._remedy(check, joined=joined, slurm=slurm).partition(",")[0]


def tasks_of(path: Path, given: frozenset[str] = frozenset()) -> Iterator[tuple[str, set[str]]]:
    """Yield each role whose changes a file of plays or tasks makes, with the given variables."""
    for task in yaml.safe_load(path.read_text()):
        yield from _of_task(path, task, given)


def _of_task(
    path: Path, task: dict[str, Any], given: frozenset[str]
) -> Iterator[tuple[str, set[str]]]:
    given |= frozenset(task.get("vars", {}))
    for part in ("tasks", "block", "rescue", "always"):
        for inner in task.get(part, []):
            yield from _of_task(path, inner, given)
    for verb, value in task.items():
        name = value["name"] if isinstance(value, dict) and "name" in value else value
        if verb.endswith("_role") and value.get("tasks_from") not in READS:
            yield name.rpartition(".")[2], set(given)
        elif verb.endswith("_tasks"):
            yield from tasks_of(path.parent / name, given)
        elif verb.endswith("import_playbook"):
            book = PLAYBOOKS / f"{name.rpartition('.')[2]}.yml"
            yield from tasks_of(book, given)


REACHED = {
    play: {role for role, _ in tasks_of(PLAYBOOKS / f"{play}.yml")}
    for play in ("site", "upgrade", "slurm", "certificates")
}


def test_every_kind_of_check_is_known() -> None:
    assert len(IDS) > 130
    assert {"dra.unit", "plugin.manifest", "owned.rdma", "runtime.active"} <= set(IDS)


def test_roles_that_hold_are_those_that_the_upgrade_asks() -> None:
    """Else a role's files wait for a drain, and the user is sent to a playbook without one."""
    answers = yaml.safe_load((PLAYBOOKS / "vars/upgrade.yml").read_text())["__upgrade_answers"]
    holding = set()
    for role in (ROOT / "roles").iterdir():
        text = "\n".join(path.read_text() for path in role.glob("tasks/*.yml"))
        if any(re.search(rf"(register: |^ +){a}\b", text, re.MULTILINE) for a in answers):
            holding.add(role.name)
    assert holding == WAITING


@pytest.mark.parametrize("check_id", IDS)
def test_a_cluster_node_is_sent_to_the_upgrade_for_what_its_roles_hold(check_id: str) -> None:
    part = answering(check_id)
    found = remedy(check_id, joined=True)
    if not found:
        assert not remedy(check_id)
        return
    assert (found == "upgrade") == (part.waits and not among(check_id, part.at_once))
    if part.role in REACHED["site"]:
        assert part.role in REACHED[found]


@pytest.mark.parametrize("check_id", IDS)
def test_what_is_proposed_is_a_playbook_that_has_the_role(check_id: str) -> None:
    role = answering(check_id).role
    for slurm in (False, True):
        found = remedy(check_id, slurm=slurm)
        if found and role in REACHED["site"]:
            assert role in REACHED[found]


def test_a_node_of_slurm_is_drained_for_what_its_playbook_keeps() -> None:
    stack = yaml.safe_load((PLAYBOOKS / "tasks/nvidia_stack.yml").read_text())
    (kept,) = (task for task in stack if "__bedplate_keeps_driver" in str(task.get("when")))
    roles = {role for role, _ in _of_task(PLAYBOOKS / "tasks/x.yml", kept, frozenset())}
    drained = {answering(one).role for one in IDS if remedy(one, slurm=True) == "slurm"}
    assert drained == {"nvidia_driver", "nvidia_fabric"} <= roles


def test_the_upgrade_changes_what_the_roles_hold_wherever_it_calls_them() -> None:
    """On control planes, which it does not drain, and on nodes once they are drained."""
    plays = yaml.safe_load((PLAYBOOKS / "upgrade.yml").read_text())
    (control,) = (one for one in plays if "kubelet of control planes" in one["name"])
    # Before a control plane is drained, its kubelet's role says whether it has to be.
    control_plane = dict(_of_task(PLAYBOOKS / "upgrade.yml", control, frozenset()))
    calls = [*control_plane.items(), *tasks_of(PLAYBOOKS / "tasks/exchange.yml")]
    held = [(role, given) for role, given in calls if role in WAITING]
    assert {role for role, _ in held} == WAITING
    assert not [role for role, given in held if f"{role}_change_joined" not in given]


def test_a_difference_names_the_playbook_that_is_to_be_run() -> None:
    again = "Run bedplate.gpu.site for this host again."
    check = Check(id="toolkit.version", what="the thing", result=Result.FAIL, fix=again)
    for joined, play in ((True, "upgrade"), (False, "site")):
        run = drift._remedy(check, joined=joined, slurm=False)
        named = drift._named(check, run).fix
        assert named == f"Run bedplate.gpu.{play} for this host again."
