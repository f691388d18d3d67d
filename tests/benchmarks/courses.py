"""What courses cost the plan: the fit proof of a faculty, and `bedplate plan` with courses.

540 students in three sizes of claims on 128 GPUs: cases drawn by chance that use 93 to 100 % of the
memory, of which some fit and some don't, and how each was answered. Plans of one site with five
courses and without any take turns in processes of their own. `python -m tests.benchmarks.courses`
prints the figures alone.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bedplate.courses.packing import Answer, Kind, Places, answer
from bedplate.lock import lock_path
from tests.benchmarks.planning import make_site, times

CASES = 200
SEED = 540
STUDENTS, GPUS, MEMORY = 540, 128, 32_768
SECONDS = 1
GOAL = 1.1
RUNS = 7
#: Hosts and pools of the site that is planned.
SIZE = (100, 5)
QUEUES = "bedplate_preset: classroom\n"
COURSE = (
    "- {{name: course-{n}, students: {n}0, share: 0.1, pool: pool_0{pool}, members: [c{n}], "
    'hours: ["Mon {begin}:00-{end}:00", "Thu 10:00-12:00"], frameworks: [pytorch]}}'
)


def faculties() -> list[list[Kind]]:
    """Return classes of three sizes that together need nearly all the memory."""
    source, found = random.Random(SEED), []  # noqa: S311 - drawn again alike, not kept secret
    while len(found) < CASES:
        first, second = sorted(source.sample(range(20, STUDENTS - 20), 2))
        numbers = (first, second - first, STUDENTS - second)
        sizes = [source.randint(1500, 16_000) for _ in numbers]
        wanted = GPUS * MEMORY * source.uniform(0.93, 1)
        scale = wanted / sum(n * size for n, size in zip(numbers, sizes, strict=True))
        kinds = [Kind(n, (int(size * scale),)) for n, size in zip(numbers, sizes, strict=True)]
        if max(kind.takes[0] for kind in kinds) <= MEMORY:
            found.append(kinds)
    return found


def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds by what was done, and ratios."""
    took: list[float] = []
    answers: Counter[Answer] = Counter()
    for kinds in faculties():
        started = time.perf_counter()
        answers[answer([Places(GPUS, (MEMORY,))], kinds)] += 1
        took.append(time.perf_counter() - started)
    seconds = {
        f"fit proof of {STUDENTS} in 3 sizes on {GPUS} GPUs, median of {CASES}": median(took),
        f"  worst of {CASES} (goal {SECONDS})": max(took),
        **{f"  of them: {one.value}": float(answers[one]) for one in Answer},
    }
    with tempfile.TemporaryDirectory(prefix="bedplate-courses-") as folder:
        without = make_site(Path(folder) / "without", *SIZE)
        five = make_site(Path(folder) / "five", *SIZE)
        for site in (without, five):
            (site / "group_vars" / "all" / "queues.yml").write_text(QUEUES, encoding="utf-8")
        # Shares of the pools' sizes: two to six of a GPU, so a tenth is always less.
        courses = [COURSE.format(n=n, pool=n % 5, begin=9 + n, end=11 + n) for n in range(1, 6)]
        text = "\n".join(["bedplate_courses:", *(f"  {one}" for one in courses), ""])
        (five / "group_vars" / "all" / "courses.yml").write_text(text, encoding="utf-8")
        runs: dict[Path, list[float]] = {without: [], five: []}
        spent: dict[Path, list[float]] = {without: [], five: []}
        for _ in range(RUNS):
            for site, mine in runs.items():
                plan = [str(Path(sys.executable).parent / "bedplate"), "plan", str(site)]
                plan += ["--today", "2026-11-26", "--allow-planned"]
                before = processor()
                mine += times(plan, before=lock_path(site), runs=1)
                spent[site].append((processor() - before) / 2)  # a run goes before each that counts
    for which, site in (("without courses", without), ("with five courses", five)):
        seconds[f"bedplate plan {which}"] = median(runs[site])
        seconds[f"  CPU, {which}"] = median(spent[site])
    return seconds, {
        f"plan with five courses / without (goal {GOAL})": median(runs[five])
        / median(runs[without]),
        "the same, CPU": median(spent[five]) / median(spent[without]),
    }


def processor() -> float:
    """Return the seconds of CPU that all ended processes of this one have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print."""
    seconds, ratios = measure()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for label, value in [*seconds.items(), *ratios.items()]:
        print(f"{label:60} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
