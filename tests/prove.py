"""Run the long sweeps of one area and write what came out to docs/proof/, with commit and counts.

An area is a folder of tests/, or one of `NAMED`: `make prove AREA=resolver` runs its tests marked
`prove`. A sweep that finds no test fails: an empty proof would look like a good one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from tests import proofs

ROOT = Path(__file__).parents[1]
#: Areas that are not called as their folder is. Hours of `hosts` can be had in parts.
NAMED = {
    "hosts": "tests/hosts",
    "fleet": "tests/hosts/test_fleet.py",
    **{f"kill-{n}": f"tests/hosts/test_kill.py::test_all_points[{n}]" for n in range(1, 9)},
    "resolver": "tests/properties/test_resolver.py",
    "completeness": "tests/properties/test_completeness.py",
    "bad-sites": "tests/properties/test_bad_sites.py",
    "mutants": "tests/resolver/test_mutants.py",
}


def areas() -> list[str]:
    """Name the folders that have tests marked `prove`."""
    marked = [p for p in (ROOT / "tests").rglob("test_*.py") if "mark.prove" in p.read_text()]
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in marked}
    return sorted({*NAMED, *(folders - {folder.split("/")[1] for folder in NAMED.values()})})


def git(*arguments: str) -> str:
    """Return what git says."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def told(case: ElementTree.Element) -> str:
    """Return what a test recorded for the proof, such as a score with the names of survivors."""
    found = [one.get("value", "") for one in case.findall("./properties/property[@name='told']")]
    return "".join(f"\n\n```text\n{text}\n```\n" for text in found)


def main(arguments: list[str]) -> int:
    """Run one area; the exit status is pytest's, and 2 for an unknown area."""
    if len(arguments) != 1 or arguments[0] not in areas():
        got = " ".join(arguments) or "none"
        print(
            f"unknown area — AREA — got {got} — allowed {', '.join(areas())}"
            " — run: make prove AREA=<one of them>",
            file=sys.stderr,
        )
        return 2
    area = arguments[0]
    results = ROOT / ".pytest_cache" / f"prove-{area}.xml"
    results.unlink(missing_ok=True)
    started = time.monotonic()
    command = [
        "-m",
        "pytest",
        NAMED.get(area, f"tests/{area}"),
        "-m",
        "prove",
        f"--junitxml={results}",
    ]
    status = subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode
    suite = ElementTree.parse(results).getroot().find("testsuite")  # noqa: S314 our own file
    assert suite is not None
    counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    changed = " (with uncommitted changes)" if git("status", "--porcelain") else ""
    names = "\n".join(f"- `{case.get('name')}`{told(case)}" for case in suite.findall("testcase"))
    today = datetime.now(UTC).date()
    page = (
        f"# Proof: {area}\n\n"
        f"{proofs.head_of(area, NAMED.get(area, f'tests/{area}'), today)}\n"
        f"Date {today}, commit {git('rev-parse', 'HEAD')}{changed},"
        f" {time.monotonic() - started:.0f} s. Run it with `make prove AREA={area}`.\n\n"
        f"{counts['tests']} tests, {counts['failures']} failed, {counts['errors']} errors,"
        f" {counts['skipped']} skipped; exit status {status}.\n\n{names}\n"
    )
    target = ROOT / "docs" / "proof" / f"{area}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")
    print(page)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
