"""What the hosts' playbook costs: beside bare commands, beside the nearest peer, and per host.

Two equal hosts: one is made by `playbooks/hosts.yml`, the other by hand; then the first is made
again, beside a playbook of the peer's tasks; then many inventory names lead to both. All figures
are ratios within one run, medians of rounds that take turns. `python -m tests.benchmarks hosts`.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import yaml

from tests.benchmarks import bare_commands, peer_tasks, scale
from tests.site.cluster import round_trips
from tests.site.hosts import on_host
from tests.substrate.commands import ROOT, SiteCommands

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUNDS = 3
PARTS = ("first", "built", "again", "scale")
MADE, BY_HAND = "made", "by-hand"
NETWORK, SUBNET = "bedplate-benchmarks", "10.213.9."
MIRROR = f"http://{SUBNET}1:5080"
#: Lays down those of Debian's own kernel, for which DKMS then compiles the driver's module.
HEADERS = ROOT / "roles/nvidia_driver/molecule/build/headers.sh"
PLAYBOOK = ("playbooks/hosts.yml", "--limit", MADE)
GOAL_FIRST, GOAL_AGAIN = 1.15, 5
TASK = re.compile(r"^TASK \[(.*?)\]", re.MULTILINE)


@dataclass
class Figures:
    """What was measured: seconds by what was done, ratios, and lines of text to print."""

    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def make_site(folder: Path) -> SiteCommands:
    """Write the site (the molecule scenarios' own, with two hosts) and its description."""
    source = ROOT / "tests" / "roles" / "site"
    site = folder / "benchmarks"
    shutil.copytree(source, site, ignore=shutil.ignore_patterns(".bedplate*", ".gitignore"))
    for path in site.rglob("*.yml"):
        path.write_text(path.read_text().replace("10.213.2.", SUBNET))
    addresses = {MADE: f"{SUBNET}11", BY_HAND: f"{SUBNET}12"}
    write_hosts(site, addresses)
    machine = {"os": "debian-12", "gpus": {"model": "t4-16gb", "count": 4}}
    description = folder / "benchmarks.yml"
    content = {
        "network": {"name": NETWORK, "subnet": f"{SUBNET}0/24"},
        "hosts": {name: machine | {"address": address} for name, address in addresses.items()},
    }
    description.write_text(yaml.safe_dump(content, sort_keys=False))
    return SiteCommands(site, description)


def write_hosts(site: Path, addresses: dict[str, str], **variables: str) -> None:
    """Write the inventory: all hosts in one pool."""
    members = {n: {"ansible_host": a} | variables for n, a in addresses.items()}
    pools = {"pool_class": {"hosts": members}}
    groups = {"control_plane": {"hosts": {}}, "gpu_pools": {"children": pools}}
    text = yaml.safe_dump({"all": {"children": groups}}, sort_keys=False)
    (site / "hosts.yml").write_text(text)


def play(site: SiteCommands, *arguments: str) -> tuple[float, str]:
    """Run `ansible-playbook` on the site; return its seconds and what it printed.

    Raises:
        AssertionError: it failed; with the end of what it printed.
    """
    command = ["ansible-playbook", "-i", str(site.site), *arguments]
    started = time.monotonic()
    done = site.run("plays", command, quiet=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    return time.monotonic() - started, done.stdout


def substrate(site: SiteCommands, verb: str) -> None:
    """Start or remove the hosts.

    Raises:
        AssertionError: it failed; with what it printed.
    """
    command = ["python", "-m", "tests.substrate", verb, str(site.description)]
    done = site.run(verb, [*command, "--site", str(site.site)], quiet=True, check=False)
    assert done.returncode == 0, done.stdout


def fresh(site: SiteCommands) -> None:
    """Begin with two bare hosts and a lock that fits."""
    substrate(site, "down")
    substrate(site, "up")
    for verb in (["plan"], ["mirror", "resolve"]):
        done = site.run("plan", ["bedplate", *verb, str(site.site)], quiet=True, check=False)
        assert done.returncode == 0, done.stdout


@dataclass(frozen=True)
class Cost:
    """What something took: seconds on the clock, and of CPU on the host and the control side.

    The second hardly minds what else the machine does.
    """

    clock: float
    cpu: float


def cpu_seconds(host: str) -> float:
    """Return the CPU seconds of a host since its start and of this process's children."""
    command = ["podman", "stats", "--no-stream", "--format", "{{.CPUNano}}"]
    done = subprocess.run(
        [*command, f"{NETWORK}-{host}"], capture_output=True, text=True, check=True
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(done.stdout) / 1e9 + children.ru_utime + children.ru_stime


def cost(host: str, work: Callable[[], object]) -> Cost:
    """Do *work* and return what it took."""
    before, started = cpu_seconds(host), time.monotonic()
    work()
    return Cost(time.monotonic() - started, cpu_seconds(host) - before)


def compared(figures: Figures, label: str, costs: list[Cost]) -> Cost:
    """Keep the figures of something that was done several times; return their medians."""
    middle = Cost(
        statistics.median(each.clock for each in costs),
        statistics.median(each.cpu for each in costs),
    )
    figures.seconds[label] = middle.clock
    figures.seconds[f"{label}, CPU"] = middle.cpu
    figures.notes.append(f"{label}: {told([each.clock for each in costs])}")
    return middle


def told(values: list[float]) -> str:
    """Write the single values, for the eye."""
    return " ".join(f"{value:.1f}" for value in values)


def bare(site: SiteCommands, built: bool) -> None:
    """Begin with two bare hosts; with headers where the driver's module is to be `built`."""
    fresh(site)
    for host in (MADE, BY_HAND) if built else ():
        on_host(site, host, "apt-get -qq update\n" + HEADERS.read_text(encoding="utf-8"))


def first_converge(site: SiteCommands, figures: Figures, rounds: int, built: bool) -> None:
    """Make one host by the playbook and one by hand, on bare hosts, taking turns."""
    what = "first, module compiled" if built else "first"
    fresh(site)
    play(site, *PLAYBOOK)  # not counted: it warms caches, and what it writes is taken for the other
    files = bare_commands.configuration(site, MADE)
    made: list[Cost] = []
    by_hand: list[Cost] = []

    def ours() -> None:
        made.append(cost(MADE, lambda: play(site, *PLAYBOOK)))

    def theirs() -> None:
        by_hand.append(cost(BY_HAND, lambda: bare_commands.make_host(site, BY_HAND, files)))

    for number in range(rounds):
        bare(site, built)
        for step in (ours, theirs) if number % 2 else (theirs, ours):
            step()
        differing = bare_commands.differences(site, MADE, BY_HAND)
        assert not differing, "\n".join(["the two hosts are not equal:", *differing])
    one = compared(figures, f"{what}, one host: hosts.yml", made)
    other = compared(figures, f"{what}, one host: the bare commands", by_hand)
    label = f"hosts.yml, {what} / bare commands"
    figures.ratios[f"{label} (goal {GOAL_FIRST})"] = one.clock / other.clock
    figures.ratios[f"{label}, CPU"] = one.cpu / other.cpu


def again(site: SiteCommands, folder: Path, figures: Figures, rounds: int) -> None:
    """Make a finished host again, by our playbook and by the peer's tasks, taking turns."""
    whole = peer_tasks.load()
    peers = {"equivalent roles": whole.equivalent(), "all its tasks": whole}
    runs: dict[str, tuple[str, ...]] = {"hosts.yml": PLAYBOOK}
    for name, peer in peers.items():
        (folder / name).mkdir(parents=True)
        written = str(peer_tasks.write_playbook(peer, folder / name))
        runs[name] = (written, "--limit", MADE, "-e", f"benchmark_mirror={MIRROR}")
        tasks = ", ".join(f"{count} {what}" for what, count in sorted(peer.counted().items()))
        figures.notes.append(f"the peer, {name}: {tasks}")
    on_host(site, MADE, peer_tasks.PREPARE)
    play(site, *PLAYBOOK)
    play(site, *runs["all its tasks"])
    # From here on nothing is left to do; the next runs show their commands and are not timed.
    for name in ("hosts.yml", "equivalent roles"):
        _, printed = play(site, *runs[name], "-vvv")
        trips = max(round_trips(printed).values())
        figures.ratios[f"round trips, again: {name}"] = float(trips)
        figures.ratios[f"tasks shown, again: {name}"] = float(len(TASK.findall(printed)))
    costs: dict[str, list[Cost]] = {name: [] for name in runs}

    def run(name: str) -> None:
        _, printed = play(site, *runs[name])
        assert re.search(r"changed=0\s", printed), printed[-3000:]

    for number in range(rounds):
        for name in runs:
            if number and name == "all its tasks":
                continue  # no goal is asked of it, and it takes longest
            costs[name].append(cost(MADE, partial(run, name)))
    middle = {
        name: compared(figures, f"again, one host: {name}", taken) for name, taken in costs.items()
    }
    for name in peers:
        goal = f" (goal {GOAL_AGAIN})" if name == "equivalent roles" else ""
        label, ours = f"the peer's {name} / hosts.yml, again", middle["hosts.yml"]
        figures.ratios[f"{label}{goal}"] = middle[name].clock / ours.clock
        figures.ratios[f"{label}, CPU"] = middle[name].cpu / ours.cpu


def profile(site: SiteCommands) -> str:
    """Return which tasks of a run that changes nothing take how long."""
    os.environ["ANSIBLE_CALLBACKS_ENABLED"] = "ansible.posix.profile_tasks"
    os.environ["PROFILE_TASKS_TASK_OUTPUT_LIMIT"] = "all"
    try:
        _, printed = play(site, *PLAYBOOK)
    finally:
        del os.environ["ANSIBLE_CALLBACKS_ENABLED"], os.environ["PROFILE_TASKS_TASK_OUTPUT_LIMIT"]
    return printed[printed.rindex("PLAY RECAP") :]


def measure(folder: Path, parts: set[str], rounds: int = ROUNDS) -> Figures:
    """Measure on two hosts that are started for it and taken down after it.

    Args:
        folder: an empty folder to work in.
        parts: what to measure, of `first`, `built`, `again` and `scale`.
        rounds: how often each time is taken.
    """
    figures = Figures()
    site = make_site(folder)
    try:
        if "first" in parts:
            first_converge(site, figures, rounds, built=False)
        if "built" in parts:
            first_converge(site, figures, 1, built=True)
        if parts & {"again", "scale"}:
            fresh(site)  # a host made by hand is refused
        if "again" in parts:
            again(site, folder / "peer", figures, rounds)
            figures.notes.append(profile(site))
        if "scale" in parts:
            play(site, "playbooks/hosts.yml")
            seconds, ratios = scale.measure(site, folder)
            figures.seconds |= seconds
            figures.ratios |= ratios
    finally:
        substrate(site, "down")
    figures.ratios["load of the machine at the end"] = os.getloadavg()[1]
    figures.ratios["largest process of the hosts' part, MiB"] = (
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    )
    return figures
