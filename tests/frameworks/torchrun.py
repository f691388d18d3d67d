"""A job by torchrun in two pods of the demo, which is up: `python -m tests.frameworks.torchrun`.

Its image has Debian's PyTorch, and is made on request: half a gigabyte of packages.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import Request
from bedplate.lock import load_lock
from bedplate.mirror.store import Store, cache
from tests.site.cluster import wait_for
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE
from tests.substrate.images import known_tools
from tests.substrate.images.filling import fill

if TYPE_CHECKING:
    from bedplate.lock import Lock

IMAGE = "images.bedplate.internal/torch:1.13.1"
NAME = "reduced"
TEAM = "lab"
#: Of PyTorch 1.13 and Python 3.11, which lists flags of one bit alone: no other can be chosen.
AROUND = ("--redirects=1", "--tee=1")
#: Where each process is, and the sum of what all of them have; said by the first.
PROGRAM = """\
import os
import socket

import torch
import torch.distributed as world

world.init_process_group("gloo")
where = [None] * world.get_world_size()
world.all_gather_object(where, f"{socket.gethostname()}/{world.get_rank()}")
total = torch.tensor([world.get_rank() + 1])
world.all_reduce(total)
if world.get_rank() == 0:
    print(torch.__version__, *where, "sum", int(total))
"""


def request() -> Request:
    """Return a job of two pods with a share each and two processes in each."""
    return Request(
        NAME,
        TEAM,
        IMAGE,
        form="torchrun",
        command=(*AROUND, "--no_python", "python3", "-c", PROGRAM),
        pods=2,
        shares=1,
        processes=2,
        seconds=600,
    )


def ran(site: SiteCommands, lock: Lock, folder: Path) -> str:
    """Run the job and return what its first pod said; afterwards nothing of it is left.

    The image has no digest that is known before it is made, so that it is named by tag.
    """
    known = jobs.jobs_args(lock)
    problems = jobs.problems(known, request())
    assert [problem.key for problem in problems] == [f"{NAME}.image"], problems
    path = folder / f"{NAME}.yml"
    path.write_text(yaml.safe_dump_all(jobs.objects(known, request())))
    try:
        done = site.kubectl("apply", "-f", str(path))
        assert done.returncode == 0, done.stdout
        state = ["get", "job", NAME, "-n", TEAM, "-o", "jsonpath={.status.conditions[*].type}"]
        wait_for(
            "the job ends",
            lambda: {"Complete", "Failed"} & set(site.kubectl(*state).stdout.split()),
            900,
        )
        first = f"batch.kubernetes.io/job-name={NAME},batch.kubernetes.io/job-completion-index=0"
        return site.kubectl("logs", "-n", TEAM, "-l", first, "--tail=100").stdout
    finally:
        site.kubectl("delete", "-f", str(path), "--wait=true")


def main() -> None:
    """Make the image, run the job, and look at what it says."""
    fill(Store(cache() / "mirror"), known_tools(), requested=[IMAGE])
    with tempfile.TemporaryDirectory() as folder:
        said = ran(SiteCommands(SITE, DESCRIPTION), load_lock(SITE), Path(folder))
    print(said)
    for rank in range(4):
        assert f"{NAME}-{rank // 2}/{rank}" in said
    assert "sum 10" in said


if __name__ == "__main__":
    main()
