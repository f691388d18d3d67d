"""Each card keeps its slot in Slurm, whatever the number of its device file is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.slurm import gpus as slurm_gpus

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"


def report(*cards: str) -> str:
    """As nvidia-smi -q -x writes it, with the document type that it names."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log>{''.join(cards)}</nvidia_smi_log>"
    )


def card(uuid: str, minor: int, mig: str = "N/A", parts: str = "") -> str:
    return (
        f'<gpu id="00000000:3B:00.0"><uuid>{uuid}</uuid><minor_number>{minor}</minor_number>'
        f"<mig_mode><current_mig>{mig}</current_mig></mig_mode><mig_devices>{parts}</mig_devices></gpu>"
    )


def part(gpu_instance: int, compute_instance: int) -> str:
    return (
        f"<mig_device><gpu_instance_id>{gpu_instance}</gpu_instance_id>"
        f"<compute_instance_id>{compute_instance}</compute_instance_id></mig_device>"
    )


def links(root: Path) -> dict[str, str]:
    folder = root / slurm_gpus.LINKS.lstrip("/")
    return {path.name: str(path.readlink()) for path in folder.iterdir()}


def run(root: Path, text: str) -> slurm_gpus.Links:
    """One run of the boot's script, as the module does it too."""
    compared = slurm_gpus.compare(str(root), slurm_gpus.reported(0, text, str))
    slurm_gpus.apply(str(root), compared)
    return compared


def test_slots_are_in_the_order_of_uuids_and_not_of_minor_numbers(tmp_path: Path) -> None:
    run(tmp_path, report(card(B, 0), card(A, 1)))
    assert links(tmp_path) == {"gpu0": "/dev/nvidia1", "gpu1": "/dev/nvidia0"}


def test_a_card_keeps_its_slot_when_its_minor_number_changes(tmp_path: Path) -> None:
    run(tmp_path, report(card(A, 0), card(B, 1)))
    again = run(tmp_path, report(card(B, 0), card(A, 1)))
    assert again.wrong == ["gpu0", "gpu1"]
    assert again.slots == again.recorded == [A, B]
    assert links(tmp_path) == {"gpu0": "/dev/nvidia1", "gpu1": "/dev/nvidia0"}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, report(card(A, 0), card(B, 1)))
    before = os.lstat(tmp_path / "run/bedplate/slurm/gpu0").st_mtime_ns
    again = run(tmp_path, report(card(A, 0), card(B, 1)))
    assert again.wrong == []
    assert os.lstat(tmp_path / "run/bedplate/slurm/gpu0").st_mtime_ns == before


@pytest.mark.parametrize(
    ("recorded", "present", "slots"),
    [
        ([A, B], [A, B], [A, B]),
        # A is swapped for C, which sorts after B and takes A's slot: B stays where it is.
        ([A, B], [B, C], [C, B]),
        # A is pulled: its slot waits.
        ([A, B], [B], [A, B]),
        # The last one is pulled: there is no slot behind it to keep.
        ([A, B], [A], [A]),
        ([A, B], [C, A, B], [A, B, C]),
        ([], [B, A], [A, B]),
        ([A], [], []),
    ],
)
def test_who_has_a_slot_keeps_it(recorded: list[str], present: list[str], slots: list[str]) -> None:
    assert slurm_gpus.assign(recorded, present) == slots


def test_a_pulled_card_takes_its_link_along(tmp_path: Path) -> None:
    run(tmp_path, report(card(A, 0), card(B, 1)))
    run(tmp_path, report(card(B, 0)))
    assert links(tmp_path) == {"gpu1": "/dev/nvidia0"}
    record = json.loads((tmp_path / slurm_gpus.RECORD.lstrip("/")).read_text())
    assert record == {"slots": [A, B]}


def test_a_lost_record_brings_the_order_of_uuids_back(tmp_path: Path) -> None:
    path = tmp_path / slurm_gpus.RECORD.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    run(tmp_path, report(card(B, 0), card(A, 1)))
    assert json.loads(path.read_text()) == {"slots": [A, B]}


CAPABILITIES = "/proc/driver/nvidia/capabilities/gpu1/mig"
MINORS = {
    f"{CAPABILITIES}/gi3/access": "DeviceFileMinor: 30\nMode: 292\n",
    f"{CAPABILITIES}/gi3/ci0/access": "DeviceFileMinor: 31\n",
    f"{CAPABILITIES}/gi10/access": "DeviceFileMinor: 93\n",
    f"{CAPABILITIES}/gi10/ci0/access": "DeviceFileMinor: 94\n",
}


def test_a_divided_card_has_the_files_of_its_instances_in_their_order() -> None:
    text = report(card(B, 0), card(A, 1, "Enabled", part(10, 0) + part(3, 0)))
    found = slurm_gpus.devices(text, MINORS.__getitem__)
    assert found == {
        B: {"": "/dev/nvidia0"},
        A: {
            "": "/dev/nvidia1",
            "-0-gi": "/dev/nvidia-caps/nvidia-cap30",
            "-0-ci": "/dev/nvidia-caps/nvidia-cap31",
            "-1-gi": "/dev/nvidia-caps/nvidia-cap93",
            "-1-ci": "/dev/nvidia-caps/nvidia-cap94",
        },
    }
    assert slurm_gpus.count(found) == 3


def test_a_divided_card_without_instances_is_no_device(tmp_path: Path) -> None:
    text = report(card(A, 0, "Enabled"), card(B, 1))
    found = slurm_gpus.devices(text, MINORS.__getitem__)
    assert found == {A: {}, B: {"": "/dev/nvidia1"}}
    assert slurm_gpus.count(found) == 1
    run(tmp_path, text)
    assert links(tmp_path) == {"gpu1": "/dev/nvidia1"}


def test_all_instances_of_a_card_share_the_one_name_of_its_file(tmp_path: Path) -> None:
    """Slurm forbids a file that it knows under the name of a device that the job does not have."""
    compared = slurm_gpus.compare(
        str(tmp_path),
        slurm_gpus.devices(
            report(card(A, 1, "Enabled", part(3, 0) + part(10, 0))), MINORS.__getitem__
        ),
    )
    slurm_gpus.apply(str(tmp_path), compared)
    targets = list(links(tmp_path).values())
    assert len(targets) == len(set(targets)) == 5
    assert compared.slots == [A]


def test_slots_of_an_older_form_give_way(tmp_path: Path) -> None:
    path = tmp_path / slurm_gpus.RECORD.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"slots": [f"{A}/3/0", f"{A}/10/0", f"{B}/3/0"]}))
    run(tmp_path, report(card(B, 0), card(A, 1)))
    assert json.loads(path.read_text()) == {"slots": [A, B]}


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (9, "NVIDIA-SMI has failed", "NVIDIA-SMI has failed"),
        (9, "", "nvidia-smi: exit status 9"),
        (0, "no XML", "nvidia-smi -q -x: syntax error: line 1, column 0"),
        (
            0,
            report("<gpu><uuid>GPU-aaaa</uuid><minor_number>N/A</minor_number></gpu>"),
            "nvidia-smi -q -x: invalid literal for int() with base 10: 'N/A'",
        ),
        (
            0,
            report(card(A, 0, "Enabled", part(1, 0))),
            (
                "nvidia-smi -q -x: /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
                " names no DeviceFileMinor"
            ),
        ),
    ],
)
def test_unknown_gpus_are_told(code: int, text: str, told: str) -> None:
    with pytest.raises(slurm_gpus.UnknownGpusError) as caught:
        slurm_gpus.reported(code, text, lambda _: "")
    assert str(caught.value) == told
