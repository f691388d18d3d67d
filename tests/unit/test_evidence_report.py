"""Evidence, its verdict, and the report that `bedplate report` makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from bedplate.cli import main as cli
from bedplate.common.errors import BedplateError
from bedplate.common.evidence_file import Evidence, Result, load_evidence
from bedplate.lock import digest, load_lock, write_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
HOSTS = ("cp1", "gpu-a", "gpu-b")
HOSTILE = "</td><script>alert(1)</script><img src=https://x.example/i onerror='x' \"&\x1b[31m\ud800"


def check(result: str = "pass", **more: Any) -> dict[str, Any]:
    """One check."""
    return {"id": "driver.loaded_version", "what": "the loaded driver", "result": result, **more}


def write(site: Path, name: str, *checks: dict[str, Any], **more: Any) -> None:
    """Leave evidence of the site's present lock, as the verify step does."""
    kind = "cluster" if name == "cluster" else "host"
    content = {
        "format": 1,
        "subject": {"kind": kind, "name": name, "pool": None},
        "checked": "2026-11-21T10:00:00Z",
        "lock": digest(site),
        "checks": list(checks),
        **more,
    }
    file = "cluster.json" if kind == "cluster" else f"host-{name}.json"
    (site / ".bedplate/evidence" / file).write_text(json.dumps(content))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the demo site, in which every host and the cluster passed one check."""
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate"))
    (copy / ".bedplate/evidence").mkdir(parents=True)
    for name in (*HOSTS, "cluster"):
        write(copy, name, check())
    return copy


def report(site: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Run `bedplate report` and return exit status, lines of output, errors."""
    status = cli.main(["report", str(site)])
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err


def suites(site: Path) -> dict[str, tuple[int, int, int]]:
    """Return tests, failures and skips of each suite; each count is also that of its cases."""
    root = ET.fromstring((site / ".bedplate/junit.xml").read_bytes())  # noqa: S314 - our own
    found = {}
    for suite in root:
        cases = suite.findall("testcase")
        counts = (
            len(cases),
            sum(case.find("failure") is not None for case in cases),
            sum(case.find("skipped") is not None for case in cases),
        )
        assert counts == tuple(int(suite.get(key, "")) for key in ("tests", "failures", "skipped"))
        found[suite.get("name", "")] = counts
    totals = tuple(sum(column) for column in zip(*found.values(), strict=True))
    assert totals == tuple(int(root.get(key, "")) for key in ("tests", "failures", "skipped"))
    return found


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([], Result.FAIL),
        (["pass"], Result.PASS),
        (["pass", "skipped"], Result.PASS),
        (["skipped", "skipped"], Result.SKIPPED),
        (["pass", "fail", "skipped"], Result.FAIL),
        (["skipped", "fail"], Result.FAIL),
    ],
)
def test_verdict(results: list[str], verdict: Result) -> None:
    content = {
        "format": 1,
        "subject": {"kind": "host", "name": "gpu-a"},
        "checked": "2026-11-21T10:00:00Z",
        "lock": "sha256:00",
        "checks": [check(result) for result in results],
    }
    assert Evidence.model_validate(content).result is verdict


def test_all_passed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, errors = report(site, capsys)
    assert (status, errors) == (0, "")
    assert lines == [
        "pass: 4 checks passed, 0 failed, 0 skipped on 3 hosts",
        f"Wrote {site}/.bedplate/report.html and junit.xml.",
    ]
    assert suites(site) == {
        "host cp1": (1, 0, 0),
        "host gpu-a": (1, 0, 0),
        "host gpu-b": (1, 0, 0),
        "cluster cluster": (1, 0, 0),
    }


def test_simulated_silicon_is_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, "gpu-a", check(), simulated=True)
    _, lines, _ = report(site, capsys)
    assert lines[0].endswith("on 3 hosts (simulated silicon)")
    page = (site / ".bedplate/report.html").read_text()
    assert "<b>Simulated silicon.</b>" in page


