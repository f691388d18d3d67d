"""All hosts together: what is said of them, and what is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import load_catalogue
from bedplate.evidence.discovery import store
from bedplate.evidence.discovery.judge import Judgement, judge
from bedplate.lock import lock_path, render
from tests.discovery import machines
from tests.discovery.locks import lock
from tests.discovery.machines import debian_driver, facts_of

if TYPE_CHECKING:
    from pathlib import Path

CATALOGUE = load_catalogue()


def judged(site: Path, answers: dict[str, Any], *more: str) -> Judgement:
    return judge(site, answers, [*answers, *more], "2026-11-21T00:00:00Z", "s", CATALOGUE)


def test_a_site_without_wishes_and_lock(tmp_path: Path) -> None:
    answers = {
        "g1": {"facts": facts_of(machines.dgx(tmp_path / "g1")), "groups": []},
        "g2": {"facts": None, "reason": "ssh: no\n route", "groups": []},
        "g3": {"groups": []},
    }
    site = tmp_path / "site"
    site.mkdir()
    result = judged(site, answers)
    assert result.problems["g1"] == []
    fix = "check its address, its power, its host key, its Python and the way to it"
    assert result.problems["g2"] == [
        f"host cannot be read — g2 — got ssh: no route / allowed facts — {fix}"
    ]
    assert len(result.problems["g3"]) == 1
    assert result.lines == (
        ("proposed: pool_h100_sxm5_80gb of g1 — bedplate_gpu: {model: h100-sxm5-80gb, count: 8}, "
        "bedplate_host: {os: ubuntu-22.04, memory: 2Gi}"),
        "written to s/.bedplate/discovered/pools; nothing reads it there",
        "no lock yet: what runs already is named, and compared with nothing",
        "already there: container toolkit 1.16.2 (NVIDIA's package) — g1",
        ("already there: driver 550.90.07 open, by NVIDIA's repository "
        f"({machines.CUDA_REPOSITORY}) — g1"),
        "already there: Fabric Manager 550.90.07-1 — g1",
        "not as the site says, and failed below: g2, g3",
    )  # fmt: skip
    assert list(site.iterdir()) == []  # judging writes nothing


def test_a_lock_is_read_and_a_broken_one_said(tmp_path: Path) -> None:
    answers = {"h1": {"facts": facts_of(debian_driver(tmp_path / "h1")), "groups": ["pool_x"]},
               "h2": {"facts": facts_of(debian_driver(tmp_path / "h2")), "groups": []}}  # fmt: skip
    lock_path(tmp_path).write_text(render(lock()))
    lines = judged(tmp_path, answers).lines
    assert "compared with the lock" in lines
    assert "adopted: driver 535.261.03 proprietary, as locked — h1" in lines
    assert "not in the lock — h2" in lines
    lock_path(tmp_path).write_text("format: 1\n")
    (line,) = [x for x in judged(tmp_path, answers).lines if "lock" in x]
    assert line.startswith("the lock is left out: lock is of another format")


def test_wishes_that_could_not_be_evaluated_are_problems(tmp_path: Path) -> None:
    answer = {
        "facts": facts_of(machines.Machine(tmp_path)), "groups": [],
        "unreadable": {"bedplate_gpu": "'nothing' is undefined"},
    }  # fmt: skip
    assert judged(tmp_path, {"h1": answer}).problems["h1"] == [
        (
            "h1: setting cannot be evaluated — s bedplate_gpu — got 'nothing' is undefined — "
            "run: bedplate plan s"
        )
    ]


def test_a_run_over_a_few_hosts_forgets_no_others(tmp_path: Path) -> None:
    one = {"g1": {"facts": facts_of(machines.dgx(tmp_path / "1")), "groups": []}}
    two = {"g2": {"facts": facts_of(machines.dgx(tmp_path / "2")), "groups": []}}
    first = judged(tmp_path, one, "g2")
    store.write_hosts(tmp_path, first.records)
    second = judged(tmp_path, two, "g1")
    assert [p.hosts for p in second.proposals] == [("g1", "g2")]
    assert set(second.problems) == {"g2"}
    assert [p.hosts for p in judged(tmp_path, two).proposals] == [("g2",)]  # g1 has left
    gone = judged(tmp_path, {"g1": {"reason": "off", "groups": []}}, "g2")
    store.write_hosts(tmp_path, gone.records)
    assert [p.hosts for p in judged(tmp_path, two, "g1").proposals] == [("g2",)]


def test_what_is_written(tmp_path: Path) -> None:
    answers = {"g1": {"facts": facts_of(machines.dgx(tmp_path / "m")), "groups": []}}
    result = judged(tmp_path, answers)
    folder = tmp_path / ".bedplate" / "discovered"
    (folder / "pools").mkdir(parents=True)
    (folder / "pools" / "pool_old.yml").write_text("{}\n")
    (folder / "hosts").mkdir()
    (folder / "hosts" / "gone.json").write_text("{}\n")

    def write() -> dict[str, bytes]:
        store.write_hosts(tmp_path, result.records)
        store.forget(tmp_path, ["g1"])
        store.write_pools(tmp_path, result.proposals, "s")
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}

    first = write()
    assert set(first) == {"hosts/g1.json", "pools/pool_h100_sxm5_80gb.yml"}
    assert write() == first
    record = json.loads(first["hosts/g1.json"])
    assert record["read"] == "2026-11-21T00:00:00Z"
    assert record["facts"]["system"]["os"] == "ubuntu-22.04"
    text = first["pools/pool_h100_sxm5_80gb.yml"].decode()
    assert yaml.safe_load(text) == result.proposals[0].variables
    assert "#   pool_h100_sxm5_80gb:\n#     hosts:\n#       g1: {}\n" in text


def test_many_hosts_are_told_in_one_line(tmp_path: Path) -> None:
    facts = facts_of(debian_driver(tmp_path / "m"))
    answers = {f"n{number:02}": {"facts": facts, "groups": []} for number in range(40)}
    lines = judged(tmp_path, answers).lines
    assert len(lines) == 4
    assert lines[3].endswith("— n00, n01, n02, n03, n04 and 35 more")


def test_reading_without_root_is_said(tmp_path: Path) -> None:
    facts = facts_of(machines.Machine(tmp_path)) | {"root": False}
    result = judged(tmp_path, {"h1": {"facts": facts, "groups": []}})
    assert any("read without root" in line for line in result.lines)
