"""An MPI job of the team `lab` in two pods of a real cluster, by Debian's Open MPI."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import asyncssh
import yaml

from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import Request
from bedplate.components.frameworks.jobs.pods import secret_name
from tests.site.cluster import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock
    from tests.substrate.commands import SiteCommands

IMAGE = "images.bedplate.internal/mpi:4.1.4"
#: Where each process is, and the sum of what all of them have; said by the first.
PROGRAM = """\
import os
import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
hosts = world.gather(f"{socket.gethostname()}/{os.getuid()}")
total = world.allreduce(world.Get_rank() + 1)
if world.Get_rank() == 0:
    print(*hosts, "sum", total)
"""


def request(name: str) -> Request:
    """Return a job of two pods with a share each and two processes in each."""
    return Request(
        name,
        "lab",
        IMAGE,
        form="MPI",
        command=("python3", "-c", PROGRAM),
        pods=2,
        shares=1,
        processes=2,
        seconds=300,
    )


def objects(lock: Lock, name: str) -> list[dict[str, Any]]:
    """Return the job's objects with the key that the component would make.

    The tests' image has no digest that is known before it is made, so that it is named by tag.
    """
    asked = request(name)
    known = jobs.jobs_args(lock)
    problems = jobs.problems(known, asked)
    assert [problem.key for problem in problems] == [f"{name}.image"], problems
    found = jobs.objects(known, asked)
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(asked), "namespace": found[0]["metadata"]["namespace"]},
        "data": {"ssh-privatekey": base64.b64encode(key).decode()},
    }
    return [secret, *found]


def ran(site: SiteCommands, lock: Lock, folder: Path) -> str:
    """Run the job and return what its first pod said; afterwards nothing of it is left."""
    name = "mpi"
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump_all(objects(lock, name)))
    try:
        done = site.kubectl("apply", "-f", str(path))
        assert done.returncode == 0, done.stdout
        state = ["get", "job", name, "-n", "lab", "-o", "jsonpath={.status.conditions[*].type}"]
        wait_for(
            "the MPI job ends",
            lambda: {"Complete", "Failed"} & set(site.kubectl(*state).stdout.split()),
            300,
        )
        first = f"batch.kubernetes.io/job-name={name},batch.kubernetes.io/job-completion-index=0"
        return site.kubectl("logs", "-n", "lab", "-l", first, "--tail=20").stdout
    finally:
        site.kubectl("delete", "-f", str(path), "--wait=true")
