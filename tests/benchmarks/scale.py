"""What a host costs on the control side, from few inventory names to many.

Many names lead to a few real hosts, each by a connection of its own. The play is the cheap half of
the hosts' playbook: requirements, kernel settings, evidence. Only what runs on the control side is
counted, as the kernel accounts it to the process and all its children.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import yaml

from tests.substrate.commands import ROOT, SiteCommands

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (10, 300)
FORKS = 10
#: Room for a subnet of each of so many nodes.
PODS = "10.128.0.0/13"
PLAY = """
- name: The cheap half of the hosts' playbook
  hosts: gpu_pools
  gather_facts: false
  roles: [{root}/playbooks/roles/from_lock]
  vars: {{gpu_verify_areas: [driver, gpus]}}
  tasks:
    - {{ansible.builtin.import_role: {{name: bedplate.gpu.host_baseline, tasks_from: validate}}}}
    - {{ansible.builtin.import_role: {{name: bedplate.gpu.host_baseline, tasks_from: configure}}}}
    - {{ansible.builtin.import_role: {{name: bedplate.gpu.gpu_verify, tasks_from: verify}}}}
"""


def many(site: SiteCommands, folder: Path, number: int) -> SiteCommands:
    """Write a site of that many names, which lead to the site's hosts in turn."""
    copy = folder / f"many-{number}"
    shutil.copytree(
        site.site, copy, ignore=shutil.ignore_patterns(".bedplate.lock.yml", "evidence")
    )
    content = yaml.safe_load((copy / "hosts.yml").read_text())
    pool = content["all"]["children"]["gpu_pools"]["children"]["pool_class"]
    addresses = [host["ansible_host"] for host in pool["hosts"].values()]
    # A site has one address per host, so each name has one of its own (of those that RFC 2544 keeps
    # for benchmarks), and ssh is told where that is.
    pool["hosts"] = {
        f"gpu{index:03}": {
            "ansible_host": f"198.18.{index // 250}.{index % 250 + 1}",
            "ansible_ssh_extra_args": f"-o HostName={addresses[index % len(addresses)]}",
        }
        for index in range(number)
    }
    (copy / "hosts.yml").write_text(yaml.safe_dump(content, sort_keys=False))
    shared = copy / "group_vars" / "all" / "bedplate.yml"
    wishes = yaml.safe_load(shared.read_text())
    wishes["bedplate_kubernetes"]["pod_subnet"] = PODS
    shared.write_text(yaml.safe_dump(wishes, sort_keys=False))
    commands = SiteCommands(copy, site.description)
    commands.run("plan", ["bedplate", "plan", str(copy)], quiet=True)
    return commands


def cost(site: SiteCommands, play: Path) -> tuple[float, float, float]:
    """Run the play; return seconds of CPU, seconds on the clock and the largest process in MiB.

    Raises:
        AssertionError: the play failed; with the end of what it printed.
    """
    log = play.with_suffix(".log")
    command = ["ansible-playbook", "-i", str(site.site), "--forks", str(FORKS), str(play)]
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=site.environment(), stdout=output, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, log.read_text()[-6000:]
    return used.ru_utime + used.ru_stime, time.monotonic() - started, used.ru_maxrss / 1024


def measure(site: SiteCommands, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Measure both sizes.

    Returns:
        Seconds by what was done, and ratios.
    """
    play = folder / "cheap.yml"
    play.write_text(PLAY.format(root=ROOT))
    seconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    per_host, memory = [], []
    for number in (1, *SIZES):
        used, clock, size = cost(many(site, folder, number), play)
        if number == 1:
            start = used  # what every run costs, whatever its size
            continue
        seconds[f"CPU on the control side, {number} names"] = used
        seconds[f"on the clock, {number} names"] = clock
        per_host.append((used - start) / (number - 1))
        ratios[f"CPU seconds of a name, of {number}"] = per_host[-1]
        ratios[f"largest process, {number} names, MiB"] = size
        memory.append(size)
    few, much = SIZES
    ratios[f"a name's CPU, of {much} / of {few}"] = per_host[-1] / per_host[0]
    ratios["memory that a further name takes, MiB"] = (memory[-1] - memory[0]) / (much - few)
    return seconds, ratios
