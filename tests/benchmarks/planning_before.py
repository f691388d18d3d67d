"""`bedplate plan` of 1,250 hosts, this checkout against an older one: `… planning_before FOLDER`.

FOLDER is a worktree of the older commit. Both run in this environment and take turns, on a site of
their own with the same content; the first run of each does not count. CPU says more than the clock
where a machine does other things too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bedplate.lock import lock_path
from tests.benchmarks.planning import SIZES, make_site

RUNS = 7
HERE = Path(__file__).parents[2]
#: Planned and not installable, because of the site's frameworks; older commits end with 0.
ENDS = {0, 4}


def once(checkout: Path, site: Path) -> tuple[float, float]:
    """Plan the site without its lock; return the seconds of the clock and of CPU."""
    lock_path(site).unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(checkout / "src")
    command = [
        sys.executable,
        "-m",
        "bedplate.cli",
        "plan",
        str(site),
        "--today",
        "2026-11-21",
    ]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in ENDS, done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def main() -> int:
    """Measure and print."""
    checkouts = {"before": Path(sys.argv[1]).resolve(), "now": HERE}
    hosts, pools = SIZES[-1]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory(prefix="bedplate-planning-") as folder:
        sites = {name: make_site(Path(folder) / name, hosts, pools) for name in checkouts}
        for number in range(1 + RUNS):
            for name, checkout in checkouts.items():
                took = once(checkout, sites[name])
                if number:
                    found[name].append(took)
    best = {name: [min(column) for column in zip(*its, strict=True)] for name, its in found.items()}
    for name, its in found.items():
        clock, cpu = (median(column) for column in zip(*its, strict=True))
        print(f"{name:8} best {best[name][0]:.2f} s, CPU {best[name][1]:.2f} s; "
              f"median {clock:.2f} s, CPU {cpu:.2f} s")  # fmt: skip
    print(f"now / before, {hosts} hosts: {best['now'][0] / best['before'][0]:.2f}, "
          f"CPU {best['now'][1] / best['before'][1]:.2f}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
