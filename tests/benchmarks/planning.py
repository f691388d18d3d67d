"""What planning costs beside reading: `bedplate plan` against Ansible's own `ansible-inventory`.

Sites are generated, without a lock or a bill of materials in Ansible's way; both run as a user runs
them, in processes of their own with Python's compiled code kept (one run before those that count),
and the best of a few runs counts. `python -m tests.benchmarks.planning` prints the figures alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock

from bedplate.catalogue import load_catalogue
from bedplate.lock import lock_path
from bedplate.resolver import Plan, resolve
from bedplate.resolver.solving import Program
from bedplate.site import ansible_adapter, load_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS = 3
#: Of the small site, whose time is mostly start-up: how it spreads is told too.
RUNS_OF_SMALL = 15
CONTROL_PLANES = 3
#: Hosts in all and pools of each site; the last is the one with 10,000 GPUs.
SIZES = ((4, 1), (100, 5), (1250, 20))
GOAL = 1.5
GPUS = 8
MODELS = ("h100-pcie-80gb", "a100-sxm4-80gb", "l40s", "t4-16gb", "v100-sxm2-32gb")
#: What the pools of one model differ in, so that no two of twenty are decided as one.
WORK = (
    'bedplate_cuda: ["12.4"]\nbedplate_frameworks: [pytorch]\n',
    'bedplate_cuda: ["12.4", "12.6"]\nbedplate_frameworks: [pytorch, tensorflow]\n',
    'bedplate_cuda: ["12.8"]\nbedplate_frameworks: [tensorflow]\n',
    'bedplate_cuda: ["12.6", "12.9"]\nbedplate_frameworks: [pytorch-2.6]\n',
)
SHARED = """\
bedplate_host: {os: debian-12}
bedplate_kubernetes: {endpoint: "k8s.example:6443", pod_subnet: 10.128.0.0/13}
bedplate_sources: {mode: mirror, url: "http://mirror.example:5080"}
"""


def make_site(folder: Path, hosts: int, pools: int) -> Path:
    """Write a site as real ones are: every host with its address, every pool with its wishes."""
    groups, variables = folder / "hosts.yml", folder / "group_vars"
    (variables / "all").mkdir(parents=True)
    (variables / "all" / "bedplate.yml").write_text(SHARED, encoding="utf-8")
    members = min(CONTROL_PLANES, hosts - pools)
    lines = ["all:", "  children:", "    control_plane:", "      hosts:"]

    def host(name: str, number: int, indent: str) -> str:
        address = f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"
        return f"{indent}{name}: {{ansible_host: {address}}}"

    lines += [host(f"cp{number}", number, " " * 8) for number in range(1, members + 1)]
    lines += ["    gpu_pools:", "      children:"]
    for index in range(pools):
        pool = f"pool_{index:02}"
        lines += [f"        {pool}:", "          hosts:"]
        here = range(members + 1 + index, hosts + 1, pools)
        lines += [host(f"gpu{number:05}", number, " " * 12) for number in here]
        model = MODELS[index % len(MODELS)]
        wish = f"bedplate_gpu: {{model: {model}, count: {GPUS}}}\n"
        mode = "mps" if index % 2 else "time-slicing"
        wish += f"bedplate_sharing: {{mode: {mode}, replicas: {2 + index % 7}}}\n"
        wish += WORK[index // len(MODELS) % len(WORK)]
        (variables / f"{pool}.yml").write_text(wish, encoding="utf-8")
    groups.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


def times(command: list[str], *, before: Path | None = None, runs: int = RUNS) -> list[float]:
    """Return the seconds of some runs, fastest first; *before* each, a file is removed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    seconds = []
    for _ in range(1 + runs):
        if before is not None:
            before.unlink(missing_ok=True)
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
    return sorted(seconds[1:])


def reading(site: Path) -> float:
    """Return the seconds that reading the wishes takes in a process that has Ansible loaded."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        assert load_site(site).hosts
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def deciding(site: Path) -> tuple[float, float]:
    """Return the seconds from wishes to lock in a process, and the solver's own among them."""
    wishes, catalogue, today = load_site(site), load_catalogue(), date(2026, 11, 21)
    whole, solver = [], []
    for _ in range(RUNS):
        own: list[float] = []
        with solving_timed(own):
            started = time.perf_counter()
            assert isinstance(resolve(wishes, catalogue, today), Plan)
            whole.append(time.perf_counter() - started)
        solver.append(sum(own))
    return min(whole), min(solver)


@contextmanager
def solving_timed(seconds: list[float]) -> Iterator[None]:
    """Add the seconds of every grounding and every solving to a list."""

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                seconds.append(time.perf_counter() - started)

        return wrapped

    names = ("__init__", "decided")
    with ExitStack() as patched:
        for name in names:
            new = timed(getattr(Program, name))
            patched.enter_context(mock.patch.object(Program, name, new))
        yield


def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Plan sites of three sizes.

    Returns:
        Seconds by what was done, and ratios.
    """
    assert ansible_adapter  # imported here, so that `reading` measures no import
    binaries = Path(sys.executable).parent
    seconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    grows: dict[str, list[float]] = {"planning": [], "reading": [], "deciding": []}
    with tempfile.TemporaryDirectory(prefix="bedplate-planning-") as folder:
        for hosts, pools in SIZES:
            site = make_site(Path(folder) / str(hosts), hosts, pools)
            inventory = [str(binaries / "ansible-inventory"), "-i", str(site), "--list"]
            plan = [str(binaries / "bedplate"), "plan", str(site), "--today", "2026-11-21"]
            plan.append("--allow-planned")  # frameworks are not installable
            runs = RUNS_OF_SMALL if hosts == SIZES[0][0] else RUNS
            listed = times(inventory)[0]
            planned = times(plan, before=lock_path(site), runs=runs)
            decided, solved = deciding(site)
            for what, took in zip(grows, (planned[0], reading(site), decided), strict=True):
                grows[what].append(took)
            seconds[f"ansible-inventory --list, {hosts} hosts"] = listed
            seconds[f"bedplate plan, {hosts} hosts"] = planned[0]
            if runs == RUNS_OF_SMALL:
                seconds[f"  median of {runs}"] = median(planned)
                seconds[f"  worst of {runs}"] = planned[-1]
            seconds[f"reading the wishes, {hosts} hosts"] = grows["reading"][-1]
            seconds[f"from wishes to lock, {hosts} hosts"] = decided
            seconds[f"  of it grounding and solving, {hosts} hosts"] = solved
            goal = f" (goal {GOAL})" if hosts == SIZES[-1][0] else ""
            ratios[f"plan / ansible-inventory, {hosts} hosts{goal}"] = planned[0] / listed
    # Without what every site costs, whatever its size. Deciding costs by the pools as well.
    few, some, many = (hosts for hosts, _ in SIZES)
    for what, (small, middle, large) in grows.items():
        a_host, of_few = (large - small) / (many - few), (middle - small) / (some - few)
        ratios[f"{what} a host, of {many} / of {some} hosts"] = a_host / of_few
    return seconds, ratios


def main() -> int:
    """Measure and print."""
    seconds, ratios = measure()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for label, value in [*seconds.items(), *ratios.items()]:
        print(f"{label:44} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
