"""What the README shows of a refusal is what `bedplate plan` says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate import cli

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
COMMAND = "$ bedplate plan inventories/mysite\n"
WISHES = """\
bedplate_gpu: {model: v100-sxm2-32gb, count: 4}
bedplate_driver: {branch: "595"}
bedplate_sharing: {mode: mps, replicas: 50}
"""


def test_the_refusal_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "inventories" / "mysite"
    ignore = shutil.ignore_patterns(".bedplate*")
    shutil.copytree(ROOT / "inventories" / "demo", site, ignore=ignore)
    (site / "group_vars" / "pool_class.yml").write_text(WISHES)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "inventories/mysite"]) == 3
    shown = (ROOT / "README.md").read_text().split(COMMAND)[1].split("$ ")[0]
    assert capsys.readouterr().err == shown
