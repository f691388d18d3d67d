"""`bedplate simulate`: its table, its object, its page, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bedplate.cli import main as cli

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "simulate.md"
NODES = ["--node", "pool_class=32:128Gi", "--node", "pool_train=64:512Gi"]


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """The page's site, planned, with its jobs beside it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HERE / "site", "lab")
    shutil.copy(HERE / "jobs.csv", "jobs.csv")
    assert cli.main(["plan", "lab", "--allow-planned"]) == 0
    capsys.readouterr()
    return Path("lab")


def test_the_table_is_the_one_of_the_page(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by that very command: paste its output into the page when it changes."""
    assert cli.main(["simulate", str(lab), "jobs.csv", *NODES]) == 2
    shown = PAGE.read_text().split("$ bedplate simulate lab jobs.csv")[1].split("\n", 1)[1]
    assert capsys.readouterr().out == shown.split("```")[0]
    assert (HERE / "jobs.csv").read_text() in PAGE.read_text()


def test_one_object(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(lab), "jobs.csv", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["jobs"]) == (False, 25)
    assert told["at_once"] == {"at_least": 17, "at_most": 17, "proved": True, "impossible": 1}
    rows = {row["name"]: row for row in told["rows"]}
    assert rows["train-small"]["evictions"] == 1
    assert rows["too-large"]["started"] == 0
    assert rows["notebooks"]["why"] == "team language has its 10 of pool_class"
    for moment in told["moments"]:
        used = sum(moment["used_gpus"].values())
        assert used + moment["free_gpus"] == pytest.approx(20)
        assert moment["fragmented_gpus"] <= moment["free_gpus"]
    assert [one["pool"] for one in told["pools"]] == ["pool_class", "pool_train"]
    assert "--node" in told["notes"][0], "CPUs are not in the lock"


class References(HTMLParser):
    """Collects what a page would fetch or run, and whether its elements are closed."""

    VOID = ("meta", "link", "img", "br", "path", "use")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.svg = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.svg += tag == "svg"
        if tag in {"script", "link", "img", "iframe", "object"}:
            self.found.append(tag)
        self.found += [
            f"{name}={value}"
            for name, value in attrs
            if name in {"href", "src", "xlink:href"} and not (value or "").startswith("#")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_by_itself(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.html", "two.html"):
        assert cli.main(["simulate", str(lab), "jobs.csv", "--output", name]) == 2
    assert capsys.readouterr().out.endswith("\nWrote two.html.\n")
    page = Path("one.html").read_text()
    assert page == Path("two.html").read_text(), "the same input gives the same bytes"
    assert "http" not in page
    assert "url(" not in page.replace("url(#", "")
    references = References()
    references.feed(page)
    assert (references.found, references.open, references.svg) == ([], [], 1)
    for text in ("GPUs in use", "pool_train", "waiting", "hours", "too-large"):
        assert text in page


def test_a_name_of_a_job_is_text_and_no_markup(lab: Path) -> None:
    Path("evil.csv").write_text('name,gpus,team\n"<script>alert(1)</script>",1,vision\n')
    assert cli.main(["simulate", str(lab), "evil.csv", "--output", "page.html"]) == 0
    assert "&lt;script&gt;" in Path("page.html").read_text()
    assert "<script" not in Path("page.html").read_text()


def test_without_the_plotting_library_only_the_page_is_refused(lab: Path) -> None:
    lacks = "import sys; sys.modules['matplotlib'] = None; from bedplate.cli.main import main; "
    for more, status in (([], 2), (["--output", "page.html"], 3)):
        words = ["simulate", str(lab), "jobs.csv", *more]
        done = subprocess.run(
            [sys.executable, "-c", f"{lacks}sys.exit(main({words!r}))"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
    assert done.stderr == (
        "the page's picture needs matplotlib — got no such package / allowed the extra `simulate` "
        "of this package — run: pip install 'bedplate[simulate]', or leave out --output\n"
    )
    assert not Path("page.html").exists()


def test_without_a_lock(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / ".bedplate.lock.yml").unlink()
    assert cli.main(["simulate", str(lab), "jobs.csv"]) == 3
    assert capsys.readouterr().err == (
        "site has no lock — lab/.bedplate.lock.yml — got no file / allowed what `bedplate plan` "
        "writes — run: bedplate plan lab\n"
    )


def test_with_a_stale_lock(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = lab / "group_vars" / "pool_class.yml"
    pool.write_text(pool.read_text().replace("replicas: 10", "replicas: 12"))
    assert cli.main(["simulate", str(lab), "jobs.csv"]) == 3
    told = capsys.readouterr().err
    assert told.startswith("lock is stale: pool_class: expects count 40 → 48; ")
    assert "pool_class: sharing replicas 10 → 12" in told
    assert "sha256" not in told
    assert "run: bedplate plan lab" in told


@pytest.mark.parametrize("name", ["cells", "columns", "empty", "semicolons", "tabs", "units"])
def test_every_mistake_has_its_place(
    name: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(HERE / "wrong" / f"{name}.csv", "bad.csv")
    assert cli.main(["simulate", str(lab), "bad.csv"]) == 3
    assert capsys.readouterr().err == (HERE / "wrong" / f"{name}.txt").read_text()


def test_an_option_that_names_no_pool(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(lab), "jobs.csv", "--node", "pool_clas=4:8Gi"]) == 3
    assert capsys.readouterr().err == (
        "no size of a pool's nodes — --node — got pool_clas=4:8Gi / allowed POOL=CPUS:MEMORY, as "
        "pool_a=64:512Gi, with one of pool_class, pool_train — correct the option\n"
    )


def test_cpus_hold_jobs_where_they_are_known(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cpu.csv").write_text("name,gpus,cpu,memory_host,count\na,1,40,8Gi,3\nb,0,1,900Gi,1\n")
    words = ["simulate", str(lab), "cpu.csv", "--json"]
    assert cli.main([*words]) == 0
    capsys.readouterr()
    assert cli.main([*words, *NODES]) == 2
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["started"], row["why"]) for row in rows] == [
        (2, "no node of pool_train has the CPUs and the memory free for it"),
        (0, "no node has the CPUs and the memory for it"),
    ]


def test_other_modes_are_what_the_plan_says(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 shares of a T4: MPS is refused above what the device plugin offers, and 48 are tried.

    The one host takes 110 pods, of which kube-proxy, flannel, the device plugin, CoreDNS (2) and
    Kueue (2) need seven.
    """
    Path("class.csv").write_text("name,share,count,pool\nstudent,0.02,200,pool_class\n")
    assert cli.main(["simulate", str(lab), "class.csv", "--json"]) == 2
    ways = json.loads(capsys.readouterr().out)["other_modes"]
    assert {one["pool"] for one in ways} == {"pool_class"}, "no job may be in the other pool"
    found = {one["mode"]: one for one in ways}
    assert (found["none"]["at_least"], found["none"]["setting"]) == (4, "")
    slices = found["time-slicing"]
    assert (slices["at_least"], slices["setting"]) == (103, "replicas 50")
    assert (found["mps"]["at_least"], found["mps"]["setting"]) == (103, "replicas 48")
    assert "mig" not in found, "a T4 has no MIG"


def test_a_share_below_what_a_site_may_set_is_refused(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other modes are tried with it, and none has a million shares."""
    Path("tiny.csv").write_text("name,share\na,0.0000001\n")
    assert cli.main(["simulate", str(lab), "tiny.csv"]) == 3
    assert "share — got 0.0000001 / allowed a part from 0.001 to 1" in capsys.readouterr().err


def test_the_first_line_may_have_capitals(lab: Path) -> None:
    Path("bad.csv").write_text("Name,Team,GPUs,Count\nfit,vision,1,1\n")
    assert cli.main(["simulate", str(lab), "bad.csv"]) == 0
