"""Health of GPUs, CUDA, ownership and unattended upgrades: each fault fails its own check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.archives import MARKER
from bedplate.portable.evidence import checks as evidence
from bedplate.portable.host import Result
from tests.unit.evidence_machine import CONFIGURATION, ROW, WISH, Machine

if TYPE_CHECKING:
    from pathlib import Path

DIVIDED = {"mode": "mig", "mig_profiles": ["3g.40gb"] * 2}
NVLINK = "GPU {0}: NVIDIA A100 (UUID: GPU-{0})\n\t Link 0: 25 GB/s\n\t Link 1: {1}\n"
DOWN = (
    "GPU {0}: NVIDIA A100 (UUID: GPU-{0})\n"
    "NVML: Unable to retrieve NVLink information as all links are inActive\n"
)
FABRIC = {"fabric": {"version": "535.1"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def one(machine: Machine, name: str) -> dict[str, Any]:
    """The check of that name."""
    return next(check for check in machine.checks() if check["id"] == name)


def test_less_memory_than_the_model_has_is_told(machine: Machine) -> None:
    half = ROW.format(1).replace("15360", "7680")
    machine.answers["nvidia-smi"] = Result(0, ROW.format(0) + half, "")
    assert machine.failing() == ["health.memory"]
    assert one(machine, "health.memory")["found"] == {"1": "7680 MiB instead of 16 GiB"}


def test_memory_of_an_unknown_model_is_not_judged(machine: Machine) -> None:
    wish = WISH._replace(gpu_memory_gib={"a100-40gb": 40})
    checks = machine.collected("health", wish=wish)["checks"]
    assert (checks[0]["result"], checks[0]["reason"]) == (
        "skipped",
        "the memory of these models is not known",
    )


def test_a_card_with_a_damaged_inforom_is_named_and_all_are_read(machine: Machine) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:11:00.0\n"
    for name in ("nvidia-smi", "nvidia-smi health", "nvidia-smi remapped", "nvidia-smi mig"):
        machine.answers[name] = Result(14, machine.answers[name].out + warning, "")
    assert machine.failing() == ["health.inforom"]
    assert one(machine, "health.inforom")["found"] == {"1": "its infoROM is damaged"}


@pytest.mark.parametrize(
    ("profiles", "sizes", "result", "found"),
    [
        (["grid_t4-8c"] * 2, (8192, 8192), "pass", {}),
        # In whatever order the guest has them.
        (["grid_t4-4q", "grid_t4-0q"], (512, 4096), "pass", {}),
        (["grid_t4-8c"] * 2, (8192, 4096), "fail", {"1": "4096 MiB instead of 8 GiB"}),
        (["grid_a100-1-5cme"] * 2, (4864, 4864), "pass", {}),
        (["grid_t4-odd"] * 2, (8192, 4096), "skipped", None),
    ],
)
def test_a_share_of_a_card_has_its_profile_s_memory(
    machine: Machine, profiles: list[str], sizes: tuple[int, int], result: str, found: Any
) -> None:
    """The declared model is the whole card's, which no guest of a share sees."""
    rows = [ROW.format(n).replace("15360", str(size)) for n, size in enumerate(sizes)]
    machine.answers["nvidia-smi"] = Result(0, "".join(rows), "")
    wish = WISH._replace(licence={"vgpu": profiles, "licence_feature": 1})
    check = machine.collected("health", wish=wish)["checks"][0]
    assert (check["id"], check["result"], check["found"]) == ("health.memory", result, found)
    assert check["reason"] == ("a share of a GPU" if result == "skipped" else "")


@pytest.mark.parametrize(
    ("answer", "row", "name", "said"),
    [
        ("health", "1, GPU-1, Enabled, Enabled, 3, No", "health.ecc", "3 uncorrected errors"),
        ("health", "1, GPU-1, Enabled, Disabled, 0, No", "health.ecc", "ECC becomes Disabled"),
        ("health", "1, GPU-1, Enabled, Enabled, 0, Yes", "health.remapped", "pages wait"),
        ("remapped", "GPU-1, Yes, No", "health.remapped", "rows wait to be remapped"),
        ("remapped", "GPU-1, No, Yes", "health.remapped", "rows could not be remapped"),
    ],
)
def test_memory_that_fails_is_told(
    machine: Machine, answer: str, row: str, name: str, said: str
) -> None:
    first = machine.answers[f"nvidia-smi {answer}"].out.splitlines()[0]
    machine.answers[f"nvidia-smi {answer}"] = Result(0, f"{first}\n{row}\n", "")
    assert machine.failing() == [name]
    assert said in one(machine, name)["found"]["1"]


