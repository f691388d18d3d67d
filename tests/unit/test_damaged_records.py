"""Records of ours on a host that are damaged: they count as none, and nothing ends in a defect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import slurm_controller
from ansible_collections.bedplate.gpu.plugins.plugin_utils import evidence

from bedplate.portable import archives, cuda, owned, removal
from bedplate.portable.driver import record as driver_record
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host, Result
from bedplate.portable.packages import holds, rpm
from bedplate.portable.slurm import config as slurm_config
from bedplate.portable.slurm import gpus as slurm_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MINE = "# Managed by Bedplate (role nvidia_driver).\n"
PATH = "/etc/x"
WHOLE: dict[str, Any] = {
    "sha256": "0" * 64,
    "mode": "0644",
    "role": "nvidia_driver",
    "watched": True,
    "before": None,
    "added": None,
    "folders": [],
}
DEEP = "[" * 100_000
ENTRIES: dict[str, Any] = {
    "text": "y",
    "empty": {},
    "digest": {**WHOLE, "sha256": 7},
    "mode of letters": {**WHOLE, "mode": "rw"},
    "mode of another script": {**WHOLE, "mode": "٠٦٤٤"},
    "mode as a number": {**WHOLE, "mode": 420},
    "role": {**WHOLE, "role": ["nvidia_driver"]},
    "watched": {**WHOLE, "watched": "yes"},
    "before": {**WHOLE, "before": {"a": 1}},
    "was": {**WHOLE, "before": "x\n", "was": ["0644", 0]},
    "was negative": {**WHOLE, "before": "x\n", "was": [420, -5, 0]},
    "folders": {**WHOLE, "folders": "/etc"},
    "folders of numbers": {**WHOLE, "folders": [1]},
    "added": {**WHOLE, "watched": False, "added": {"other": 1}},
    "added import": {**WHOLE, "watched": False, "added": {"import": 1}},
    "added lines": {**WHOLE, "watched": False, "added": {"lines": 7}},
    "added keys": {**WHOLE, "watched": False, "added": {"keys": [{"at": []}]}},
    "added keys without a was": {
        **WHOLE,
        "watched": False,
        "added": {"keys": [{"at": ["a"], "ours": 1}]},
    },
}


def silent(argv: Sequence[str], *_: object) -> Result:
    return Result(0, "", argv[0])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), silent)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_that_says_nothing_sound_is_none(host: Host, entry: object) -> None:
    host.write(PATH, "the user's\n")
    host.write("/etc/y", MINE)
    sound = {**WHOLE, "sha256": owned.digest(MINE)}
    host.write(owned.RECORD, json.dumps({"files": {PATH: entry, "/etc/y": sound}}))
    assert list(owned.load(host)) == ["/etc/y"]
    assert owned.differences(host) == {"nvidia_driver": []}
    assert removal.files(host, [], check=False) == removal.Outcome(["/etc/y: removed"], [])
    assert host.read(PATH) == "the user's\n"


@pytest.mark.parametrize("path", ["etc/x", "", "/etc/../x", "/a\0b", "/etc//x/."])
def test_a_name_that_is_no_path_of_a_file_is_none(host: Host, path: str) -> None:
    host.write(owned.RECORD, json.dumps({"files": {path: WHOLE}}))
    assert owned.load(host) == {}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"files": []}', '{"files": 7}', DEEP, '{"files": ' + DEEP, "\udc80"],
)
def test_a_record_of_another_form_is_none_and_is_written_again(host: Host, text: str) -> None:
    host.write(owned.RECORD, text)
    assert owned.load(host) == {}
    ensure_files(host, [File(PATH, MINE)])
    assert list(owned.load(host)) == [PATH]


@pytest.mark.parametrize(
    "text", ["[]", "null", '"x"', '{"p": ["role"], "q": {"a": 1}, "r": null}', DEEP]
)
def test_other_records_are_none_too(host: Host, text: str, tmp_path: Path) -> None:
    for path in (holds.RECORD, rpm.JOURNAL, slurm_controller.RECORD, slurm_gpus.RECORD):
        host.write(path, text)
    assert holds.load(host) == {}
    assert rpm.journal(host) == {}
    plan = slurm_controller.Plan({"nodes": [], "hardware": {}}, slurm_controller.read_record(host))
    assert (plan.before, plan.known) == ({}, {})
    assert slurm_gpus.read_record(host.root) == []
    assert slurm_config.read_known(text) == {}
    assert cuda._version(text) == ""
    with pytest.raises(ValueError, match=r"^(KeyError|TypeError|ValueError|no JSON|format)"):
        driver_record.parse(text)
    (tmp_path / "evidence.json").write_text(text)
    assert {"p", "q", "r"} >= set(evidence.read(tmp_path / "evidence.json"))


@pytest.mark.parametrize(
    "nodes",
    [7, [], {"a": 1}, {"a": {"name": "a"}}, {"a": {"name": "a", "x": 1}}, {"a": [["x", 1]]}],
)
def test_slurms_nodes_that_are_not_whole_are_none(nodes: object) -> None:
    plan = slurm_controller.Plan({"nodes": [], "hardware": {}}, {"nodes": nodes})
    assert plan.before == {}


@pytest.mark.parametrize(
    "files", [7, [], {"a": 1}, {"a": [1, 2]}, {"a": [1, "x", 3]}, {"../a": [1, 2, 3]}]
)
def test_a_mark_of_an_archive_is_none(tmp_path: Path, files: object) -> None:
    wish = archives.Archive("p", "1", "http://x/p", "0" * 64, str(tmp_path))
    mark = {"format": 1, "sha256": "0" * 64, "strip": 0, "files": files}
    (tmp_path / archives.MARKER).write_text(json.dumps(mark))
    assert archives.defect(wish) == "incomplete"
    assert archives.changed(str(tmp_path)) == []
    (tmp_path / archives.MARKER).write_text(DEEP)
    assert archives.defect(wish) == "incomplete"
