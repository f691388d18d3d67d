"""Whatever lies in the place of a file that Bedplate keeps: refused in one line, or made again."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting import command as usage
from bedplate.accounting.share import command as share
from bedplate.bill import load_bill
from bedplate.bill.partial import PLACE, Partial
from bedplate.bill.repository import listed
from bedplate.common.errors import BedplateError
from bedplate.components.config import StackError
from bedplate.components.schedulers import nccl, node_labels
from bedplate.evidence.discovery import adopt, store
from bedplate.lock import load_lock
from bedplate.mirror import processes, service
from bedplate.mirror.store import Store
from bedplate.planning.simulation.jobs import read_jobs
from bedplate.pods.kubeaccess import access_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVIDENCE = ".bedplate/evidence/host-gpu-a.json"


def loop(path: Path) -> None:
    """Make a link to itself."""
    path.symlink_to(path.name)


def brackets(path: Path) -> None:
    """Write what is nested too deeply for any reader."""
    path.write_text("[" * 100_000)


def no_text(path: Path) -> None:
    """Write what is no UTF-8."""
    path.write_bytes(b"\xff")


def number(path: Path) -> None:
    """Write JSON and YAML of another type."""
    path.write_text("7")


def indented(path: Path) -> None:
    """Write the same in blocks of YAML."""
    path.write_text("- " * 30_000 + "x")


def entered(kubeconfig: Path) -> None:
    """Use a kubeconfig."""
    with access_of(kubeconfig):
        pass


ODD = [os.mkfifo, os.mkdir, loop, brackets, indented, no_text, number]

#: What reads a file of the site, and whether it refuses it: the others make it again.
READERS: dict[str, tuple[str, Callable[[Path], object], bool]] = {
    "lock": (".bedplate.lock.yml", load_lock, True),
    "access": (".bedplate/kubeconfig", lambda site: entered(site / ".bedplate/kubeconfig"), True),
    "bill": (".bedplate.bill.yml", load_bill, True),
    "usage": (".bedplate/usage.jsonl", usage.read, True),
    "nccl": (EVIDENCE, lambda site: nccl._of_host(site, "gpu-a"), True),
    "labels": (EVIDENCE, lambda site: node_labels.discovered(site, ["gpu-a"]), True),
    "partial": (str(PLACE), lambda site: Partial(site, {})._found == {}, False),
    "kubeconfig": (
        ".bedplate/kubeconfig",
        lambda site: adopt.cluster_of(site, None, None).authority is None,
        False,
    ),
    "discovered": (
        ".bedplate/discovered/hosts/gpu-a.json",
        lambda site: store.earlier(site, ["gpu-a"]) == {},
        False,
    ),
    "contents": ("contents.json", lambda site: Store(site).contents().files == {}, False),
    "settings": ("mirror.json", lambda site: service._settings(site) is None, False),
    "process": ("nginx.json", lambda site: processes.running(site / "nginx.json") is None, False),
}


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", READERS)
def test_what_is_odd_is_refused_or_made_again(
    tmp_path: Path, name: str, make: Callable[[Path], Any]
) -> None:
    place, read, refuses = READERS[name]
    site = tmp_path / "site"
    path = site / place
    path.parent.mkdir(parents=True)
    make(path)
    if not refuses:
        assert read(site)
        return
    with pytest.raises((BedplateError, StackError)) as caught:
        read(site)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def endless(path: Path) -> None:
    """Make a link to what never ends."""
    path.symlink_to("/dev/zero")


#: What reads a file that a user names.
NAMED: dict[str, Callable[[Path], object]] = {
    "jobs": lambda path: read_jobs(path, [], []),
    "key": share._key,
    "index": lambda path: listed(path, ["x"]),
}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, loop, endless, no_text])
@pytest.mark.parametrize("name", NAMED)
def test_a_named_file_that_is_odd_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], Any]
) -> None:
    path = tmp_path / "Packages.gz"
    make(path)
    with pytest.raises(BedplateError) as caught:
        NAMED[name](path)
    (line,) = str(caught.value).splitlines()[:1]
    assert str(path) in line
    assert "Errno" not in line


RECORD = {
    "uid": "u",
    "start": "2026-11-21T10:00:00Z",
    "end": None,
    "why": "",
    "namespace": "n",
    "queue": "q",
    "workload": "Job/x",
    "user": "a",
    "amounts": [{"flavor": "f", "resource": "nvidia.com/gpu", "count": 1, "gpus": 1.0}],
    "cycles": 1,
    "placed": True,
    "seen": None,
}
AMOUNT = RECORD["amounts"][0]


@pytest.mark.parametrize(
    "odd",
    [
        {"amounts": [{**AMOUNT, "gpus": "1"}]},
        {"amounts": [{**AMOUNT, "gpus": float("nan")}]},
        {"amounts": [{**AMOUNT, "count": 10**400}]},
        {"amounts": [{**AMOUNT, "count": -1}]},
        {"amounts": [7]},
        {"amounts": 7},
        {"cycles": []},
        {"user": ["a"]},
        {"queue": None},
        {"start": 7},
        {"start": "yesterday"},
        {"more": 1},
    ],
)
def test_records_of_another_type_are_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = tmp_path / ".bedplate/usage.jsonl"
    path.parent.mkdir()
    path.write_text(f"{json.dumps(RECORD)}\n")
    assert len(list(usage.read(tmp_path))) == 1
    path.write_text(f"{json.dumps(RECORD)}\n{json.dumps(RECORD | odd)}\n")
    with pytest.raises(BedplateError, match=f"records cannot be read — {path} — got line 2: "):
        usage.read(tmp_path)
