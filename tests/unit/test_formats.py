"""Bill and evidence of another version's format are refused by name; the lock's are in its file."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import load_bill
from bedplate.cli import main as cli
from bedplate.common.errors import LockError
from bedplate.common.lock_place import BILL
from bedplate.components.config import StackError
from bedplate.components.schedulers import node_labels
from tests.unit.test_drift_command import drift, site, write

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["site"]
#: A number, and what is proposed: whoever has the newer version loses nothing by it.
OTHERS = [
    (0, f"format 0 is of a Bedplate older than this {version('bedplate')}; "),
    (2, f"format 2 is of a Bedplate newer than this {version('bedplate')}: use that one, or "),
]
others = pytest.mark.parametrize(("number", "fix"), OTHERS)


@others
def test_a_bill(number: int, fix: str, tmp_path: Path) -> None:
    """Also where the other format has fields that this one does not know."""
    (tmp_path / BILL).write_text(f"format: {number}\nunknown: {{}}\n")
    with pytest.raises(LockError) as caught:
        load_bill(tmp_path)
    assert str(caught.value) == (
        f"bill of materials is of another format — {tmp_path / BILL} format — got {number} / "
        f"allowed 1 — {fix}remove it and run: bedplate mirror resolve {tmp_path}"
    )


@others
def test_evidence(number: int, fix: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, "host", "gpu-a", format=number, unknown={})
    path = site / ".bedplate/evidence/host-gpu-a.json"
    said = f"evidence is of another format — {path} format — got {number} / allowed 1 — {fix}"
    assert cli.main(["report", str(site)]) == 3
    run = f"remove it and run: ansible-playbook -i {site} bedplate.gpu.verify"
    assert capsys.readouterr().err.splitlines() == [said + run]
    with pytest.raises(StackError) as caught:
        node_labels.discovered(site, ["gpu-a"])
    run = "remove it and run `ansible-playbook bedplate.gpu.verify` on the site"
    assert str(caught.value) == said + run


@others
def test_a_look_for_drift(
    number: int, fix: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "drift", "gpu-a", format=number)
    status, lines, _ = drift(site, capsys)
    why = fix.partition(": use")[0].removesuffix("; ")
    file = "SITE/.bedplate/evidence/drift-gpu-a.json"
    assert f"gpu-a: not known — {file} cannot be read ({why})" in lines
    assert status == 3