def test_cards_without_ecc_are_skipped(machine: Machine) -> None:
    rows = "".join(f"{n}, GPU-{n}{', [N/A]' * 4}\n" for n in (0, 1))
    machine.answers["nvidia-smi health"] = Result(0, rows, "")
    remapped = "".join(f"GPU-{n}, [N/A], [N/A]\n" for n in (0, 1))
    machine.answers["nvidia-smi remapped"] = Result(0, remapped, "")
    assert machine.failing() == []
    assert one(machine, "health.ecc")["result"] == "skipped"
    assert one(machine, "health.remapped")["result"] == "skipped"


@pytest.mark.parametrize(
    ("links", "result", "found"),
    [
        (NVLINK.format(0, "25 GB/s") + NVLINK.format(1, "25 GB/s"), "pass", {}),
        (NVLINK.format(0, "25 GB/s") + NVLINK.format(1, "<inactive>"), "fail", {"1": 1}),
        (
            (NVLINK.format(0, "25 GB/s") + NVLINK.format(1, "25 GB/s")).replace(
                "25 GB/s", "<inactive>"
            ),
            "skipped",
            None,
        ),
        # A card without a bridge beside a bridged pair.
        (NVLINK.format(0, "25 GB/s") + DOWN.format(1), "pass", {}),
        # A neighbour of one that is down misses its links to it, where no switch is between them.
        (NVLINK.format(0, "<inactive>") + DOWN.format(1), "fail", {"1": 0}),
        (DOWN.format(0) + DOWN.format(1), "skipped", None),
    ],
)
def test_links_that_are_down_are_told(
    machine: Machine, links: str, result: str, found: dict[str, int] | None
) -> None:
    machine.answers["nvidia-smi nvlink"] = Result(0, links, "")
    check = one(machine, "health.nvlink")
    assert (check["result"], check["found"]) == (result, found)


@pytest.mark.parametrize(
    ("made_to", "told"),
    [
        (FABRIC, ("fail", {"0": 0, "1": 0})),
        ({**FABRIC, "sharing": DIVIDED}, ("skipped", None)),
    ],
)
def test_boards_of_a_fabric_have_links(
    machine: Machine, made_to: dict[str, Any], told: tuple[str, Any]
) -> None:
    """A PCIe card may have no bridge; boards of a fabric are without links under MIG alone."""
    down = NVLINK.format(0, "<inactive>") + NVLINK.format(1, "<inactive>")
    machine.answers["nvidia-smi nvlink"] = Result(0, down.replace("25 GB/s", "<inactive>"), "")
    checks = machine.collected("health", wish=WISH._replace(**made_to))["checks"]
    check = next(one for one in checks if one["id"] == "health.nvlink")
    assert (check["result"], check["found"]) == told


@pytest.mark.parametrize(
    ("answer", "got", "allowed"),
    [
        (Result(0, NVLINK.format(0, "25 GB/s") + DOWN.format(1), ""), "1=0", "1=2"),
        (Result(0, NVLINK.format(0, "25 GB/s"), ""), "1=0", "1=2"),
        (
            Result(0, DOWN.format(0) + DOWN.format(1), ""),
            "0=0, 1=0",
            "0=at least 1, 1=at least 1",
        ),
        (
            Result(255, "", "Failed to initialize NVML"),
            "0=0, 1=0 (Failed to initialize NVML)",
            "0=at least 1, 1=at least 1",
        ),
    ],
)
def test_a_board_of_a_fabric_without_any_link_is_told(
    machine: Machine, answer: Result, got: str, allowed: str
) -> None:
    """The driver then lists no link of it, or does not answer."""
    machine.answers["nvidia-smi nvlink"] = answer
    checks = machine.collected("health", wish=WISH._replace(**FABRIC))["checks"]
    assert evidence.failures(checks, "gpu-b") == [
        (
            "as many NVLinks up on every GPU that has any — gpu-b [health.nvlink] — "
            f"got {got} / allowed {allowed} — "
            "See 'nvidia-smi nvlink --status' on the host, and the fabric manager's log."
        )
    ]


