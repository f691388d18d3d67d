"""Reading NVIDIA's own words: the loaded module, nvidia-smi and nvidia-ctk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import nvidia
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jun 24 23:04:02 UTC 2025\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@x)\n"
)


def answering(out: str, code: int = 0, err: str = "") -> Host:
    def runner(argv: Sequence[str], timeout: float, environment: dict[str, str] | None) -> Result:
        return Result(code, out, err)

    return Host("/nonexistent", runner)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROPRIETARY, nvidia.LoadedModule("535.261.03", "proprietary", False)),
        (OPEN, nvidia.LoadedModule("580.65.06", "open", False)),
        (
            PROPRIETARY + "GCC version:  12\nSimulated: bedplate\n",
            nvidia.LoadedModule("535.261.03", "proprietary", True),
        ),
        ("something else\n", None),
    ],
)
def test_loaded_module(tmp_path: Path, text: str, expected: nvidia.LoadedModule | None) -> None:
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(text)
    assert nvidia.loaded_module(Host(str(tmp_path))) == expected


def test_no_module_is_loaded(tmp_path: Path) -> None:
    assert nvidia.loaded_module(Host(str(tmp_path))) is None


def test_query() -> None:
    uuid = "GPU-bed91a7e-900b-4a1d-8bb6-d4711ea93200"
    row = f"0, Tesla T4, {uuid}, 15360, Enabled, 00000000:17:00.0, 535.261.03\n"
    assert nvidia.query(answering(row)) == (
        [
            nvidia.Gpu(
                0,
                "Tesla T4",
                uuid,
                15360,
                True,
                "00000000:17:00.0",
                "535.261.03",
            )
        ],
        None,
    )


def test_a_failed_query_gives_its_reason() -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library: 535.309\n"
    assert nvidia.query(answering(said, code=18)) == ([], said.splitlines()[0])


def test_an_unexpected_row_is_a_reason_and_not_a_gpu() -> None:
    found, reason = nvidia.query(answering("No devices were found\n"))
    assert found == []
    assert reason == "nvidia-smi printed an unexpected row: No devices were found"


def test_cdi_devices_are_counted_once() -> None:
    names = "nvidia.com/gpu=0\nnvidia.com/gpu=1\nnvidia.com/gpu=GPU-bed91a7e\nnvidia.com/gpu=all\n"
    assert nvidia.cdi_devices(answering(names)) == (["nvidia.com/gpu=0", "nvidia.com/gpu=1"], None)


@pytest.mark.parametrize(
    ("now", "wished", "same"),
    [
        ("2", "0x02", True),
        ("2", 2, True),
        ("432", "0660", True),
        ("438", "0660", False),
        ("4294967295", "-1", True),
        ("1", "0x02", False),
        ("RmMsg=1", "RmMsg=1", True),
        ("RmMsg=1", "RmMsg=2", False),
        ("0", "none", False),
    ],
)
def test_options_are_compared_as_the_module_understands_them(
    tmp_path: Path, now: str, wished: object, same: bool
) -> None:
    told = tmp_path / nvidia.PROC_PARAMETERS.lstrip("/")
    told.parent.mkdir(parents=True)
    told.write_text(f"Some: {now}\n")
    assert nvidia.same_option(now, wished) == same
    others = nvidia.other_options(Host(str(tmp_path)), {"nvidia": {"NVreg_Some": wished}})
    assert others == ([] if same else [f"NVreg_Some={wished}"])


@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        pytest.param(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            "NVML library version: 525.85\n",
            "",
            "Failed to initialize NVML: Driver/library version mismatch",
            id="a-version-after-the-reason",
        ),
        pytest.param(
            "",
            "error execution phase preflight: [preflight] Some fatal errors occurred:\n"
            "\t[ERROR Port-6443]: Port 6443 is in use\n"
            "[preflight] If you know what you are doing, you can make a check non-fatal with "
            "`--ignore-preflight-errors=...`\n"
            "To see the stack trace of this error execute with --v=5 or higher\n",
            "[ERROR Port-6443]: Port 6443 is in use",
            id="hints-after-the-reason",
        ),
        pytest.param(
            "",
            "dpkg: error processing archive x.deb (--unpack):\n cannot open archive\n"
            "Errors were encountered while processing:\n x.deb\n",
            "cannot open archive",
            id="a-list-after-the-reason",
        ),
        pytest.param(
            "",
            'Traceback (most recent call last):\n  raise Odd("it failed")\nValueError: no number\n',
            "ValueError: no number",
            id="a-traceback",
        ),
        pytest.param("one\ntwo\n", "", "two", id="no-word-of-a-failure"),
        pytest.param("", "Try --help\n", "Try --help", id="a-hint-alone"),
        pytest.param("", "", "exit status 7, no output", id="nothing"),
    ],
)
def test_the_line_that_says_the_reason_is_taken(out: str, err: str, reason: str) -> None:
    assert Result(7, out, err).said == reason


WARNING = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"


@pytest.mark.parametrize(("code", "err"), [(14, ""), (14, WARNING), (0, "")])
def test_cards_with_a_damaged_inforom_are_read(code: int, err: str) -> None:
    row = "0, Tesla T4, GPU-0, 15360, Enabled, 00000000:3B:00.0, 535.261.03\n"
    host = answering(row + ("" if err else WARNING), code, err)
    gpus, reason = nvidia.query(host)
    assert ([gpu.uuid for gpu in gpus], reason) == (["GPU-0"], None)
    assert host.run(["nvidia-smi", "-L"]).warned == (WARNING.strip(),)
    assert host.run(["another", "-L"]).code == code
