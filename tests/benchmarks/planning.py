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
from datetime import UTC, date, datetime
from pathlib import Path

from bedplate.catalogue import load_catalogue
from bedplate.lock import lock_path
from bedplate.resolver import Plan, resolve
from bedplate.site import ansible_adapter, load_site

RUNS = 3
CONTROL_PLANES = 3
#: Hosts in all and pools of each site; the last is the one with 10,000 GPUs.
SIZES = ((4, 1), (100, 5), (1250, 20))
GOAL = 1.5
GPUS = 8
MODELS = ("h100-pcie-80gb", "a100-sxm4-80gb", "l40s", "t4-16gb", "v100-sxm2-32gb")
SHARED = """\
bedplate_host: {os: debian-12}
bedplate_kubernetes: {endpoint: "k8s.example:6443"}
bedplate_sources: {mode: mirror, url: "http://mirror.example:5080"}
"""


def make_site(folder: Path, hosts: int, pools: int) -> Path:
    """Write a site as real ones are: every host with its address, every pool with its GPUs."""
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
        (variables / f"{pool}.yml").write_text(wish, encoding="utf-8")
    groups.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


def best(command: list[str], *, before: Path | None = None) -> float:
    """Return the seconds of the fastest run; *before* each, a file is removed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    seconds = []
    for _ in range(1 + RUNS):
        if before is not None:
            before.unlink(missing_ok=True)
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
    return min(seconds[1:])


def reading(site: Path) -> float:
    """Return the seconds that reading the wishes takes in a process that has Ansible loaded."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        assert load_site(site).hosts
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def deciding(site: Path) -> float:
    """Return the seconds from wishes to lock in a process: grounding, solving, wording."""
    wishes, catalogue, today = load_site(site), load_catalogue(), date(2026, 11, 21)
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        assert isinstance(resolve(wishes, catalogue, today), Plan)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Plan sites of three sizes.

    Returns:
        Seconds by what was done, and ratios.
    """
    assert ansible_adapter  # imported here, so that `reading` measures no import
    binaries = Path(sys.executable).parent
    seconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    read: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bedplate-planning-") as folder:
        for hosts, pools in SIZES:
            site = make_site(Path(folder) / str(hosts), hosts, pools)
            inventory = [str(binaries / "ansible-inventory"), "-i", str(site), "--list"]
            plan = [str(binaries / "bedplate"), "plan", str(site), "--today", "2026-11-21"]
            listed = best(inventory)
            planned = best(plan, before=lock_path(site))
            read.append(reading(site))
            seconds[f"ansible-inventory --list, {hosts} hosts"] = listed
            seconds[f"bedplate plan, {hosts} hosts"] = planned
            seconds[f"reading the wishes, {hosts} hosts"] = read[-1]
            seconds[f"from wishes to lock, {hosts} hosts"] = deciding(site)
            goal = f" (goal {GOAL})" if hosts == SIZES[-1][0] else ""
            ratios[f"plan / ansible-inventory, {hosts} hosts{goal}"] = planned / listed
    # Without what every site costs, whatever its size.
    (few, *_), (some, *_), (many, *_) = SIZES
    ratios[f"reading a host, of {many} / of {some} hosts"] = (
        (read[2] - read[0]) / (many - few)
    ) / ((read[1] - read[0]) / (some - few))
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