def test_a_driver_that_says_nothing_of_health_is_no_pass(machine: Machine) -> None:
    machine.answers["nvidia-smi health"] = Result(2, "", "Field is not a valid field to query.")
    assert machine.failing() == ["health.asked"]


def test_rows_that_cannot_be_asked_for_are_no_pass(machine: Machine) -> None:
    machine.answers["nvidia-smi remapped"] = Result(2, "", "Field is not a valid field to query.")
    assert machine.failing() == ["health.remapped"]


@pytest.mark.parametrize(
    ("answer", "result", "reason"),
    [
        (
            Result(0, '{"GPU-0": {"same": false, "to_gpu": 1, "from_gpu": 1}}', ""),
            "fail",
            "",
        ),
        (Result(0, '{"error": "cuInit: CUDA_ERROR_NO_DEVICE"}', ""), "fail", "NO_DEVICE"),
        (Result(-11, "", ""), "fail", "exit status -11, no output"),
        (
            Result(0, '{"error": "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE"}', ""),
            "skipped",
            "a process has a GPU for itself",
        ),
    ],
)
def test_what_cuda_says_decides(machine: Machine, answer: Result, result: str, reason: str) -> None:
    machine.answers["python"] = answer
    check = one(machine, "compute.copy")
    assert check["result"] == result
    assert reason in check["reason"]


def test_simulated_and_partitioned_gpus_compute_nothing(machine: Machine) -> None:
    machine.answers["nvidia-smi mig"] = Result(0, "Enabled\nDisabled\n", "")
    assert one(machine, "compute.copy")["result"] == "skipped"
    version = "proc/driver/nvidia/version"
    machine.file(version, (machine.host.read(version) or "") + "Simulated: bedplate\n")
    assert one(machine, "compute.copy")["reason"] == "simulated silicon computes nothing"
    assert machine.collected()["simulated"] is True


def test_a_host_without_a_record_is_no_pass(machine: Machine) -> None:
    machine.host.remove("/var/lib/bedplate/owned.json")
    assert machine.failing() == ["owned.record"]


def test_a_program_that_somebody_replaced_is_told(machine: Machine) -> None:
    folder = "/opt/bedplate/containerd/2.4.2"
    machine.file(f"{folder}/bin/ctr", "theirs")
    machine.file(f"{folder}/{MARKER}", '{"files": {"bin/ctr": [3, 0, 493], "bin/gone": [1, 1, 1]}}')
    assert machine.failing() == ["owned.programs"]
    assert one(machine, "owned.programs")["found"] == [f"{folder}/bin/ctr", f"{folder}/bin/gone"]


def test_areas_that_know_better_judge_their_roles_files(machine: Machine) -> None:
    machine.file(CONFIGURATION, "theirs")
    assert machine.failing() == ["owned.container_runtime"]
    wish = WISH._replace(containers={"runtime": "containerd"})
    checks = machine.collected("owned", wish=wish)["checks"]
    assert "owned.container_runtime" not in [check["id"] for check in checks]


@pytest.mark.parametrize(
    ("files", "enabled", "found"),
    [
        ({}, "enabled", []),
        ({"etc/dnf/automatic.conf": "apply_updates = yes\n"}, "enabled", ["dnf-automatic.timer"]),
        ({"etc/dnf/automatic.conf": "apply_updates = no\n"}, "enabled", []),
        ({"etc/dnf/automatic.conf": "apply_updates = yes\n"}, "disabled", []),
    ],
)
def test_dnf_s_timers_count_where_they_install(
    machine: Machine, files: dict[str, str], enabled: str, found: list[str]
) -> None:
    for name, text in files.items():
        machine.file("usr/bin/dnf-automatic", "")
        machine.file(name, text)

    def run(argv: list[str], *rest: object) -> Result:
        if argv[0] == "systemctl":
            return Result(0, (enabled if argv[-1] == "dnf-automatic.timer" else "disabled"), "")
        return machine.run(argv, *rest)

    machine.host._runner = run  # type: ignore[assignment]
    assert one(machine, "updates.unattended")["found"] == found