def test_stand_in_packages_are_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, "gpu-a", check(), facts={"driver": {"stand_in": True}})
    write(site, "gpu-b", check(), facts={"driver": {"stand_in": False}})
    _, lines, _ = report(site, capsys)
    assert lines[0].endswith("on 3 hosts (stand-in packages)")
    page = (site / ".bedplate/report.html").read_text()
    assert page.count("<b>Stand-in packages.</b>") == page.count("with stand-in packages") == 1


def test_failed_skipped_missing_stale_and_empty(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    differs = {"wished": "580.2", "found": "580.1", "fix": "Reboot."}
    write(
        site,
        "cp1",
        check("fail", **differs),
        check("fail", **differs, reason="reboot required"),
        check("fail", reason="nvidia-smi does not answer", fix="Look."),
        check(),
    )
    (site / ".bedplate/evidence/host-gpu-a.json").unlink()
    write(site, "gpu-b", check(), lock="sha256:00")
    write(site, "cluster", check("skipped", reason="no cluster yet"))
    status, lines, _ = report(site, capsys)
    assert status == 2
    again = f"run: ansible-playbook -i {site} bedplate.gpu.site"
    loaded = "the loaded driver — cp1 [driver.loaded_version]"
    assert lines[:-1] == [
        "fail: 1 checks passed, 5 failed, 1 skipped on 3 hosts",
        f"  {loaded} — got 580.1 / allowed 580.2 — Reboot.",
        f"  {loaded} — got 580.1 (reboot required) / allowed 580.2 — Reboot.",
        f"  {loaded} — got nvidia-smi does not answer / allowed nothing — Look.",
        f"  gpu-a: no evidence — {again}",
        f"  gpu-b: evidence of another lock — {again}",
    ]
    assert suites(site) == {
        "host cp1": (4, 3, 0),
        "host gpu-a": (1, 1, 0),
        "host gpu-b": (1, 1, 0),
        "cluster cluster": (1, 0, 1),
    }


def cells(site: Path, title: str) -> list[str]:
    """Return the words of each cell of a section's table, as a reader sees them."""
    page = (site / ".bedplate/report.html").read_text()
    section = page.split(f"<h2>{title}</h2>")[1].split("<h2>")[0]
    found = re.findall(r"<td[^>]*>(.*?)</td>", section, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in found]


def test_every_pool_is_shown_with_its_wishes_and_its_decision(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(site, capsys)
    lock = load_lock(site)
    for pool, wish in {
        "pool_train": "model h100-pcie-80gb count 8",
        "pool_class": "model t4-16gb count 4",
    }.items():
        wished, decided = cells(site, f"Pool {pool}")
        assert wish in wished
        assert "branch 535 source distro" in wished
        assert f"version {lock.pools[pool].nvidia_driver.version}" in decided
    cluster = cells(site, "Cluster")
    assert f"version {lock.cluster.kubernetes.version}" in cluster[cluster.index("kubernetes") + 1]


def test_a_site_without_a_cluster_has_a_page_without_one(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of Slurm or of hypervisors alone."""
    lock = load_lock(site)
    write_lock(site, lock.model_copy(update={"cluster": None}))
    (site / ".bedplate/evidence/cluster.json").unlink()
    report(site, capsys)
    page = (site / ".bedplate/report.html").read_text()
    assert "<h2>Cluster</h2>" not in page
    assert "Pool pool_train" in page


def test_the_password_of_an_address_is_not_on_the_page(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The proxy is among the wishes that the page shows, and no part of the decision."""
    for name in ("pool_train", "pool_class"):
        file = site / "group_vars" / f"{name}.yml"
        proxy = "bedplate_proxy: {url: 'http://ops:pl@zq9w@192.0.2.1:3128'}\n"
        file.write_text(file.read_text() + proxy)
    report(site, capsys)
    page = (site / ".bedplate/report.html").read_text()
    assert "zq9w" not in page
    assert "url http://…@192.0.2.1:3128" in cells(site, "Pool pool_train")[0]


def test_every_host_bears_its_verdict_on_the_page(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "cp1", check("fail", reason="x", fix="y"))
    write(site, "gpu-b", check("skipped", reason="x"))
    write(site, "cluster", check("skipped", reason="x"))
    report(site, capsys)
    page = (site / ".bedplate/report.html").read_text()
    heads = re.findall(r'<h3>(\S+).*?<span class="badge (\w+)">', page)
    assert heads == [
        ("Found", "skipped"),
        ("cp1", "fail"),
        ("gpu-a", "pass"),
        ("gpu-b", "skipped"),
    ]


@pytest.mark.parametrize("name", ["gpu-a", "cluster"])
def test_no_check_at_all_is_a_failure(
    name: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, name)
    status, lines, _ = report(site, capsys)
    assert status == 2
    assert lines[0] == "fail: 3 checks passed, 1 failed, 0 skipped on 3 hosts"
    assert lines[1].startswith(f"  {name}: evidence without a check — run: ")
    kind = "cluster" if name == "cluster" else "host"
    assert suites(site)[f"{kind} {name}"] == (1, 1, 0)


def test_a_cluster_of_another_lock_is_a_failure(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "cluster", check(), lock="sha256:00")
    status, lines, _ = report(site, capsys)
    assert status == 2
    assert lines[1].startswith("  cluster: evidence of another lock — run: ")
    assert "under another lock" in (site / ".bedplate/report.html").read_text()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_verdict_is_data(form: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, "gpu-a", check("fail", found={"mib": 1024}, fix="Run it again."), check())
    (site / ".bedplate/evidence/host-gpu-b.json").unlink()
    assert cli.main(["report", str(site), "-o", form]) == 2
    printed = capsys.readouterr()
    found = yaml.safe_load(printed.out)
    assert (found["ok"], found["result"], printed.err) == (False, "fail", "")
    assert found["checks"] == {"pass": 3, "fail": 2, "skipped": 0}
    cp1, gpu_a, gpu_b, cluster = found["subjects"]
    assert (cp1["result"], cp1["failed"]) == ("pass", [])
    assert gpu_a["failed"] == [
        {**check("fail", found={"mib": 1024}, fix="Run it again."), "wished": None, "reason": ""}
    ]
    assert (gpu_b["result"], gpu_b["reason"], gpu_b["checked"]) == ("fail", "no evidence", None)
    assert gpu_b["pool"] == load_lock(site).hosts["gpu-b"].pool
    assert (cluster["kind"], cluster["result"]) == ("cluster", "pass")
    assert (site / ".bedplate/report.html").exists()


def test_skipped_everywhere_proves_nothing(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (*HOSTS, "cluster"):
        write(site, name, check("skipped", reason="not now"))
    status, lines, _ = report(site, capsys)
    assert status == 2
    assert lines[0] == "skipped: 0 checks passed, 0 failed, 4 skipped on 3 hosts"


def test_strangers_are_listed_and_judged_by_nobody(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, "gone", check("fail", reason="x"))
    status, lines, _ = report(site, capsys)
    assert (status, len(lines)) == (0, 2)
    assert (
        "<li>gone, checked 2026-11-21T10:00:00Z</li>"
        in (site / ".bedplate/report.html").read_text()
    )
    assert "host gone" not in suites(site)


def test_no_evidence_at_all_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(site / ".bedplate/evidence")
    assert report(site, capsys) == (
        3,
        [],
        (
            f"there is no evidence to report on — {site}/.bedplate/evidence — got no *.json file / "
            "allowed one file per host, written by the verify step — run: ansible-playbook -i "
            f"{site} bedplate.gpu.site\n"
        ),
    )
    assert not (site / ".bedplate/report.html").exists()


def test_no_lock_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".bedplate.lock.yml").unlink()
    status, lines, errors = report(site, capsys)
    assert (status, lines) == (3, [])
    assert errors.startswith("site has no lock — ")


def test_files_that_are_no_evidence_are_named_all_at_once(site: Path) -> None:
    folder = site / ".bedplate/evidence"
    (folder / "host-cp1.json").write_text("{")
    (folder / "host-gpu-a.json").write_bytes(b"\xff")
    write(site, "gpu-b", check("perhaps"))
    with pytest.raises(BedplateError) as caught:
        load_evidence(site)
    fix = f"remove it and run: ansible-playbook -i {site} bedplate.gpu.verify"
    form = "a file is not evidence — {} — got {} / allowed evidence of format 1 — {}"
    assert str(caught.value).splitlines() == [
        form.format(folder / name, got, fix)
        for name, got in (
            (
                "host-cp1.json",
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            ),
            (
                "host-gpu-a.json",
                "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
            ),
            ("host-gpu-b.json", "checks.0.result: Input should be 'pass', 'fail' or 'skipped'"),
        )
    ]


class Page(HTMLParser):
    """What a browser would see of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note tags and attributes."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def hostile(site: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """A site whose evidence carries texts that want to leave their place."""
    bad = check("fail", wished={HOSTILE: [HOSTILE]}, found=HOSTILE)
    clean = HOSTILE.replace("\ud800", "")
    write(site, "gpu-a", {**bad, "reason": clean, "fix": clean, "what": clean}, checked=clean)
    write(site, "gone", check(), checked=clean)
    assert report(site, capsys)[0] == 2
    return site


def many_hosts(site: Path, hosts: int = 200) -> None:
    """Make a site of many hosts out of the demo's: some failed, some unreachable, most well."""
    lock = load_lock(site)
    names = [f"gpu{number:03d}" for number in range(1, hosts + 1)]
    pools = ("pool_train", "pool_class")
    made = {
        name: lock.hosts["gpu-a"].model_copy(update={"pool": pools[number % 2]})
        for number, name in enumerate(names)
    }
    write_lock(site, lock.model_copy(update={"hosts": {"cp1": lock.hosts["cp1"], **made}}))
    shutil.rmtree(site / ".bedplate/evidence")
    (site / ".bedplate/evidence").mkdir()
    for number, name in enumerate(["cp1", *names]):
        well = [check() | {"id": f"driver.part{part}"} for part in range(20)]
        if number % 19 == 7:
            well[3] |= {
                "result": "fail",
                "what": "the lock's driver is loaded",
                "wished": "580.159.03",
                "found": "535.274.02",
                "reason": "driver 535.274.02 is loaded; the lock has 580.159.03",
                "fix": "Run bedplate.gpu.upgrade for this host.",
            }
        if number % 40 == 5:
            well = [
                check("fail", reason="ssh: connection timed out", fix="Check its address.")
                | {"id": "host.reachable", "what": "the host answers over SSH"}
            ]
        if number != 100:
            write(site, name, *well)
    write(site, "cluster", check())


def test_the_first_screen_of_200_hosts_names_the_failures(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many_hosts(site)
    status, _, _ = report(site, capsys)
    assert status == 2
    page = (site / ".bedplate/report.html").read_text()
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles.index("Failures") < titles.index("Pools") < titles.index("Hosts")
    assert titles[0] == "Failures"
    rows = cells(site, "Failures")
    assert [html.unescape(row) for row in rows[::4]] == [
        "driver.part3 the lock's driver is loaded",
        "host.reachable the host answers over SSH",
        "no evidence the host was never verified",
    ]
    screen = page.split("<h2>Failures</h2>")[1].split("<h2>Pools</h2>")[0]
    assert len(screen.splitlines()) < 60
    # Each host is one line until it is opened, those that failed come first.
    verdicts = re.findall(r'<summary><h3>\S+.*?<span class="badge (\w+)">', page)
    assert len(verdicts) == 201
    assert verdicts == sorted(verdicts)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_page_is_self_contained_and_escapes(hostile: Path) -> None:
    text = (hostile / ".bedplate/report.html").read_text()
    page = Page()
    page.feed(text)
    assert "table" in page.tags
    assert not page.tags & {"script", "img", "link", "iframe", "object", "base", "a"}
    assert page.attributes <= {"lang", "charset", "name", "content", "class", "open"}
    assert "url(" not in text
    assert "@import" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6


def test_junit_survives_what_xml_cannot_hold(hostile: Path) -> None:
    assert suites(hostile)["host gpu-a"] == (1, 1, 0)
    text = (hostile / ".bedplate/junit.xml").read_text()
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\N{REPLACEMENT CHARACTER}[31m" in text
