"""The CDI specification and the pulled image, against canned answers of their tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.runtime.cdi import CdiError, devices, refresh

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPECIFICATION = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: GPU-11111111-2222-3333-4444-555555555555
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: all
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
"""
PATH = "/etc/cdi/nvidia.yaml"
HOOK = "/usr/local/bin/nvidia-cdi-hook"


class Tools:
    """Answers by program and subcommand, and remembers what was run."""

    def __init__(self, **answers: Result) -> None:
        self.answers = answers
        self.ran: list[list[str]] = []

    def __call__(
        self, argv: Sequence[str], _timeout: float, _environment: dict[str, str] | None
    ) -> Result:
        self.ran.append(list(argv))
        return self.answers.get(argv[1].lstrip("-"), Result(127, "", "command not found"))


def test_devices_are_those_of_the_list_only() -> None:
    assert devices(SPECIFICATION) == ["0", "GPU-11111111-2222-3333-4444-555555555555", "all"]
    assert devices("cdiVersion: 0.5.0\ndevices: []\n") == []


def test_the_specification_is_written_and_then_left_alone(tmp_path: Path) -> None:
    tools = Tools(quiet=Result(0, SPECIFICATION, ""))
    host = Host(str(tmp_path), tools)
    assert refresh(host, PATH, HOOK, check=True).changed
    assert not (tmp_path / "etc").exists()
    assert refresh(host, PATH, HOOK).changed
    assert (tmp_path / PATH.lstrip("/")).read_text() == SPECIFICATION
    assert not refresh(host, PATH, HOOK).changed
    assert tools.ran[0] == [
        *["nvidia-ctk", "--quiet", "cdi", "generate"],
        *["--nvidia-cdi-hook-path", HOOK],
    ]


def test_equal_entries_in_another_order_are_no_change(tmp_path: Path) -> None:
    written = SPECIFICATION.replace("void\n", "void\n        - B=2\n        - A=1\n")
    found = SPECIFICATION.replace("void\n", "void\n        - A=1\n        - B=2\n")
    refresh(Host(str(tmp_path), Tools(quiet=Result(0, written, ""))), PATH, HOOK)
    assert not refresh(Host(str(tmp_path), Tools(quiet=Result(0, found, ""))), PATH, HOOK).changed


def test_another_gpu_is_a_change(tmp_path: Path) -> None:
    refresh(Host(str(tmp_path), Tools(quiet=Result(0, SPECIFICATION, ""))), PATH, HOOK)
    swapped = SPECIFICATION.replace("GPU-1", "GPU-2")
    outcome = refresh(Host(str(tmp_path), Tools(quiet=Result(0, swapped, ""))), PATH, HOOK)
    assert outcome.changed
    assert outcome.devices[1].startswith("GPU-2")


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (Result(1, "", "noise\nfailed to initialize NVML: Driver/library version mismatch"), ""),
        (Result(0, "cdiVersion: 0.5.0\ndevices: []", ""), "devices: []"),
    ],
)
def test_no_gpu_is_a_failure_that_says_why(tmp_path: Path, answer: Result, got: str) -> None:
    got = got or "failed to initialize NVML: Driver/library version mismatch"
    with pytest.raises(CdiError) as caught:
        refresh(Host(str(tmp_path), Tools(quiet=answer)), PATH, HOOK)
    assert str(caught.value) == (
        "the CDI specification cannot be generated — nvidia-ctk cdi generate — "
        f"got {got} / allowed a specification with at least one GPU — "
        "See whether nvidia-smi -L lists the GPUs; if not, fix the driver first."
    )
    assert not (tmp_path / "etc").exists()
