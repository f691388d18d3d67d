"""Evidence of the tools that a host is tried and measured with: there, and MPI starts processes."""

from typing import Any, Mapping

from ..driver import state
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

#: Where distributions have Open MPI's starter; Red Hat's family keeps it off the path.
STARTERS = ("/usr/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun")
PROCESSES = 2


def _starts(host: Host, to: Collected) -> None:
    what = f"Open MPI starts {PROCESSES} processes"
    starter = next((path for path in STARTERS if host.exists(path)), None)
    if starter is None:
        to.checks.append(failed("hpc.mpi", what, "no mpirun", AGAIN, PROCESSES))
        return
    # Evidence is collected by root, on hosts that may have one processor.
    argv = [starter, "--allow-run-as-root", "--oversubscribe", "-np", str(PROCESSES), "hostname"]
    answer = host.run(argv)
    found, reason = (len(answer.out.split()), "") if answer.code == 0 else (None, answer.said)
    fix = "Run mpirun by hand; see the host's name in /etc/hosts, and limits of memory and files."
    to.checks.append(check("hpc.mpi", what, PROCESSES, found, fix, reason))


def collect(host: Host, wishes: Wishes, to: Collected) -> None:
    """Add the checks of the tools; one skipped check where the lock has none."""
    given = wishes.hpc
    packages: Mapping[str, Any] = given.get("packages") or {}
    left: Mapping[str, Any] = given.get("left") or {}
    if not packages and not left:
        to.checks.append(skipped("hpc", "HPC tools", "the lock has none for this host"))
        return
    wished = sorted({str(name) for name in packages.values()})
    have = sorted(state.installed(host, wished))
    to.checks.append(
        check("hpc.packages", "packages of the tools are installed", wished, have, AGAIN)
    )
    if "openmpi" in packages:
        _starts(host, to)
    for tool, reason in sorted(left.items()):
        to.checks.append(skipped(f"hpc.{tool}", f"{tool} is installed", str(reason)))
